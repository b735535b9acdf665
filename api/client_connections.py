"""Limits client connections, for example by a time limit for headers, which Uvicorn lacks."""

import asyncio
import fcntl
import resource
import sys
import termios
import time
from collections import Counter
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api.limits.body_budgets import name_address_holder
from api.limits.places import RECEIVED_AT_KEY

# The maximum time until all headers of a request have arrived. For the first request on a
# connection, the time limit for the headers starts when the connection opens. For later requests on
# a connection, the time limit for the headers starts with the first byte of the request.
MAX_HEAD_SECONDS = 15.0
MAX_HEAD_BYTES = 64 * 1024
# The maximum time for which an idle client connection stays open. ``KEEP_ALIVE_SECONDS`` exceeds
# the idle timeouts of clients, so that clients close idle connections first.
KEEP_ALIVE_SECONDS = 75
# The server aborts a connection if the client reads no data for this long. A client that reads
# slowly keeps its connection.
MAX_STALL_SECONDS = 60.0
# The maximum number of open files and sockets, including client connections.
MAX_FILE_DESCRIPTORS = 65_536


def max_connections_per_address() -> int:
    """Return half of the file descriptors, so that other IP addresses can still connect."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2


def raise_file_descriptor_limit() -> None:
    """Raise the soft limit, because each connection uses a file descriptor."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft_limit = MAX_FILE_DESCRIPTORS
    if hard_limit != resource.RLIM_INFINITY:
        soft_limit = min(hard_limit, MAX_FILE_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft_limit, hard_limit))


class JoinedWrites:
    """Sends the headers of a response together with the start of the body.

    If Uvicorn were killed between writing the headers and the body, the client would get only the
    headers. A proxy can't retry a request on another host after it has forwarded headers.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._unsent = b""

    def write(self, data: bytes) -> None:
        if self._unsent:
            joined = self._unsent + data
            self._unsent = b""
            self._transport.write(joined)
        else:
            self._unsent = data
            # Send the headers without waiting for the body. In an event stream, for example, the
            # first event can follow long after the headers.
            self._loop.call_soon(self._send_unsent)

    def close(self) -> None:
        self._send_unsent()
        self._transport.close()

    def _send_unsent(self) -> None:
        if self._unsent and not self._transport.is_closing():
            self._transport.write(self._unsent)
        self._unsent = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class BoundedConnection(HttpToolsProtocol):
    """A connection that is closed if the client sends headers too slowly or stops reading.

    ``api.middleware.deadlines`` limits the time until the response starts. Uvicorn limits how long
    a connection may be idle after a response.
    """

    _connections_by_address: ClassVar[Counter[str]] = Counter()
    _head_timer: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None
    _is_in_head = False
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(JoinedWrites(transport, self.loop))  # type: ignore[arg-type]
        self._address = name_address_holder(self.client[0] if self.client else None)
        self._connections_by_address[self._address] += 1
        if self._connections_by_address[self._address] > max_connections_per_address():
            transport.abort()
            return
        self._close_in(MAX_HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections_by_address[self._address] -= 1
        if not self._connections_by_address[self._address]:
            del self._connections_by_address[self._address]
        self._cancel_head_timer()
        super().connection_lost(exc)
        # Cancel the timer that detects whether the client has stopped reading.
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The request's headers are too long.")
        if self.cycle is None or self.cycle.response_complete:
            # Don't start the timer that closes the connection while a response is being sent. Data
            # that arrives during a response can belong to the body of the answered request.
            self._close_in(MAX_HEAD_SECONDS if self._is_in_head else KEEP_ALIVE_SECONDS)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head = True
        self._head_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        # The parser removes blanks and tabs only before the value. According to RFC 9110, section
        # 5.5, blanks and tabs after the value don't belong to the value either.
        super().on_header(name, value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._cancel_head_timer()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self.scope[RECEIVED_AT_KEY] = time.monotonic()  # type: ignore[literal-required]
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_in_head:
            # The client has sent the beginning of the next request's headers during the response,
            # so start the timer for these headers now.
            self._close_in(MAX_HEAD_SECONDS)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_for_stall(unread_before=None)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _close_in(self, seconds: float) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(seconds, self.transport.close)

    def _cancel_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _watch_for_stall(self, unread_before: int | None) -> None:
        unread = self.transport.get_write_buffer_size() + _count_kernel_bytes(self.transport)
        if unread_before is not None and unread >= unread_before:
            self.transport.abort()
            return
        self._stall_timer = self.loop.call_later(MAX_STALL_SECONDS, self._watch_for_stall, unread)


def _count_kernel_bytes(transport: asyncio.Transport) -> int:
    """Return the number of bytes in the kernel's send buffer of a connection."""
    connection = transport.get_extra_info("socket")
    size = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4))
    return int.from_bytes(size, sys.byteorder)
