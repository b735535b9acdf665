"""Connections for single statements, each of which is a transaction of its own."""

import select
import time
from collections import deque
from collections.abc import Callable

import psycopg2
from psycopg2.extensions import connection

# For so long after its last use, a connection counts as being in use still. In a busy process the
# next use comes sooner, and a look at the socket would make it change threads.
IN_USE_SECONDS = 0.005
TRUSTED_IDLE_SECONDS = 1.0
_KEPT_IDLE_SECONDS = 60.0


class ConnectionPool:
    """Autocommitting connections; each is one thread's at a time, the one used last first.

    As many are open as threads were using one at once; what nobody needed for a minute is closed.
    A pool with more to it costs each request as much as a statement.
    """

    def __init__(self, connect: Callable[[], connection]) -> None:
        self._connect = connect
        # With the time of their last use, the longest ago at the left.
        self._idle: deque[tuple[connection, float]] = deque()

    def take(self) -> connection:
        """A connection that lives, as far as can be told; raises ``psycopg2.OperationalError``."""
        while True:
            try:
                link, used_at = self._idle.pop()
            except IndexError:
                link = self._connect()
                link.autocommit = True
                return link
            if _lives(link, time.monotonic() - used_at):
                return link
            link.close()

    def give_back(self, link: connection) -> None:
        if not link.closed:
            self._idle.append((link, time.monotonic()))
        self._close_unneeded()

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[0].close()

    def _close_unneeded(self) -> None:
        long_ago = time.monotonic() - _KEPT_IDLE_SECONDS
        try:
            if self._idle[0][1] < long_ago:
                self._idle.popleft()[0].close()
        except IndexError:
            # Another thread took the last one.
            pass


def peer_closed(link: connection) -> bool:
    """Whether an idle connection's socket has something to read: its end, or a farewell."""
    poll = select.poll()
    poll.register(link.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _lives(link: connection, idled: float) -> bool:
    if idled < IN_USE_SECONDS:
        return True
    return not peer_closed(link) and (idled < TRUSTED_IDLE_SECONDS or _answers(link))


def _answers(link: connection) -> bool:
    try:
        with link.cursor() as cursor:
            cursor.execute("SELECT 1")
    except psycopg2.Error:
        return False
    return True
