"""A database cursor whose error messages contain no personal data."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg2
from psycopg2.extensions import cursor


class DiscreetCursor(cursor):
    """A cursor that shortens error messages to their first line.

    All lines of an error message except the first can quote rows and statements, which contain
    addresses and names. Error messages are logged, and stored with failed jobs. The attribute
    ``diag`` of the shortened error still contains the complete message.
    """

    def execute(self, query: Any, vars: Any = None) -> None:  # noqa: A002 - psycopg2's name
        with _first_line_only():
            super().execute(query, vars)

    def executemany(self, query: Any, vars_list: Any) -> None:
        with _first_line_only():
            super().executemany(query, vars_list)

    def copy_expert(self, sql: Any, file: Any, size: int = 8192) -> None:
        with _first_line_only():
            super().copy_expert(sql, file, size)


@contextmanager
def _first_line_only() -> Iterator[None]:
    try:
        yield
    except psycopg2.Error as error:
        error.args = (str(error).partition("\n")[0],)
        raise
