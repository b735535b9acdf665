"""Detects a hung database server, and ends the calls that wait for the server.

A hanging server, for example one whose processes are stopped, can't apply its own time limits. The
kernel's time limits for connections don't apply either, because the kernel of the server still
confirms each packet.
"""

import os
import select
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from typing import Any
from weakref import WeakSet

import psycopg2
from psycopg2.extensions import POLL_OK, POLL_READ, connection

from core.logging import get_logger

log = get_logger(__name__)

# A call of this duration is a reason to probe the server. Long calls are allowed.
_LONG_CALL_SECONDS = 3.0
# The pause between two probes.
_PROBE_EVERY_SECONDS = 3.0
# A server that doesn't answer a probe within this time counts as hung. On a crowded machine, a
# probe takes up to a second. The API must end a call within 15 seconds, with the time of a long
# call and of a probe.
_MAX_PROBE_SECONDS = 7.0
# The time limit for a step of a probe if this process has had no processor time for seconds.
_MIN_STEP_SECONDS = 0.5
_TICK_SECONDS = 1.0


class WatchedConnection(connection):
    """A connection that knows since when it has been waiting for the server.

    Attributes:
        called_at: the start of the call, as a value of ``time.monotonic()``, or ``None`` while the
            connection isn't waiting.
    """

    called_at: float | None = None

    def commit(self) -> None:
        self.called_at = time.monotonic()
        try:
            super().commit()
        finally:
            self.called_at = None

    def rollback(self) -> None:
        self.called_at = time.monotonic()
        try:
            super().rollback()
        finally:
            self.called_at = None


class ServerWatch:
    """A thread that watches the calls of this process to a database server.

    If a call takes long, the watch sends a trivial query over a new connection. If the server
    doesn't answer the query, the watch closes all connections, so that all waiting calls fail. New
    connections are refused until the server answers. A call that a living server works on is never
    ended.
    """

    def __init__(self, dsn: str, options: Mapping[str, Any]) -> None:
        self._dsn = dsn
        self._options = dict(options)
        self._lock = threading.Lock()
        self._connections: WeakSet[WatchedConnection] = WeakSet()
        self._thread: threading.Thread | None = None
        self._hangs_since: float | None = None

    def connect(self, **options: Any) -> WatchedConnection:
        if self._hangs_since is not None:
            raise psycopg2.OperationalError("the database server does not respond")
        opened: WatchedConnection = psycopg2.connect(
            self._dsn, connection_factory=WatchedConnection, **self._options, **options
        )
        with self._lock:
            self._connections.add(opened)
            # After a fork, the thread exists only in the parent process.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, daemon=True, name="server watch")
                self._thread.start()
        return opened

    def _run(self) -> None:
        probed_at = 0.0
        while self._is_needed():
            time.sleep(_TICK_SECONDS)
            moments = [each.called_at for each in self._list_connections()]
            calls = [moment for moment in moments if moment is not None]
            now = time.monotonic()
            is_long = bool(calls) and now - min(calls) >= _LONG_CALL_SECONDS
            if self._hangs_since is None and (
                not is_long or now - probed_at < _PROBE_EVERY_SECONDS
            ):
                continue
            is_answered = self._probe()
            probed_at = time.monotonic()
            if is_answered and self._hangs_since is not None:
                seconds = round(probed_at - self._hangs_since)
                self._hangs_since = None
                log.warning("database.answers", seconds=seconds)
            elif not is_answered and self._hangs_since is None:
                self._hangs_since = now
                log.error("database.hung", reason=_REASON, calls=len(calls))
                self._close_connections()

    def _is_needed(self) -> bool:
        with self._lock:
            if self._hangs_since is not None or any(not each.closed for each in self._connections):
                return True
            self._thread = None
            return False

    def _list_connections(self) -> list[WatchedConnection]:
        with self._lock:
            return [each for each in self._connections if not each.closed]

    def _close_connections(self) -> None:
        for each in self._list_connections():
            # A connection that its thread closes at the same time has no socket.
            with (
                suppress(OSError, psycopg2.Error),
                socket.socket(fileno=os.dup(each.fileno())) as duplicate,
            ):
                duplicate.shutdown(socket.SHUT_RDWR)

    def _probe(self) -> bool:
        """Return whether the server answers, even with an error such as "too many connections"."""
        deadline = time.monotonic() + _MAX_PROBE_SECONDS
        try:
            with closing(psycopg2.connect(self._dsn, async_=1, **self._options)) as probe:
                if not _wait_for_answer(probe, deadline):
                    return False
                probe.cursor().execute("SELECT 1")
                return _wait_for_answer(probe, deadline)
        except psycopg2.Error:
            return True


_REASON = f"The server has not answered a probe within {_MAX_PROBE_SECONDS:g} s."


def _wait_for_answer(probe: connection, deadline: float) -> bool:
    while (state := probe.poll()) != POLL_OK:
        poll = select.poll()
        poll.register(probe.fileno(), select.POLLIN if state == POLL_READ else select.POLLOUT)
        if not poll.poll(max(deadline - time.monotonic(), _MIN_STEP_SECONDS) * 1000):
            return False
    return True
