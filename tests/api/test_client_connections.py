import socket

import pytest

from devstack import LOOPBACK
from devstack.harness.stack import Stack

TIMES = 50
REQUEST = b"GET /healthz HTTP/1.1\r\nHost: " + LOOPBACK.encode() + b"\r\n\r\n"


def test_response_body_arrives_completely(stack: Stack) -> None:
    """A process that was killed after the head left callers behind a proxy without the body."""
    with socket.create_connection((LOOPBACK, stack.api_port), timeout=30) as caller:
        for _ in range(TIMES):
            caller.sendall(REQUEST)
            head, end, body = caller.recv(65_536).partition(b"\r\n\r\n")
            [length] = [
                int(line.partition(b":")[2])
                for line in head.lower().split(b"\r\n")
                if line.startswith(b"content-length:")
            ]
            assert end
            assert len(body) == length > 0


@pytest.mark.tier("processes")
def test_api_server_exits_if_its_port_is_in_use(stack: Stack) -> None:
    """Also while it connects to Redis, when its loops are told to end."""
    for _ in range(3):
        second = stack.start("second", "serve", "--port", str(stack.api_port))
        assert second.process.wait(60) != 0
