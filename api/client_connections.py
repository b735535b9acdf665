"""Bounds on connections that the server itself doesn't have; answers go out in one piece."""

import asyncio
import fcntl
import resource
import sys
import termios
from collections import Counter
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api.limits.body_budgets import holder_of_address

# From the opening of a connection, or the first byte of a further request, to the end of its head.
MAX_HEAD_SECONDS = 15.0
MAX_HEAD_BYTES = 64 * 1024
# Longer than clients and load balancers keep an idle connection. The side that sends must be the
# one that closes, or a request meets a connection that has just been closed.
KEEP_ALIVE_SECONDS = 75
# For a client that doesn't read its answer; a client that reads, however slowly, keeps its own.
MAX_STALL_SECONDS = 60.0
# Each connection is a descriptor, of which the process has so many.
MAX_DESCRIPTORS = 65_536


def max_connections_of_an_address() -> int:
    """Return half of what the process may have open: no address keeps all others out."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2


def raise_descriptors() -> None:
    """Take as many descriptors as the system gives: it begins with few, for old programs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class JoinedWrites:
    """A transport that sends the head of an answer together with what follows at once.

    The server writes the two one after the other. A process that is killed between them leaves a
    head without a body, after which no proxy can ask another host. Otherwise it is the transport.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held = b""

    def write(self, data: bytes) -> None:
        if self._held:
            data, self._held = self._held + data, b""
            self._transport.write(data)
        else:
            self._held = data
            # The head of a stream, say, doesn't wait for its first event.
            self._loop.call_soon(self._send_held)

    def close(self) -> None:
        self._send_held()
        self._transport.close()

    def _send_held(self) -> None:
        if self._held and not self._transport.is_closing():
            self._transport.write(self._held)
        self._held = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class BoundedConnection(HttpToolsProtocol):
    """Closes a connection on which no request's head arrives in time, or no answer is read.

    Between the head and the answer, the request's own limits count
    (``api.middleware.body_limits``). After the answer, the server bounds the idle time.
    """

    _of_address: ClassVar[Counter[str]] = Counter()
    _head_timer: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None
    _is_in_head = False
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(JoinedWrites(transport, self.loop))  # type: ignore[arg-type]
        self._address = holder_of_address(self.client[0] if self.client else None)
        self._of_address[self._address] += 1
        if self._of_address[self._address] > max_connections_of_an_address():
            transport.abort()
            return
        self._close_in(MAX_HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._of_address[self._address] -= 1
        if not self._of_address[self._address]:
            del self._of_address[self._address]
        self._keep()
        # Also ends the watch for a stall.
        super().connection_lost(exc)
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The head of the request is too long.")
        if self.cycle is None or self.cycle.response_complete:
            # Otherwise it is the rest of a body that was answered before its end.
            self._close_in(MAX_HEAD_SECONDS if self._is_in_head else KEEP_ALIVE_SECONDS)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._keep()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_in_head:
            # It came with the request before it.
            self._close_in(MAX_HEAD_SECONDS)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_for_stall(before=None)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _close_in(self, seconds: float) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(seconds, self.transport.close)

    def _keep(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _watch_for_stall(self, before: int | None) -> None:
        unread = self.transport.get_write_buffer_size() + _bytes_in_system(self.transport)
        if before is not None and unread >= before:
            self.transport.abort()
            return
        self._stall_timer = self.loop.call_later(MAX_STALL_SECONDS, self._watch_for_stall, unread)


def _bytes_in_system(transport: asyncio.Transport) -> int:
    """Return how much we gave the system that the client has not taken yet: up to megabytes."""
    connection = transport.get_extra_info("socket")
    answer = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4))
    return int.from_bytes(answer, sys.byteorder)
