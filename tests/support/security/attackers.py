"""Connections of one address that hold what they can get, written by hand."""

import re
import secrets
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Attacker:
    """Sends heads and parts of bodies, as one address behind the proxy that the API trusts."""

    def __init__(self, port: int, address: str) -> None:
        self._port = port
        self._address = address
        self._open: list[socket.socket] = []

    def begins(
        self, operation: str, *, declares: int, sends: int = 0, key: str | None = None
    ) -> socket.socket:
        """A request whose body never ends."""
        lines = [
            f"{operation} HTTP/1.1",
            "Host: x",
            f"X-Forwarded-For: {self._address}",
            "Content-Type: application/json",
            f"Content-Length: {declares}",
        ]
        if key:
            lines.append(f"Authorization: Bearer {key}")
        connection = socket.create_connection(("127.0.0.1", self._port), timeout=30)
        self._open.append(connection)
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + b" " * sends)
        return connection

    def close(self) -> None:
        for connection in self._open:
            connection.close()


def new_address() -> str:
    """In a network of its own: addresses of one network are one caller."""
    return "2001:db8:" + ":".join(secrets.token_hex(2) for _ in range(6))


@contextmanager
def attacking(port: int, address: str) -> Iterator[Attacker]:
    attacker = Attacker(port, address)
    try:
        yield attacker
    finally:
        attacker.close()


@contextmanager
def trickling(connection: socket.socket, drip: bytes = b"x") -> Iterator[None]:
    ended = threading.Event()

    def trickle() -> None:
        # Who has been answered may have been hung up on.
        with suppress(OSError):
            while not ended.wait(0.2):
                connection.sendall(drip)

    sender = threading.Thread(target=trickle)
    sender.start()
    try:
        yield
    finally:
        ended.set()
        sender.join()


def first_answer(connections: list[socket.socket]) -> tuple[int, str]:
    """Of the request that is answered before the others: they needn't be served in their order."""
    [answered, *_], _, _ = select.select(connections, [], [], 30)
    return answer_of(answered)


def answer_of(connection: socket.socket) -> tuple[int, str]:
    """The status, and the code of an error."""
    received = b""
    while b"\r\n\r\n" not in received or (b"problem+json" in received and b"}" not in received):
        piece = connection.recv(65536)
        assert piece, "the connection was closed without an answer"
        received += piece
    status = re.match(rb"HTTP/1.1 (\d{3})", received)
    assert status is not None
    code = re.search(rb'"code":"([^"]*)"', received)
    return int(status[1]), code[1].decode() if code else ""
