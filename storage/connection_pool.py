"""A pool of database connections for single SQL statements."""

import select
import time
from collections.abc import Callable
from threading import Lock

import psycopg2
from psycopg2.extensions import connection
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2

# After this idle time, a connection is tested before use.
TRUSTED_IDLE_SECONDS = 1.0

_DIALECT = PGDialect_psycopg2()  # type: ignore[no-untyped-call]


# Optimization: our own connection pool (decision 17).
class ConnectionPool:
    """A pool of autocommitting connections, each of which serves one thread at a time.

    ``take`` returns the most recently used idle connection.
    """

    def __init__(self, connect: Callable[[], connection], max_connections: int) -> None:
        self._connect = connect
        self._max_connections = max_connections
        self._open = 0
        self._lock = Lock()
        # The idle connections, each with the monotonic time of its last use.
        self._idle: list[tuple[connection, float]] = []

    def take(self) -> connection | None:
        """Return ``None`` if all connections are in use."""
        while True:
            try:
                idle, used_at = self._idle.pop()
            except IndexError:
                return self._open_connection()
            idle_seconds = time.monotonic() - used_at
            if not is_closed_by_server(idle) and (
                idle_seconds < TRUSTED_IDLE_SECONDS or is_responding(idle)
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

    def _open_connection(self) -> connection | None:
        with self._lock:
            if self._open >= self._max_connections:
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


def is_closed_by_server(idle: connection) -> bool:
    # The socket of an idle connection becomes readable only when the server closes the connection.
    poll = select.poll()
    poll.register(idle.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def is_responding(idle: connection) -> bool:
    try:
        return bool(_DIALECT.do_ping(idle))  # type: ignore[no-untyped-call]
    except psycopg2.Error:
        return False
