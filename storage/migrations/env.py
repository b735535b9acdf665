"""Alembic runs this: each migration is a transaction of its own."""

from alembic import context
from alembic.migration import MigrationContext
from sqlalchemy import Connection, text

from core.errors.requests import DATABASE_UNUSABLE
from storage.migrations import revisions

# Rather be tried again than queue every request behind a lock that isn't granted.
LOCK_TIMEOUT = "1s"
STATEMENT_TIMEOUT = "10min"


def run(connection: Connection) -> None:
    with connection.begin():
        connection.execute(text(f"SET lock_timeout = '{LOCK_TIMEOUT}'"))
        connection.execute(text(f"SET statement_timeout = '{STATEMENT_TIMEOUT}'"))
        applied = MigrationContext.configure(connection).get_current_revision()
    if applied and (reason := revisions.dead_end(applied)):
        raise DATABASE_UNUSABLE(reason=reason)
    context.configure(connection=connection, transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()


run(context.config.attributes["connection"])
