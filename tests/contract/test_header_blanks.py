"""Tests that blanks and tabs around the value of a request header mean nothing (RFC 9110, 5.5).

The requests are sent over a plain socket, because HTTP clients remove blanks from their headers.
"""

import gzip
import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPResponse

import httpx2
import pytest

from devstack.harness.stack import Owner, Stack
from tests.support.http.raw_requests import RawRequest
from tests.support.http.replies import data, send
from tests.support.imports.bulk import add, build_addresses, newest_job
from tests.support.lists.subscribers import new_list
from tests.support.people.visiting import SESSION_COOKIE, new_visitor
from tests.support.senders.own_senders import new_sender
from tests.support.senders.posting import body_of, bounce, signed

JSON_TYPE = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Sample:
    """A request that depends on the value of one header.

    Attributes:
        read: returns what depends on the header, from the response and its body.
    """

    method: str
    path: str
    value: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    read: Callable[[HTTPResponse, bytes], object] = lambda reply, _: reply.status

    def send(self, stack: Stack, header: str, value: str) -> object:
        headers = {**self.headers, header: value, "Content-Length": str(len(self.body))}
        lines = [f"{name}: {text}" for name, text in headers.items()]
        with RawRequest(stack, f"{self.method} {self.path} HTTP/1.1", *lines) as request:
            request.send(self.body)
            with closing(HTTPResponse(request.socket, method=self.method)) as reply:
                reply.begin()
                return self.read(reply, reply.read())


@dataclass(frozen=True)
class Account:
    """An owner with a browser, an API client, and some records."""

    stack: Stack
    owner: Owner
    client: httpx2.Client
    cookie: str

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.owner.key}"}

    @property
    def session(self) -> dict[str, str]:
        return {"Cookie": f"{SESSION_COOKIE}={self.cookie}"}


@pytest.fixture(scope="module")
def account(stack: Stack) -> Iterator[Account]:
    owner = stack.create_owner()
    with stack.client(owner.key) as client, new_visitor(stack) as visitor:
        visitor.enter(owner.email)
        yield Account(stack, owner, client, visitor.cookie)


def sign_in_with_authorization(account: Account) -> Sample:
    return Sample("GET", "/users/me", f"Bearer {account.owner.key}")


def sign_in_with_authorization_after_a_tab(account: Account) -> Sample:
    return Sample("GET", "/users/me", f"Bearer\t{account.owner.key}")


def sign_in_with_api_key_header(account: Account) -> Sample:
    return Sample("GET", "/users/me", account.owner.key)


def sign_in_with_cookie(account: Account) -> Sample:
    return Sample("GET", "/users/me", account.session["Cookie"])


def write_with_origin(account: Account) -> Sample:
    origin = account.stack.environment["PRESSROOM_PUBLIC_URL"]
    headers = {**account.session, **JSON_TYPE}
    return Sample("PATCH", "/users/me", origin, headers, b'{"import_mails": true}')


def send_json(account: Account) -> Sample:
    return Sample("POST", "/apikeys", "application/json", account.bearer, b"{}")


def prefer_strict_handling(account: Account) -> Sample:
    return Sample("GET", "/lists?sort=name", "handling=strict", account.bearer)


def request_version(account: Account) -> Sample:
    version = account.client.get("/").headers["pressroom-version"]
    return Sample("GET", "/lists", version, account.bearer)


def choose_request_id(_: Account) -> Sample:
    return Sample("GET", "/healthz", "r-1", read=lambda reply, _: reply.headers["x-request-id"])


def repeat_idempotency_key(account: Account) -> Sample:
    list_id = new_list(account.client)["id"]
    [email] = build_addresses(1)
    key = secrets.token_hex(16)
    body = json.dumps({"members": [{"email": email}]}).encode()
    path = f"/auxilia/subscriptions/{list_id}/members/add"
    headers = JSON_TYPE | {"Idempotency-Key": key}
    assert data(account.client.post(path, content=body, headers=headers)) == 1
    return Sample(
        "POST",
        path,
        key,
        account.bearer | JSON_TYPE,
        body,
        lambda reply, _: reply.headers["idempotent-replayed"],
    )


def read_media(account: Account) -> tuple[str, str]:
    """Return the path of an image, and its entity tag."""
    path = f"/media/{data(send(account.client))['filename']}"
    return path, account.client.get(path).headers["etag"]


def have_current_image(account: Account) -> Sample:
    path, etag = read_media(account)
    return Sample("GET", path, etag)


def read_part_of_image(account: Account) -> Sample:
    path, _ = read_media(account)
    return Sample("GET", path, "bytes=0-3", read=lambda _, body: len(body))


def read_part_of_same_image(account: Account) -> Sample:
    path, etag = read_media(account)
    return Sample("GET", path, etag, {"Range": "bytes=0-3"})


def resume_event_stream(account: Account) -> Sample:
    data(add(account.client, new_list(account.client)["id"], *build_addresses(1)))
    path = f"/jobs/{newest_job(account.client)['id']}/events"
    version = account.client.get(path).text.partition("id: ")[2].partition("\n")[0]
    return Sample("GET", path, version, account.bearer, read=lambda _, body: body == b"")


def read_german_page(account: Account) -> Sample:
    slug = new_list(account.client)["slug"]
    return Sample("GET", f"/s/{slug}", "de", read=lambda _, body: b'lang="de"' in body)


def send_compressed_reports(account: Account) -> Sample:
    sender = new_sender(account.client)
    headers = account.bearer | JSON_TYPE
    body = gzip.compress(body_of(bounce()))
    return Sample("POST", f"/senders/{sender['id']}/events", "gzip", headers, body)


def sign_reports(account: Account, name: str) -> Sample:
    sender = new_sender(account.client)
    body = body_of(bounce())
    headers = signed(sender["secret"], body)
    value = headers.pop(name)
    return Sample("POST", f"/senders/{sender['id']}/events", value, headers | JSON_TYPE, body)


def sign_with_id(account: Account) -> Sample:
    return sign_reports(account, "webhook-id")


def sign_with_timestamp(account: Account) -> Sample:
    return sign_reports(account, "webhook-timestamp")


def sign_with_signature(account: Account) -> Sample:
    return sign_reports(account, "webhook-signature")


@pytest.mark.parametrize(
    ("header", "build_sample"),
    [
        ("Authorization", sign_in_with_authorization),
        ("Authorization", sign_in_with_authorization_after_a_tab),
        ("X-API-Key", sign_in_with_api_key_header),
        ("Cookie", sign_in_with_cookie),
        ("Origin", write_with_origin),
        ("Content-Type", send_json),
        ("Content-Encoding", send_compressed_reports),
        ("Prefer", prefer_strict_handling),
        ("Pressroom-Version", request_version),
        ("X-Request-ID", choose_request_id),
        ("Accept-Language", read_german_page),
        ("Idempotency-Key", repeat_idempotency_key),
        ("If-None-Match", have_current_image),
        ("If-Range", read_part_of_same_image),
        ("Range", read_part_of_image),
        ("Last-Event-ID", resume_event_stream),
        ("webhook-id", sign_with_id),
        ("webhook-timestamp", sign_with_timestamp),
        ("webhook-signature", sign_with_signature),
    ],
)
def test_blanks_and_tabs_around_a_header_value_mean_nothing(
    stack: Stack, account: Account, header: str, build_sample: Callable[[Account], Sample]
) -> None:
    sample = build_sample(account)
    outcome = sample.send(stack, header, sample.value)
    for value in (f"{sample.value} ", f"{sample.value}\t", f" \t {sample.value} \t "):
        assert sample.send(stack, header, value) == outcome
    # The outcome depends on the header.
    assert sample.send(stack, header, f"{sample.value}x") != outcome


@pytest.mark.parametrize("value", ["100-continue", "100-continue ", "\t100-continue\t"])
def test_server_asks_for_the_body_despite_blanks_around_expect(
    stack: Stack, account: Account, value: str
) -> None:
    headers = account.bearer | JSON_TYPE | {"Content-Length": "2", "Expect": value}
    lines = [f"{name}: {text}" for name, text in headers.items()]
    with RawRequest(stack, "POST /apikeys HTTP/1.1", *lines) as request:
        request.socket.settimeout(10)
        assert request.socket.recv(4096).startswith(b"HTTP/1.1 100 ")
        request.send(b"{}")
        with closing(HTTPResponse(request.socket)) as reply:
            reply.begin()
            assert reply.status == 422
