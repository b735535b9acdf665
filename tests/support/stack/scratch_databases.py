"""Creates an additional, empty database for a test, on the Postgres server of its stack."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from alembic.migration import MigrationContext
from alembic.operations import Operations
from pydantic import SecretStr
from sqlalchemy import Engine, create_engine, make_url, text

from core.settings import Settings
from devstack.harness.stack import Stack

# The lock timeout that ``ScratchDatabase.step`` sets, as the product does before its migrations.
MIGRATION_LOCK_TIMEOUT = "1s"


@dataclass(frozen=True)
class ScratchDatabase:
    engine: Engine
    settings: Settings

    def execute(self, *statements: str) -> None:
        with self.engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    def scalar(self, statement: str) -> object:
        with self.engine.connect() as connection:
            return connection.scalar(text(statement))

    @contextmanager
    def open_transaction(self, *statements: str) -> Iterator[None]:
        """Run statements, and keep their transaction with its locks open until the block ends."""
        with self.engine.connect() as connection, connection.begin():
            for statement in statements:
                connection.exec_driver_sql(statement)
            yield

    def step(self, step: Callable[[], None]) -> None:
        """Run a step from ``storage.migrations.online`` in the same way as a migration does."""
        with self.engine.connect() as connection:
            with connection.begin():
                connection.exec_driver_sql(f"SET lock_timeout = '{MIGRATION_LOCK_TIMEOUT}'")
            context = MigrationContext.configure(
                connection, opts={"transaction_per_migration": True}
            )
            migrating = context.begin_transaction(_per_migration=True)
            with migrating, Operations.context(context):
                step()


@contextmanager
def scratch_database(stack: Stack) -> Iterator[ScratchDatabase]:
    name = f"scratch_{uuid4().hex[:12]}"
    url = make_url(stack.owner_url).set(drivername="postgresql+psycopg2")
    server = create_engine(url, isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    scratch_url = url.set(database=name)
    secret_url = SecretStr(scratch_url.render_as_string(hide_password=False))
    settings = stack.settings().model_copy(
        update={"database_url": secret_url, "migration_database_url": secret_url}
    )
    engine = create_engine(scratch_url)
    try:
        yield ScratchDatabase(engine, settings)
    finally:
        engine.dispose()
        with server.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")
        server.dispose()
