"""Tests of the URLs at which uploaded images are viewed."""

import httpx2
import pytest

from core.scopes import Scope
from devstack.harness.stack import Owner, Stack
from tests.support.http.replies import data, problem, send
from tests.support.images.pictures import photo


@pytest.fixture(scope="module")
def public_attachment(stack: Stack) -> dict[str, object]:
    """A public image that all tests in this module share."""
    with stack.client(stack.create_owner().key) as client:
        attachment: dict[str, object] = data(send(client, photo(), "a.jpg"))
    return attachment


@pytest.fixture
def view_url(public_attachment: dict[str, object]) -> str:
    """The URL at which anyone can view the image in the fixture `public_attachment`."""
    return str(public_attachment["view_url"])


@pytest.fixture
def view_content(view_url: str) -> bytes:
    """The bytes of the image in the fixture `public_attachment`, as a viewer downloads them."""
    return httpx2.get(view_url).content


def test_public_media_needs_no_credentials_and_is_cached_as_immutable(
    view_url: str, public_attachment: dict[str, object]
) -> None:
    reply = httpx2.get(view_url, headers={"Authorization": "Basic dTpw", "X-API-Key": "x"})
    assert reply.status_code == httpx2.get(view_url).status_code == 200
    headers = reply.headers
    assert headers["content-type"] == "image/webp"
    assert headers["content-length"] == str(public_attachment["size"])
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"] == "sandbox"
    assert headers["content-disposition"] == f'inline; filename="{public_attachment["filename"]}"'
    assert headers["cache-control"] == "public, max-age=31536000, immutable"
    assert headers["accept-ranges"] == "bytes"
    assert headers["etag"] == f'"{public_attachment["checksum"]}"'


def test_media_request_with_a_matching_etag_returns_304(view_url: str) -> None:
    etag = httpx2.get(view_url).headers["etag"]
    for matching_etags in (etag, f"W/{etag}", f'"other", {etag}', "*", f'"a","b" ,{etag}'):
        reply = httpx2.get(view_url, headers={"If-None-Match": matching_etags})
        assert reply.status_code == 304, matching_etags
        assert reply.content == b""
        assert reply.headers["etag"] == etag
        assert "immutable" in reply.headers["cache-control"]
    two_headers = [("If-None-Match", '"other"'), ("If-None-Match", etag)]
    assert httpx2.get(view_url, headers=two_headers).status_code == 304
    headers = {"If-None-Match": etag, "Range": "bytes=0-1"}
    assert httpx2.get(view_url, headers=headers).status_code == 304
    for other_etag in ('"other"', "", etag.strip('"'), '"*"'):
        assert httpx2.get(view_url, headers={"If-None-Match": other_etag}).status_code == 200, (
            other_etag
        )


@pytest.mark.parametrize(
    ("requested_range", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=10-99", 10, 100),
        ("bytes=100-", 100, None),
        ("bytes=-50", -50, None),
        ("Bytes=0-9", 0, 10),
        ("bytes=5-" + "9" * 18, 5, None),
        ("bytes=-" + "9" * 30, 0, None),
    ],
)
def test_media_request_with_one_byte_range_returns_206(
    view_url: str, view_content: bytes, requested_range: str, start: int, end: int | None
) -> None:
    reply = httpx2.get(view_url, headers={"Range": requested_range})
    assert reply.status_code == 206, reply.text
    assert reply.content == view_content[start:end]
    first = start % len(view_content)
    last = (end or len(view_content)) - 1
    assert reply.headers["content-range"] == f"bytes {first}-{last}/{len(view_content)}"
    assert reply.headers["content-length"] == str(len(reply.content))
    assert reply.headers["content-type"] == "image/webp"


@pytest.mark.parametrize("requested_range", ["bytes={size}-", "bytes={size}-{size}9", "bytes=-0"])
def test_byte_range_beyond_the_end_returns_416(
    view_url: str, view_content: bytes, requested_range: str
) -> None:
    reply = httpx2.get(view_url, headers={"Range": requested_range.format(size=len(view_content))})
    problem(reply, 416, "media.range_unsatisfiable")
    assert reply.headers["content-range"] == f"bytes */{len(view_content)}"


@pytest.mark.parametrize(
    "requested_range",
    [
        *("bytes=0-1,4-5", "bytes=-", "bytes=5-2", "bytes=a-b", "bytes", "", "items=0-1"),
        *("bytes=0-1;q=1", "bytes=1 0-20", "bytes=--1", "bytes=" + "9" * 5000 + "x"),
        *("bytes=" + "9" * 5000 + "-", "bytes=0-" + "9" * 5000),
    ],
)
def test_malformed_byte_range_is_ignored_and_the_whole_file_returned(
    view_url: str, view_content: bytes, requested_range: str
) -> None:
    reply = httpx2.get(view_url, headers={"Range": requested_range})
    assert (reply.status_code, reply.content) == (200, view_content)
    assert "content-range" not in reply.headers


def test_if_range_with_an_outdated_etag_returns_the_whole_file(view_url: str) -> None:
    etag = httpx2.get(view_url).headers["etag"]
    for validator, status in ((etag, 206), ('"old"', 200), (f"W/{etag}", 200)):
        reply = httpx2.get(view_url, headers={"Range": "bytes=0-3", "If-Range": validator})
        assert reply.status_code == status, validator


def test_media_head_request_has_the_headers_of_get_and_ignores_ranges(view_url: str) -> None:
    get = httpx2.get(view_url)
    for headers in ({}, {"Range": "bytes=0-9"}, {"Range": "bytes=999999999-"}):
        head = httpx2.head(view_url, headers=headers)
        assert (head.status_code, head.content) == (200, b"")
        for name in ("content-length", "content-type", "etag", "cache-control", "accept-ranges"):
            assert head.headers[name] == get.headers[name]
    assert httpx2.head(view_url, headers={"If-None-Match": get.headers["etag"]}).status_code == 304


@pytest.mark.parametrize(
    "name", ["zzzzzzzzzzzz.webp", "%2e%2e", "..%2foriginals", "a b", "%ff", "%F0%9F%8E%89"]
)
def test_unknown_or_malformed_media_name_returns_404(stranger: httpx2.Client, name: str) -> None:
    reply = stranger.get(f"/media/{name}")
    assert reply.status_code == 404
    assert reply.json()["code"] in ("media.not_found", "route.not_found")


def test_media_is_not_found_before_its_conversion_has_finished(
    client_without_workers: httpx2.Client,
) -> None:
    record = data(send(client_without_workers, prefer="respond-async", renditions="1"), 202)
    assert record["renditions"] == []
    for name in (record["filename"], f"{record['hash_id']}-320.webp"):
        problem(client_without_workers.get(f"/media/{name}"), 404, "media.not_found")


@pytest.fixture
def encrypted_jpeg(client: httpx2.Client) -> dict[str, object]:
    attachment: dict[str, object] = data(send(client, photo(), "a.jpg", encrypted="True"))
    assert attachment["encrypted"] is True
    return attachment


def test_encrypted_media_is_visible_only_to_its_owner(
    client: httpx2.Client,
    other_owner: httpx2.Client,
    stranger: httpx2.Client,
    encrypted_jpeg: dict[str, object],
) -> None:
    path = f"/{encrypted_jpeg['pathname']}"
    reply = client.get(path)
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "image/webp"
    assert reply.headers["cache-control"] == "private, no-store"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["content-security-policy"] == "sandbox"
    assert len(reply.content) == encrypted_jpeg["size"]
    for other_client in (other_owner, stranger):
        problem(other_client.get(path), 404, "media.not_found")
        assert other_client.head(path).status_code == 404
    reply_to_wrong_key = stranger.get(path, headers={"X-API-Key": "prk_nonsense"})
    problem(reply_to_wrong_key, 404, "media.not_found")
    partial_reply = client.get(path, headers={"Range": "bytes=4-7"})
    assert (partial_reply.status_code, partial_reply.content) == (206, reply.content[4:8])
    assert partial_reply.headers["cache-control"] == "private, no-store"


def test_encrypted_media_requires_the_attachment_scope(
    stack: Stack, owner: Owner, encrypted_jpeg: dict[str, object]
) -> None:
    with stack.client(stack.create_key(owner.user_id, Scope.CREDIT_READ)) as key_client:
        problem(key_client.get(f"/{encrypted_jpeg['pathname']}"), 403, "auth.insufficient_scope")
    with stack.client(stack.create_key(owner.user_id, Scope.ATTACHMENT)) as key_client:
        assert key_client.get(f"/{encrypted_jpeg['pathname']}").status_code == 200
