"""Tests of the connections between clients and the API server."""

import socket

import pytest

from devstack import LOOPBACK
from devstack.harness.stack import Stack

REQUEST_COUNT = 50
HEALTH_REQUEST = b"GET /healthz HTTP/1.1\r\nHost: " + LOOPBACK.encode() + b"\r\n\r\n"


def test_response_body_arrives_completely(stack: Stack) -> None:
    """A response with a missing body would make callers behind a proxy wait for the body."""
    with socket.create_connection((LOOPBACK, stack.api_port), timeout=30) as connection:
        for _ in range(REQUEST_COUNT):
            connection.sendall(HEALTH_REQUEST)
            head, separator, body = connection.recv(65_536).partition(b"\r\n\r\n")
            [length] = [
                int(line.partition(b":")[2])
                for line in head.lower().split(b"\r\n")
                if line.startswith(b"content-length:")
            ]
            assert separator
            assert len(body) == length > 0


@pytest.mark.tier("processes")
def test_api_server_exits_if_its_port_is_in_use(stack: Stack) -> None:
    """The server must exit even if its background loops are still connecting to Redis."""
    for _ in range(3):
        second_server = stack.start("second", "serve", "--port", str(stack.api_port))
        assert second_server.process.wait(60) != 0
