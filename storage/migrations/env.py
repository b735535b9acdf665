"""Run by Alembic. One transaction per migration; a lock makes two migrating processes take turns."""

from alembic import context
from sqlalchemy import Connection, text

from models import Model

# Rather be tried again than queue every request behind a lock that isn't granted.
LOCK_TIMEOUT = "1s"
STATEMENT_TIMEOUT = "10min"


def run(connection: Connection) -> None:
    with connection.begin():
        connection.execute(text(f"SET lock_timeout = '{LOCK_TIMEOUT}'"))
        connection.execute(text(f"SET statement_timeout = '{STATEMENT_TIMEOUT}'"))
    context.configure(
        connection=connection,
        target_metadata=Model.metadata,
        compare_type=True,
        compare_server_default=True,
        transaction_per_migration=True,
    )
    with context.begin_transaction():
        context.run_migrations()


run(context.config.attributes["connection"])
