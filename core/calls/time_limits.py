"""Sockets that know how long a call may take as a whole.

Clients bound each wait for a server, but not the sum of the waits: an answer that trickles byte by
byte never ends. A socket that is made here ends it at the deadline of its thread's call.
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
    """Waits of this thread's limited sockets raise ``TimeoutError`` once this time is over.

    When one limit is inside another, the earlier counts.
    """
    outer: float | None = getattr(_call, "deadline", None)
    deadline = time.monotonic() + seconds
    _call.deadline = deadline if outer is None else min(deadline, outer)
    try:
        yield
    finally:
        _call.deadline = outer


class _Limited:
    """Mixed into a socket's class: no wait lasts longer than what is left of the call's time."""

    def recv_into(self: Any, *arguments: Any, **options: Any) -> int:
        with _limited(self, self.gettimeout()):
            count: int = super().recv_into(*arguments, **options)  # type: ignore[misc]
            return count

    def sendall(self: Any, *arguments: Any, **options: Any) -> None:
        # The timeout of this method is for all the data.
        with _limited(self, None):
            super().sendall(*arguments, **options)  # type: ignore[misc]


@contextmanager
def _limited(connected: socket.socket, seconds: float | None) -> Iterator[None]:
    deadline: float | None = getattr(_call, "deadline", None)
    if deadline is None:
        yield
        return
    usual = connected.gettimeout()
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the call's time is over")
    connected.settimeout(left if seconds is None else min(left, seconds))
    try:
        yield
    finally:
        connected.settimeout(usual)


class _PlainSocket(_Limited, socket.socket):
    pass


class _TlsSocket(_Limited, ssl.SSLSocket):
    pass


def limited(connected: socket.socket) -> socket.socket:
    """Convert a connected socket into one that respects ``time_limit``.

    The function closes the passed socket object, and keeps its connection open.
    """
    usual = connected.gettimeout()
    made = _PlainSocket(fileno=connected.detach())
    made.settimeout(usual)
    return made


def tls_context() -> ssl.SSLContext:
    """The usual context for a client, whose connections are limited too."""
    context = ssl.create_default_context()
    context.sslsocket_class = _TlsSocket
    return context
