"""Tests how webhooks are sent to receivers that use HTTP and TLS in unusual or wrong ways."""

import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from devstack import LOOPBACK
from integrations import http_client
from integrations.receivers.client import Outcome, ReceiverClient, SignedPost
from tests.support.http.certificates import self_signed
from tests.support.http.tls_front import tls_front
from tests.support.http.webhook_receiver import running_receiver

LOCAL_NETWORK = ipaddress.ip_network("127.0.0.0/8")
OK_RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LARGE_BODY = b"x" * 20_000_000
EARLY_HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
CERTIFICATE_ERROR = "The connection failed: the server's certificate is not valid."


@dataclass
class RawReceiver:
    """A webhook receiver that records all received bytes.

    Attributes:
        requests: for each connection, the list of received pieces.
    """

    url: str = ""
    requests: list[list[bytes]] = field(default_factory=list)


@contextmanager
def raw_receiver(answer: Callable[[socket.socket, list[bytes]], None]) -> Iterator[RawReceiver]:
    receiver = RawReceiver()

    def serve_connection(connection: socket.socket) -> None:
        requests: list[bytes] = []
        receiver.requests.append(requests)
        with connection, suppress(OSError):
            answer(connection, requests)

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve_connection, args=(connection,), daemon=True).start()

    with socket.create_server((LOOPBACK, 0)) as listener:
        receiver.url = f"http://{LOOPBACK}:{listener.getsockname()[1]}/hook"
        threading.Thread(target=serve, daemon=True).start()
        yield receiver


def answer_each_read(answer: bytes) -> Callable[[socket.socket, list[bytes]], None]:
    def serve(connection: socket.socket, requests: list[bytes]) -> None:
        while data := connection.recv(65_536):
            requests.append(data)
            connection.sendall(answer)

    return serve


def answer_once(answer: bytes) -> Callable[[socket.socket, list[bytes]], None]:
    def serve(connection: socket.socket, requests: list[bytes]) -> None:
        requests.append(connection.recv(65_536))
        connection.sendall(answer)

    return serve


def post_webhooks(url: str, *, count: int = 1, body: bytes = b"{}") -> list[Outcome]:
    client = ReceiverClient([LOCAL_NETWORK], lambda host, port: [LOOPBACK])
    return client.post_each(url, [SignedPost(body, {"webhook-id": "evt_1"})] * count)


def test_webhook_request_contains_only_the_documented_headers() -> None:
    with running_receiver() as receiver:
        post_webhooks(receiver.url.replace(LOOPBACK, "receiver.example"))
    port = receiver.url.split(":")[2].split("/")[0]
    assert receiver.hooks[0].headers == {
        "host": f"receiver.example:{port}",
        "accept": "*/*",
        "accept-encoding": "identity",
        "content-length": "2",
        "webhook-id": "evt_1",
    }


def test_webhook_certificate_is_verified_for_the_host_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    certificate = self_signed(tmp_path / "localhost.pem")
    with (
        running_receiver() as receiver,
        tls_front(certificate, int(receiver.url.split(":")[2][:-5])) as port,
    ):

        def call(host: str) -> Outcome:
            return post_webhooks(f"https://{host}:{port}/hook")[0]

        assert call("localhost").error == CERTIFICATE_ERROR
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        http_client.load_authorities.cache_clear()
        try:
            assert call("localhost").status == 200
            for other_host in ("receiver.example", LOOPBACK):
                assert call(other_host).error == CERTIFICATE_ERROR
        finally:
            http_client.load_authorities.cache_clear()
    assert len(receiver.hooks) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-receiver\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 200_000 + b"\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\nConnection: upgrade\r\n\r\n",
    ],
    ids=["nothing", "not HTTP", "short", "two lengths", "bad chunk", "long head", "upgrade"],
)
def test_malformed_webhook_response_is_a_failure(answer: bytes) -> None:
    with raw_receiver(answer_once(answer)) as receiver:
        [outcome] = post_webhooks(receiver.url)
    assert outcome.status is None
    assert outcome.error == "No response was received: the response is not valid HTTP."


def test_webhook_fails_after_ten_informational_responses() -> None:
    with raw_receiver(answer_each_read(EARLY_HINTS * 11 + OK_RESPONSE)) as receiver:
        outcomes = post_webhooks(receiver.url, count=2)
    [outcome] = outcomes
    assert (outcome.status, outcome.is_success) == (None, False)
    assert outcome.error == (
        "No response was received: more than 10 informational responses preceded it."
    )


@pytest.mark.parametrize(
    ("answer", "connections"),
    [
        (OK_RESPONSE, 1),
        (EARLY_HINTS * 10 + OK_RESPONSE, 1),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 1),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok", 3),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 3),
        # The receiver sends two responses to one webhook. The client must not treat the second
        # response as the response to the next webhook.
        (OK_RESPONSE + OK_RESPONSE, 3),
    ],
    ids=["plain", "early hints", "chunked", "close", "HTTP/1.0", "two responses"],
)
def test_webhook_connection_is_reused_only_if_the_response_allows_it(
    answer: bytes, connections: int
) -> None:
    with raw_receiver(answer_each_read(answer)) as receiver:
        outcomes = post_webhooks(receiver.url, count=3)
    assert [(each.status, each.body) for each in outcomes] == [(200, b"ok")] * 3
    assert len(receiver.requests) == connections
    assert sum(map(len, receiver.requests)) == 3


def test_webhook_is_sent_over_a_new_connection_if_the_receiver_closed_the_idle_one() -> None:
    def pause_between_posts() -> Iterator[SignedPost]:
        for number in range(3):
            time.sleep(0.2)
            yield SignedPost(b"{}", {"webhook-id": f"evt_{number}"})

    with raw_receiver(answer_once(OK_RESPONSE)) as receiver:
        client = ReceiverClient([LOCAL_NETWORK])
        outcomes = client.post_each(receiver.url, pause_between_posts())
    assert [each.status for each in outcomes] == [200] * 3
    assert len(receiver.requests) == 3


def test_webhook_response_without_length_ends_with_the_connection() -> None:
    with raw_receiver(answer_once(b"HTTP/1.1 200 OK\r\n\r\nok")) as receiver:
        [outcome] = post_webhooks(receiver.url)
    assert (outcome.status, outcome.body) == (200, b"ok")


def test_webhook_response_before_the_end_of_the_request_is_used() -> None:
    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with raw_receiver(answer_once(refusal)) as receiver:
        [outcome] = post_webhooks(receiver.url, body=LARGE_BODY)
    assert outcome.status == 413


def test_webhook_to_slowly_reading_receiver_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("integrations.receivers.client.MAX_CALL_SECONDS", 1.0)

    def read_slowly(connection: socket.socket, _: list[bytes]) -> None:
        while connection.recv(65_536):
            time.sleep(0.05)

    with raw_receiver(read_slowly) as receiver:
        start = time.monotonic()
        [outcome] = post_webhooks(receiver.url, body=LARGE_BODY)
        assert time.monotonic() - start < 5
    assert outcome.error == "No response was received: the time limit is over."
