"""Bounds on connections that the server itself doesn't have: silent ones are closed."""

import asyncio
import resource
import socket
from collections import Counter
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api.limits.body_budgets import holder_of_address

# From the opening of a connection, or the first byte of a further request, to the end of its head.
MAX_HEAD_SECONDS = 15.0
MAX_HEAD_BYTES = 64 * 1024
# Longer than clients and load balancers keep an idle connection. The side that sends must be the
# one that closes, or a request meets a connection that has just been closed.
KEEP_ALIVE_SECONDS = 75
# Of a client that doesn't read its answer. One that reads, however slowly, is never closed.
MAX_STALL_SECONDS = 60.0
# Each connection is a descriptor, of which the process has so many.
MAX_DESCRIPTORS = 65_536


def max_connections_of_an_address() -> int:
    """Half of what the process may have open: no address keeps all others out."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2


def raise_descriptors() -> None:
    """Take as many descriptors as the system gives: it begins with few, for old programs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class BoundedConnection(HttpToolsProtocol):
    """Closes a connection on which no request's head arrives in time, or no answer is read.

    Between the head and the answer, the request's own limits count
    (``api.middleware.body_limits``). After the answer, the server bounds the idle time.
    """

    _of_address: ClassVar[Counter[str]] = Counter()
    _deadline: asyncio.TimerHandle | None = None
    _is_in_head = False
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = holder_of_address(self.client[0] if self.client else None)
        self._of_address[self._address] += 1
        if self._of_address[self._address] > max_connections_of_an_address():
            transport.abort()
            return
        _close_when_stalled(transport)
        self._close_in(MAX_HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._of_address[self._address] -= 1
        if not self._of_address[self._address]:
            del self._of_address[self._address]
        self._keep()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The head of the request is too long.")
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and self._deadline is None:
            # Otherwise it is the rest of a body that was answered before its end.
            self._close_in(MAX_HEAD_SECONDS if self._is_in_head else KEEP_ALIVE_SECONDS)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._keep()
        super().on_headers_complete()

    def _close_in(self, seconds: float) -> None:
        self._deadline = self.loop.call_later(seconds, self.transport.close)

    def _keep(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _close_when_stalled(transport: asyncio.Transport) -> None:
    """Let the system end the connection once the client has taken no byte for so long.

    The system alone sees that a slow client reads: megabytes of an answer wait in its own buffer.
    """
    connection = transport.get_extra_info("socket")
    # Not on every system on which people develop.
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    if option is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
        connection.setsockopt(socket.IPPROTO_TCP, option, round(MAX_STALL_SECONDS * 1000))
