"""Connections for single statements, each of which is a transaction of its own."""

import select
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import psycopg2
from psycopg2.extensions import connection
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2

# A connection that was used within this time is reused without a check. In a busy process the next
# use comes sooner, and checking the socket would cost a switch of threads.
IN_USE_SECONDS = 0.005
TRUSTED_IDLE_SECONDS = 1.0
_KEPT_IDLE_SECONDS = 60.0

_DIALECT = PGDialect_psycopg2()  # type: ignore[no-untyped-call]


class ConnectionPool:
    """Autocommitting connections, the one used last first; each serves one thread at a time.

    The pool grows to the number of threads that used a connection at the same time, and closes
    connections that were idle for a minute. A pool that does more costs as much as a statement.
    """

    def __init__(self, connect: Callable[[], connection]) -> None:
        self._connect = connect
        # Each with the time of its last use, the oldest at the left.
        self._idle: deque[tuple[connection, float]] = deque()

    def take(self) -> connection:
        """A connection that seems to be alive; raises ``psycopg2.OperationalError``."""
        while True:
            try:
                idle, used_at = self._idle.pop()
            except IndexError:
                opened = self._connect()
                opened.autocommit = True
                return opened
            idle_seconds = time.monotonic() - used_at
            if idle_seconds < IN_USE_SECONDS or (
                not peer_closed(idle) and (idle_seconds < TRUSTED_IDLE_SECONDS or answers(idle))
            ):
                return idle
            idle.close()

    def give_back(self, used: connection) -> None:
        if not used.closed:
            self._idle.append((used, time.monotonic()))
        # An IndexError: another thread took the last one.
        with suppress(IndexError):
            if self._idle[0][1] < time.monotonic() - _KEPT_IDLE_SECONDS:
                self._idle.popleft()[0].close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[0].close()


def peer_closed(idle: connection) -> bool:
    """Whether the server closed this idle connection: its socket is readable then."""
    poll = select.poll()
    poll.register(idle.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def answers(idle: connection) -> bool:
    try:
        return bool(_DIALECT.do_ping(idle))  # type: ignore[no-untyped-call]
    except psycopg2.Error:
        return False
