"""Tests which connections the API closes, and which stay open.

The API closes a connection if the client doesn't finish its request, or doesn't read the response.
Connections of slow readers and of silent event streams stay open.
"""

import socket
import time
from collections.abc import Callable, Iterator

import pytest

from devstack.harness.running import Running
from devstack.harness.stack import Owner, Stack
from tests.support.lists.subscribers import new_list
from tests.support.security.attackers import trickling

# How long a test waits for the API to close a connection. A test waits longer than the timeouts of
# the API, because a busy machine may close a connection late.
CLOSED_WITHIN_SECONDS = 20.0
# A number of seconds that exceeds two timeouts of the fixture `impatient_api`: for receiving a
# request head, and for sending a response.
LONG_SECONDS = 4.0
HEAD = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
# The number of responses that together don't fit into the operating system's socket buffers.
LARGE_RESPONSE_COUNT = 40
REQUESTS_FOR_LARGE_RESPONSES = (
    b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * LARGE_RESPONSE_COUNT
)


@pytest.fixture
def open_connection(impatient_api: tuple[Stack, Running]) -> Iterator[Callable[..., socket.socket]]:
    """A function that connects to the API of the fixture `impatient_api` from the given address."""
    connections: list[socket.socket] = []

    def connect_to_api(address: str = "127.0.0.1") -> socket.socket:
        connection = socket.socket()
        connections.append(connection)
        connection.bind((address, 0))
        connection.settimeout(CLOSED_WITHIN_SECONDS)
        connection.connect(("127.0.0.1", impatient_api[0].api_port))
        return connection

    yield connect_to_api
    for each in connections:
        each.close()


def read_until_closed(connection: socket.socket) -> bytes:
    """Return all bytes that arrive until the connection is closed."""
    received = b""
    try:
        while piece := connection.recv(65536):
            received += piece
    except ConnectionResetError:
        pass
    return received


def test_silent_connection_is_closed(
    open_connection: Callable[..., socket.socket],
) -> None:
    assert read_until_closed(open_connection()) == b""


def test_request_head_that_trickles_is_closed_after_timeout(
    open_connection: Callable[..., socket.socket],
) -> None:
    connection = open_connection()
    connection.sendall(HEAD)
    with trickling(connection, b"X-More: 1\r\n"):
        assert read_until_closed(connection) == b""


def test_second_request_head_on_a_connection_is_closed_after_timeout(
    open_connection: Callable[..., socket.socket],
) -> None:
    connection = open_connection()
    connection.sendall(HEAD + b"\r\n" + HEAD)
    assert read_until_closed(connection).count(b"HTTP/1.1 200") == 1


def test_endless_request_head_is_rejected(open_connection: Callable[..., socket.socket]) -> None:
    connection = open_connection()
    try:
        for number in range(200):
            connection.sendall(b"X-%d: %b\r\n" % (number, b"x" * 1000) if number else HEAD)
    except OSError:
        # The API closed the connection while the test was sending.
        pass
    assert read_until_closed(connection)[:12] in (b"HTTP/1.1 400", b"")


def test_connections_from_one_address_do_not_keep_other_addresses_out(
    open_connection: Callable[..., socket.socket],
) -> None:
    connections = [open_connection("127.0.0.77") for _ in range(260)]
    other_connection = open_connection("127.0.0.78")
    other_connection.sendall(HEAD + b"\r\n")
    assert other_connection.recv(65536).startswith(b"HTTP/1.1 200")
    # The API immediately closes each connection that exceeds the limit per IP address. Earlier
    # connections from the same IP address stay open.
    assert connections[-1].recv(1) == b""
    connections[0].sendall(HEAD + b"\r\n")
    assert connections[0].recv(65536).startswith(b"HTTP/1.1 200")


@pytest.mark.tier("timing")
def test_idle_connection_serves_later_request(
    open_connection: Callable[..., socket.socket],
) -> None:
    connection = open_connection()
    for _ in range(2):
        connection.sendall(HEAD + b"\r\n")
        while b'"ok"' not in connection.recv(65536):
            pass
        time.sleep(LONG_SECONDS)


@pytest.mark.tier("timing")
def test_client_that_does_not_read_its_response_is_disconnected(
    open_connection: Callable[..., socket.socket],
) -> None:
    connection = open_connection()
    connection.sendall(REQUESTS_FOR_LARGE_RESPONSES)
    time.sleep(2 * LONG_SECONDS)
    assert read_until_closed(connection).count(b"HTTP/1.1 200") < LARGE_RESPONSE_COUNT


@pytest.mark.tier("timing")
def test_client_that_reads_slowly_receives_the_complete_response(
    open_connection: Callable[..., socket.socket],
) -> None:
    connection = open_connection()
    connection.sendall(REQUESTS_FOR_LARGE_RESPONSES)
    received = b""
    ends_at = time.monotonic() + 2 * LONG_SECONDS
    while time.monotonic() < ends_at:
        received += connection.recv(32 * 1024)
        time.sleep(0.1)
    assert received.count(b"HTTP/1.1 200") < LARGE_RESPONSE_COUNT
    while received.count(b"HTTP/1.1 200") < LARGE_RESPONSE_COUNT:
        piece = connection.recv(65536)
        assert piece
        received += piece


@pytest.mark.tier("timing")
def test_event_stream_stays_open_without_events(
    impatient_api: tuple[Stack, Running],
    impatient_owner: Owner,
    open_connection: Callable[..., socket.socket],
) -> None:
    stack = impatient_api[0]
    with stack.client(impatient_owner.key) as client:
        list_id = new_list(client)["id"]
        # The event stream of the import job stays silent, because this stack has no worker that
        # could start the job.
        reply = client.post(f"/lists/{list_id}/imports", content=b"email\na@example.com\n")
        job_id = reply.json()["data"]["id"]
        connection = open_connection()
        connection.sendall(
            f"GET /jobs/{job_id}/events HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: Bearer {impatient_owner.key}\r\n\r\n".encode()
        )
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        time.sleep(LONG_SECONDS)
        assert client.delete(f"/jobs/{job_id}").status_code == 200
    received = b""
    while b"cancelled" not in received:
        piece = connection.recv(65536)
        assert piece
        received += piece
