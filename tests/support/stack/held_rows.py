"""Locks rows and tables, so that a process has to wait in the middle of a transaction."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg2

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack

LOCK_WAIT_QUERY = (
    "SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
    " AND wait_event_type = 'Lock' AND query LIKE %s"
)


@contextmanager
def uncommitted(stack: Stack, statement: str, *values: object) -> Iterator[None]:
    """Run a statement, keep its locks until the block ends, and then roll the statement back."""
    with closing(psycopg2.connect(stack.owner_url)) as connection:
        connection.cursor().execute(statement, values)
        yield


@contextmanager
def locked_row(stack: Stack, table: str, row_id: object) -> Iterator[None]:
    """Lock a row until the block ends."""
    with uncommitted(stack, f"SELECT 1 FROM {table} WHERE id = %s FOR UPDATE", row_id):
        yield


def await_waiter(stack: Stack, words: str) -> None:
    """Wait until an SQL statement that contains ``words`` waits for a lock."""
    pattern = f"%{words}%"
    eventually(
        lambda: stack.query(LOCK_WAIT_QUERY, pattern), within=60, what=f"the lock of {words}"
    )
