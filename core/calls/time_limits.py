"""Sockets that respect a time limit for a whole call to a server.

Client libraries apply their timeouts to each individual read or write, not to the whole call.
Without ``time_limit``, a server that sends one byte at a time could block a caller forever.
"""

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_call = threading.local()


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Limit the total time of the socket calls that a thread makes in the ``with`` block.

    After the time limit has expired, socket calls of the thread raise ``TimeoutError``. When
    ``time_limit`` blocks are nested, the earliest deadline applies.
    """
    outer_deadline: float | None = getattr(_call, "deadline", None)
    deadline = time.monotonic() + seconds
    _call.deadline = deadline if outer_deadline is None else min(deadline, outer_deadline)
    try:
        yield
    finally:
        _call.deadline = outer_deadline


class _DeadlineMixin:
    def recv_into(self: Any, *arguments: Any, **options: Any) -> int:
        with _shortened_timeout(self, self.gettimeout()):
            count: int = super().recv_into(*arguments, **options)  # type: ignore[misc]
            return count

    def sendall(self: Any, *arguments: Any, **options: Any) -> None:
        # Ignore the socket's timeout, because ``sendall`` would apply it to the whole transfer.
        with _shortened_timeout(self, None):
            super().sendall(*arguments, **options)  # type: ignore[misc]


@contextmanager
def _shortened_timeout(connection: socket.socket, seconds: float | None) -> Iterator[None]:
    deadline: float | None = getattr(_call, "deadline", None)
    if deadline is None:
        yield
        return
    timeout = connection.gettimeout()
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError("the call's time is over")
    connection.settimeout(remaining if seconds is None else min(remaining, seconds))
    try:
        yield
    finally:
        connection.settimeout(timeout)


class _PlainSocket(_DeadlineMixin, socket.socket):
    pass


class _TlsSocket(_DeadlineMixin, ssl.SSLSocket):
    pass


def limit_socket(connection: socket.socket) -> socket.socket:
    """Convert a connected socket into a socket that respects ``time_limit``.

    After the conversion, the passed socket object can't be used anymore.
    """
    timeout = connection.gettimeout()
    limited_socket = _PlainSocket(fileno=connection.detach())
    limited_socket.settimeout(timeout)
    return limited_socket


def create_tls_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.sslsocket_class = _TlsSocket
    return context
