"""Simulates attackers who keep connections open with unfinished requests."""

import re
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Attacker:
    """Sends unfinished requests, all with the same IP address in the header `X-Forwarded-For`."""

    def __init__(self, port: int, address: str) -> None:
        self._port = port
        self._address = address
        self._open: list[socket.socket] = []

    def begin_request(
        self,
        operation: str,
        *,
        declares: int,
        sends: int = 0,
        key: str | None = None,
        cookie: str | None = None,
    ) -> socket.socket:
        """Send the headers of a request, but only the beginning of its body.

        ``declares``: the Content-Length of the body. ``sends``: how many bytes of the body to send.
        """
        lines = [
            f"{operation} HTTP/1.1",
            "Host: x",
            f"X-Forwarded-For: {self._address}",
            "Content-Type: application/json",
            f"Content-Length: {declares}",
        ]
        if key:
            lines.append(f"Authorization: Bearer {key}")
        if cookie:
            lines.append(f"Cookie: {cookie}")
        connection = socket.create_connection(("127.0.0.1", self._port), timeout=30)
        self._open.append(connection)
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + b" " * sends)
        return connection

    def close(self) -> None:
        for connection in self._open:
            connection.close()


def new_address() -> str:
    """Return a random IPv6 address.

    Each returned address is in a different network, because the API counts all addresses of a
    network as one caller.
    """
    return "2001:db8:" + ":".join(secrets.token_hex(2) for _ in range(6))


@contextmanager
def running_attacker(port: int, address: str) -> Iterator[Attacker]:
    attacker = Attacker(port, address)
    try:
        yield attacker
    finally:
        attacker.close()


@contextmanager
def trickling(connection: socket.socket, drip: bytes = b"x") -> Iterator[None]:
    """Send ``drip`` on the connection five times per second until the block ends."""
    stop = threading.Event()

    def trickle() -> None:
        # Sending the rest of the request may fail, because the API may close the connection first.
        with suppress(OSError):
            while not stop.wait(0.2):
                connection.sendall(drip)

    sender = threading.Thread(target=trickle)
    sender.start()
    try:
        yield
    finally:
        stop.set()
        sender.join()


def read_answer(connection: socket.socket) -> tuple[int, str]:
    """Read a response, and return its status and error code."""
    received = b""
    while b"\r\n\r\n" not in received or (b"problem+json" in received and b"}" not in received):
        piece = connection.recv(65536)
        assert piece, "the connection was closed without an answer"
        received += piece
    status = re.match(rb"HTTP/1.1 (\d{3})", received)
    assert status is not None
    code = re.search(rb'"code":"([^"]*)"', received)
    return int(status[1]), code[1].decode() if code else ""
