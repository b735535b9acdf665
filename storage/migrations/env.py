"""The entry point of Alembic, which runs each migration in a separate transaction."""

from alembic import context
from alembic.migration import MigrationContext
from sqlalchemy import Connection, text

from core.errors.requests import DATABASE_UNUSABLE
from storage.migrations import revisions

# The lock timeout is short, because requests queue behind a migration that waits for a lock. A
# migration that timed out is retried.
LOCK_TIMEOUT = "1s"
STATEMENT_TIMEOUT = "10min"


def run(connection: Connection) -> None:
    with connection.begin():
        connection.execute(text(f"SET lock_timeout = '{LOCK_TIMEOUT}'"))
        connection.execute(text(f"SET statement_timeout = '{STATEMENT_TIMEOUT}'"))
        applied = MigrationContext.configure(connection).get_current_revision()
    if applied and (reason := revisions.explain_unsupported(applied)):
        raise DATABASE_UNUSABLE(reason=reason)
    context.configure(connection=connection, transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()


run(context.config.attributes["connection"])
