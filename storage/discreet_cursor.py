"""A database cursor whose errors contain no values."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg2
from psycopg2.extensions import cursor


class DiscreetCursor(cursor):
    """A cursor whose errors have only one line, because the other lines can contain values.

    After the first line, Postgres quotes rows and statements, which contain addresses and names.
    Errors are logged and stored with failed work. The complete error stays in its ``diag``.
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
    """Shorten the message of a database error in the block to the first line of the message."""
    try:
        yield
    except psycopg2.Error as error:
        error.args = (str(error).partition("\n")[0],)
        raise
