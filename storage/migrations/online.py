"""Migration steps that don't block the running application, even if they change a large table.

Online steps run outside a transaction and skip changes that already exist, so that a killed
migration can be restarted. A migration with online steps must contain only online steps, because a
restart would run all other statements twice.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from alembic import op

_SELECT_IS_VALID_INDEX = sa.text(
    "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(:name)"
)
_SELECT_CONSTRAINT = sa.text(
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
    """Create an index without blocking writers.

    Args:
        columns: the indexed columns as SQL, for example ``"user_id, id DESC"``.
        where: the condition of a partial index as SQL.
    """
    kind = "UNIQUE INDEX" if unique else "INDEX"
    definition = f"USING {method} ({columns})" + (f" WHERE {where}" if where else "")
    with _outside_a_transaction() as connection:
        is_valid = connection.scalar(_SELECT_IS_VALID_INDEX, {"name": name})
        # An index is invalid if its build was killed or found duplicate rows.
        if is_valid is False:
            connection.exec_driver_sql(f"DROP INDEX CONCURRENTLY {name}")
        if not is_valid:
            connection.exec_driver_sql(f"CREATE {kind} CONCURRENTLY {name} ON {table} {definition}")


def drop_index(name: str) -> None:
    with _outside_a_transaction() as connection:
        connection.exec_driver_sql(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")


def add_constraint(table: str, name: str, definition: str) -> None:
    """Add a constraint without blocking writers during the check of the existing rows.

    Args:
        definition: the constraint as SQL, for example ``"CHECK (…)"``.
    """
    with _outside_a_transaction() as connection:
        if not connection.scalar(_SELECT_CONSTRAINT, {"table": table, "name": name}):
            with _short_lock_timeout(connection):
                connection.exec_driver_sql(
                    f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition} NOT VALID"
                )
        connection.exec_driver_sql(f"ALTER TABLE {table} VALIDATE CONSTRAINT {name}")


def run_in_batches(statement: str) -> None:
    """Repeat a statement with a LIMIT until it changes no more rows."""
    with _outside_a_transaction() as connection:
        while connection.exec_driver_sql(statement).rowcount > 0:
            pass


@contextmanager
def _outside_a_transaction() -> Iterator[sa.Connection]:
    """Yield the migration's connection in autocommit mode and without time limits."""
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
def _short_lock_timeout(connection: sa.Connection) -> Iterator[None]:
    """Limit how long statements in the ``with`` block wait for a lock.

    A statement that waits for an exclusive lock blocks all later writers of the table.
    """
    connection.exec_driver_sql("SET lock_timeout = '1s'")
    try:
        yield
    finally:
        connection.exec_driver_sql("SET lock_timeout = 0")
