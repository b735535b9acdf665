"""Connections that are silent, half-said or not read are closed; slow and waiting ones live."""

import socket
import time
from collections.abc import Callable, Iterator

import pytest

from devstack.harness.running import Running
from devstack.harness.stack import Owner, Stack
from tests.support.lists.subscribers import new_list
from tests.support.security.attackers import trickling

# Of the impatient API, with room for a busy machine.
CLOSED_WITHIN_SECONDS = 20.0
# Longer than the impatient API waits for a head or for a reader.
LONG_SECONDS = 4.0
HEAD = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
# More than the system keeps for a client that doesn't read.
ANSWERS = 40
LARGE_ANSWERS = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * ANSWERS


@pytest.fixture
def open_connection(impatient_api: tuple[Stack, Running]) -> Iterator[Callable[..., socket.socket]]:
    """A function that connects to the API of the fixture `impatient_api` from the given address."""
    made: list[socket.socket] = []

    def connect_to_api(address: str = "127.0.0.1") -> socket.socket:
        made.append(socket.socket())
        made[-1].bind((address, 0))
        made[-1].settimeout(CLOSED_WITHIN_SECONDS)
        made[-1].connect(("127.0.0.1", impatient_api[0].api_port))
        return made[-1]

    yield connect_to_api
    for each in made:
        each.close()


def rest(connection: socket.socket) -> bytes:
    """What comes until the connection is closed."""
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
    assert rest(open_connection()) == b""


def test_request_head_that_trickles_is_closed_after_timeout(
    open_connection: Callable[..., socket.socket],
) -> None:
    connection = open_connection()
    connection.sendall(HEAD)
    with trickling(connection, b"X-More: 1\r\n"):
        assert rest(connection) == b""


def test_second_request_head_on_a_connection_is_closed_after_timeout(
    open_connection: Callable[..., socket.socket],
) -> None:
    connection = open_connection()
    connection.sendall(HEAD + b"\r\n" + HEAD)
    assert rest(connection).count(b"HTTP/1.1 200") == 1


def test_endless_request_head_is_rejected(open_connection: Callable[..., socket.socket]) -> None:
    connection = open_connection()
    try:
        for number in range(200):
            connection.sendall(b"X-%d: %b\r\n" % (number, b"x" * 1000) if number else HEAD)
    except OSError:
        # It was closed while more was under way.
        pass
    assert rest(connection)[:12] in (b"HTTP/1.1 400", b"")


def test_connections_from_one_address_do_not_keep_other_addresses_out(
    open_connection: Callable[..., socket.socket],
) -> None:
    held = [open_connection("127.0.0.77") for _ in range(260)]
    other = open_connection("127.0.0.78")
    other.sendall(HEAD + b"\r\n")
    assert other.recv(65536).startswith(b"HTTP/1.1 200")
    # The first ones are closed later, for their silence.
    assert held[-1].recv(1) == b""
    held[0].sendall(HEAD + b"\r\n")
    assert held[0].recv(65536).startswith(b"HTTP/1.1 200")


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
    connection.sendall(LARGE_ANSWERS)
    time.sleep(2 * LONG_SECONDS)
    assert rest(connection).count(b"HTTP/1.1 200") < ANSWERS


@pytest.mark.tier("timing")
def test_client_that_reads_slowly_receives_the_complete_response(
    open_connection: Callable[..., socket.socket],
) -> None:
    connection = open_connection()
    connection.sendall(LARGE_ANSWERS)
    received, until = b"", time.monotonic() + 2 * LONG_SECONDS
    while time.monotonic() < until:
        received += connection.recv(32 * 1024)
        time.sleep(0.1)
    assert received.count(b"HTTP/1.1 200") < ANSWERS
    while received.count(b"HTTP/1.1 200") < ANSWERS:
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
        # No worker of this stack imports.
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
