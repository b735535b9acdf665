"""HTTP requests over a plain socket, for tests that need more control than an HTTP client gives."""

import select
import socket
from urllib.parse import urlsplit

from devstack.harness.stack import Stack


class RawRequest:
    """An HTTP request that a test sends piece by piece over a plain socket."""

    def __init__(self, stack: Stack, *head: str) -> None:
        address = urlsplit(stack.api_url)
        assert address.hostname
        assert address.port
        self.socket = socket.create_connection((address.hostname, address.port), timeout=30)
        self.sent = 0
        lines = [*head, f"Host: {address.netloc}", "", ""]
        self.socket.sendall("\r\n".join(lines).encode())

    def __enter__(self) -> "RawRequest":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, content: bytes) -> None:
        self.socket.sendall(content)
        self.sent += len(content)

    def chunk(self, content: bytes) -> None:
        self.send(b"%x\r\n%b\r\n" % (len(content), content))

    def has_answered(self) -> bool:
        return bool(select.select([self.socket], [], [], 0)[0])
