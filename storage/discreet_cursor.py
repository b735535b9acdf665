"""A database cursor whose error messages contain no personal data."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import psycopg2
from psycopg2.extensions import cursor

from storage.full_disks import report_database_error

if TYPE_CHECKING:
    from storage.server_watch import WatchedConnection


class DiscreetCursor(cursor):
    """Shortens error messages to their first line.

    The other lines can quote rows and statements, which contain addresses and names. Error messages
    are logged, and stored with failed jobs. The attribute ``diag`` of the shortened error still
    contains the complete message.
    """

    def execute(self, query: Any, vars: Any = None) -> None:  # noqa: A002 - psycopg2's name
        with _call_server(self):
            super().execute(query, vars)

    def executemany(self, query: Any, vars_list: Any) -> None:
        with _call_server(self):
            super().executemany(query, vars_list)

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        # A cursor with a name fetches its rows from the server.
        with _call_server(self):
            return super().fetchmany(self.arraysize if size is None else size)

    def copy_expert(self, sql: Any, file: Any, size: int = 8192) -> None:
        with _call_server(self):
            super().copy_expert(sql, file, size)


@contextmanager
def _call_server(used: cursor) -> Iterator[None]:
    watched = cast("WatchedConnection", used.connection)
    watched.called_at = time.monotonic()
    try:
        yield
    except psycopg2.Error as error:
        error.args = (str(error).partition("\n")[0],)
        report_database_error(error)
        raise
    finally:
        watched.called_at = None
