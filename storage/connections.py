"""Connections whose errors tell no values, and those for single statements among them.

Each single statement is a transaction of its own.
"""

import select
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import psycopg2
from psycopg2.extensions import connection, cursor
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2
from sqlalchemy.exc import IntegrityError, OperationalError

from core.errors import DomainError

# A connection that was used within this time is reused without a check. In a busy process the next
# use comes sooner, and checking the socket would cost a switch of threads.
IN_USE_SECONDS = 0.005
TRUSTED_IDLE_SECONDS = 1.0

_DIALECT = PGDialect_psycopg2()  # type: ignore[no-untyped-call]


class DiscreetCursor(cursor):
    """A cursor whose errors say what is wrong, and not with which values.

    After the first line Postgres quotes rows and statements, and those are people's
    addresses and names. Errors are logged, and kept beside what failed. The rest is still in their
    ``diag``.
    """

    def execute(self, query: Any, vars: Any = None) -> None:  # noqa: A002 - psycopg2's name
        with _first_line_alone:
            super().execute(query, vars)

    def executemany(self, query: Any, vars_list: Any) -> None:
        with _first_line_alone:
            super().executemany(query, vars_list)

    def copy_expert(self, sql: Any, file: Any, size: int = 8192) -> None:
        with _first_line_alone:
            super().copy_expert(sql, file, size)


class _FirstLineAlone:
    """Leaves an error of the database its first line. A generator would cost a statement more."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, psycopg2.Error):
            error.args = (str(error).partition("\n")[0],)


_first_line_alone = _FirstLineAlone()


def constraint_of(error: IntegrityError) -> str | None:
    """The constraint that a statement would have broken."""
    name: str | None = error.orig.diag.constraint_name  # type: ignore[union-attr]
    return name


@contextmanager
def unless_taken(constraint: str, taken: DomainError) -> Iterator[None]:
    """Raise ``taken`` where the block would break this constraint of uniqueness."""
    try:
        yield
    except IntegrityError as error:
        if constraint_of(error) != constraint:
            raise
        raise taken from None


@contextmanager
def unless(ended_by: type[psycopg2.Error], instead: Exception) -> Iterator[None]:
    """Raise ``instead`` where a statement of the block is ended by this error of the driver."""
    try:
        yield
    except OperationalError as error:
        if not isinstance(error.orig, ended_by):
            raise
        raise instead from None


class ConnectionPool:
    """At most ``most`` autocommitting connections; each serves one thread at a time.

    The one used last comes first. A pool that does more costs as much as a statement.
    """

    def __init__(self, connect: Callable[[], connection], most: int) -> None:
        self._connect = connect
        self._most = most
        self._open = 0
        self._lock = Lock()
        # Each with the time of its last use.
        self._idle: list[tuple[connection, float]] = []

    def take(self) -> connection | None:
        """A connection that seems to be alive; ``None`` when all are in use.

        Raises ``psycopg2.OperationalError``.
        """
        while True:
            try:
                idle, used_at = self._idle.pop()
            except IndexError:
                return self._one_more()
            idle_seconds = time.monotonic() - used_at
            if idle_seconds < IN_USE_SECONDS or (
                not peer_closed(idle) and (idle_seconds < TRUSTED_IDLE_SECONDS or answers(idle))
            ):
                return idle
            self._drop(idle)

    def give_back(self, used: connection) -> None:
        if used.closed:
            self._drop(used)
        else:
            self._idle.append((used, time.monotonic()))

    def close(self) -> None:
        while self._idle:
            self._drop(self._idle.pop()[0])

    def _one_more(self) -> connection | None:
        with self._lock:
            if self._open >= self._most:
                return None
            self._open += 1
        try:
            opened = self._connect()
        except BaseException:
            with self._lock:
                self._open -= 1
            raise
        opened.autocommit = True
        return opened

    def _drop(self, used: connection) -> None:
        used.close()
        with self._lock:
            self._open -= 1


def peer_closed(idle: connection) -> bool:
    """Return whether the server closed this idle connection: its socket is readable then."""
    poll = select.poll()
    poll.register(idle.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def answers(idle: connection) -> bool:
    try:
        return bool(_DIALECT.do_ping(idle))  # type: ignore[no-untyped-call]
    except psycopg2.Error:
        return False
