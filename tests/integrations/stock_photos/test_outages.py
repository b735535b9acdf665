import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from pydantic import SecretStr

from core.errors import DomainError, Kind
from integrations.stock_photos import exchange
from integrations.stock_photos.port import Photo, PhotoProviderName, Quota
from integrations.stock_photos.unsplash import Unsplash
from tests.support.http.servers import QuietHandler, http_server, running_server

# The tests in this module wait for timeouts.
pytestmark = pytest.mark.slow


@dataclass
class ScriptedReply:
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    pieces: tuple[bytes, ...] = (b"{}",)
    pause: float = 0.0
    requested_paths: list[str] = field(default_factory=list)


class Provider:
    def __init__(self) -> None:
        self.script = ScriptedReply()
        provider = self

        class Handler(QuietHandler):
            def do_GET(self) -> None:
                reply = provider.script
                reply.requested_paths.append(self.path)
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                for piece in reply.pieces:
                    time.sleep(reply.pause)
                    try:
                        self.wfile.write(piece)
                    except OSError:
                        return

        self.server = http_server(Handler)
        self.reported_quotas: list[tuple[Quota, ...]] = []
        self.adapter = Unsplash(
            f"http://127.0.0.1:{self.server.server_port}",
            SecretStr("key"),
            lambda _, quotas: self.reported_quotas.append(quotas),
        )

    def search(self) -> str:
        return self.adapter.search("bread", page=1, limit=10)

    def error(self) -> DomainError:
        with pytest.raises(DomainError) as raised:
            self.search()
        return raised.value


@pytest.fixture
def photo_provider() -> Iterator[Provider]:
    running_provider = Provider()
    with running_server(running_provider.server):
        yield running_provider


EXHAUSTED_QUOTA = {"X-Ratelimit-Limit": "50", "X-Ratelimit-Remaining": "0"}


@pytest.mark.parametrize(
    ("header", "min_seconds", "max_seconds"),
    [
        ("7", 7, 7),
        ("0", 1, 1),
        ("999999999", 86_400, 86_400),
        (None, 60, 60),
        ("soon", 60, 60),
        ("-5", 60, 60),
        ("١٢", 60, 60),
        pytest.param("in a minute", 1, 60, id="date"),
        ("Mon, 01 Jan 2024 00:00:00 GMT", 1, 1),
    ],
)
def test_exhausted_photo_quota_returns_bounded_retry_after(
    photo_provider: Provider, header: str | None, min_seconds: int, max_seconds: int
) -> None:
    # Compute the date here instead of in the test's parameters, because pytest-xdist requires that
    # all its processes collect the same parameters.
    if header == "in a minute":
        header = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    headers = {} if header is None else {"Retry-After": header.encode().decode("latin-1")}
    photo_provider.script = ScriptedReply(429, headers)
    error = photo_provider.error()
    assert (error.kind, error.code) == (Kind.UNAVAILABLE, "stockphoto.limit_reached")
    assert error.retry_after is not None
    assert min_seconds <= error.retry_after <= max_seconds


@pytest.mark.parametrize(
    ("status", "headers", "code"),
    [
        (403, EXHAUSTED_QUOTA, "stockphoto.limit_reached"),
        (403, {**EXHAUSTED_QUOTA, "X-Ratelimit-Remaining": "9"}, "stockphoto.failed"),
        (403, {}, "stockphoto.failed"),
        (401, {}, "stockphoto.failed"),
        (400, {}, "stockphoto.refused"),
        (422, {}, "stockphoto.refused"),
        (404, {}, "stockphoto.not_found"),
        (302, {"Location": "/elsewhere"}, "stockphoto.failed"),
        (204, {}, "stockphoto.failed"),
        (503, {}, "stockphoto.failed"),
    ],
)
def test_photo_provider_status_is_mapped_to_a_specific_error(
    photo_provider: Provider, status: int, headers: dict[str, str], code: str
) -> None:
    photo_provider.script = ScriptedReply(status, headers)
    assert photo_provider.error().code == code
    assert len(photo_provider.script.requested_paths) == 1


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"7", b'{"a": ', b"\xff\xfe", b"null"])
def test_photo_provider_reply_that_is_no_json_object_is_a_failure(
    photo_provider: Provider, body: bytes
) -> None:
    photo_provider.script = ScriptedReply(pieces=(body,))
    assert photo_provider.error().code == "stockphoto.failed"


@pytest.mark.parametrize("url", ["", "ftp://x/y", "javascript:alert(1)", "/x", "https://", "x y"])
def test_photo_download_without_web_address_is_a_failure(
    photo_provider: Provider, url: str
) -> None:
    photo_provider.script = ScriptedReply(pieces=(f'{{"url": "{url}"}}'.encode(),))
    with pytest.raises(DomainError) as raised:
        photo_provider.adapter.download_url(Photo("a"))
    assert raised.value.code == "stockphoto.failed"


def test_photo_download_request_contains_the_photos_tracking_mark(
    photo_provider: Provider,
) -> None:
    photo_provider.script = ScriptedReply(pieces=(b'{"url": "https://images.example/a.jpg"}',))
    photo_provider.adapter.download_url(Photo("a", "M3w"))
    photo_provider.adapter.download_url(Photo("b"))
    assert photo_provider.script.requested_paths == [
        "/photos/a/download?ixid=M3w",
        "/photos/b/download",
    ]


def test_trickling_photo_provider_reply_times_out(
    photo_provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "_MAX_CALL_SECONDS", 0.5)
    photo_provider.script = ScriptedReply(pieces=(b" ",) * 600, pause=0.1)
    start = time.monotonic()
    assert photo_provider.error().code == "stockphoto.too_slow"
    assert time.monotonic() - start < 50


def test_unreachable_photo_provider_is_reported_as_unavailable() -> None:
    unreachable = Unsplash("http://127.0.0.1:9", SecretStr("key"), lambda *_: None)
    with pytest.raises(DomainError) as raised:
        unreachable.search("bread", page=1, limit=10)
    assert (raised.value.kind, raised.value.code) == (Kind.UNAVAILABLE, "stockphoto.unavailable")
    assert raised.value.retry_after


def test_photo_quota_is_reported_even_for_error_replies(photo_provider: Provider) -> None:
    photo_provider.script = ScriptedReply(403, EXHAUSTED_QUOTA)
    photo_provider.error()
    photo_provider.script = ScriptedReply(
        headers={"X-RateLimit-Limit": "nonsense", "X-RateLimit-Remaining": "1"}
    )
    photo_provider.search()
    assert photo_provider.reported_quotas == [(Quota("hour", 50, 0),), ()]
    assert photo_provider.adapter.name is PhotoProviderName.UNSPLASH
