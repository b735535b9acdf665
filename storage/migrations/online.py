"""Steps of a migration that running code does not wait for, whatever the size of the table.

Each step is outside of a transaction, so a migration that is killed leaves whole steps. Each looks
at what is there first: the migration is run again, and goes on. A migration that uses them makes
nothing else, so that what its own transaction did is not done a second time.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from alembic import op

_FIND_INDEX = sa.text("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(:name)")
_FIND_CONSTRAINT = sa.text(
    "SELECT 1 FROM pg_constraint WHERE conrelid = to_regclass(:table) AND conname = :name"
)


def create_index(
    name: str,
    table: str,
    columns: str,
    *,
    unique: bool = False,
    where: str | None = None,
    method: str = "btree",
) -> None:
    """Build an index while rows are written. ``columns`` is SQL, such as ``"user_id, id DESC"``."""
    kind = "UNIQUE INDEX" if unique else "INDEX"
    definition = f"USING {method} ({columns})" + (f" WHERE {where}" if where else "")
    with _outside_a_transaction() as connection:
        is_valid = connection.scalar(_FIND_INDEX, {"name": name})
        if is_valid is False:  # a build that was killed, or that met two equal rows
            connection.exec_driver_sql(f"DROP INDEX CONCURRENTLY {name}")
        if not is_valid:
            connection.exec_driver_sql(f"CREATE {kind} CONCURRENTLY {name} ON {table} {definition}")


def drop_index(name: str) -> None:
    with _outside_a_transaction() as connection:
        connection.exec_driver_sql(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")


def add_constraint(table: str, name: str, definition: str) -> None:
    """Add a rule, such as ``"CHECK (…)"``: at once for new rows, then for those that are there."""
    with _outside_a_transaction() as connection:
        if not connection.scalar(_FIND_CONSTRAINT, {"table": table, "name": name}):
            with _waiting_briefly(connection):
                connection.exec_driver_sql(
                    f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition} NOT VALID"
                )
        connection.exec_driver_sql(f"ALTER TABLE {table} VALIDATE CONSTRAINT {name}")


def in_batches(statement: str) -> None:
    """Repeat a statement that changes a bounded number of rows, until it changes none."""
    with _outside_a_transaction() as connection:
        while connection.exec_driver_sql(statement).rowcount > 0:
            pass


@contextmanager
def _outside_a_transaction() -> Iterator[sa.Connection]:
    """The migration's connection, whose statements are committed one by one and may take hours."""
    with op.get_context().autocommit_block():
        connection = op.get_bind()
        before = {
            name: connection.scalar(sa.text(f"SHOW {name}"))
            for name in ("lock_timeout", "statement_timeout")
        }
        for name in before:
            connection.exec_driver_sql(f"SET {name} = 0")
        try:
            yield connection
        finally:
            for name, value in before.items():
                connection.exec_driver_sql(f"SET {name} = '{value}'")


@contextmanager
def _waiting_briefly(connection: sa.Connection) -> Iterator[None]:
    """While a statement waits for a lock that keeps writers out, all writers wait behind it."""
    connection.exec_driver_sql("SET lock_timeout = '1s'")
    try:
        yield
    finally:
        connection.exec_driver_sql("SET lock_timeout = 0")
