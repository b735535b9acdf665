"""Tests of the format that responses and errors have on all routes."""

import asyncio
import re
import secrets

import httpx2
import pytest
from fastapi import FastAPI
from typer.testing import CliRunner

from api.app import create_app
from api.middleware.cors import EXPOSED_HEADERS
from cli.main import app
from core.settings import Settings, SettingsError
from core.settings.given_settings import read_settings
from core.settings.store_settings import DatabaseSettings
from devstack.harness.stack import Owner, Stack
from tests.support.http.replies import data, problem, send
from tests.support.images.pictures import encoded

UINT64_MAX = 2**64 - 1
JSON_HEADERS = {"Content-Type": "application/json"}


@pytest.mark.parametrize("path", ["/nowhere", "/attachments/a/b", "/users", "/jobs//1/x"])
def test_unknown_route_returns_a_problem_response(client: httpx2.Client, path: str) -> None:
    problem(client.get(path), 404, "route.not_found")


def test_wrong_method_returns_a_problem_response_with_allowed_methods(
    client: httpx2.Client,
) -> None:
    reply = client.put("/attachments")
    problem(reply, 405, "route.method_not_allowed")
    assert {"GET", "POST"} <= set(re.split(r", *", reply.headers["allow"]))


def test_validation_error_names_every_invalid_field(client: httpx2.Client) -> None:
    reply = client.post("/apikeys", json={"name": 7, "scopes": ["attachment", "everything"]})
    body = problem(reply, 422, "body.invalid")
    assert [each["field"] for each in body["errors"]] == ["body.name", "body.scopes[1]"]
    assert all(each["code"] and each["message"] for each in body["errors"])


def test_every_operation_with_a_json_body_rejects_other_bodies(
    client: httpx2.Client, list_id: int
) -> None:
    document = create_app(Settings.model_construct()).openapi()
    operations_with_json = [
        (method, path)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if "application/json" in operation.get("requestBody", {}).get("content", {})
        # The routes for webhooks of Stripe and reports of senders check the signature before they
        # parse the body.
        and path not in ("/webhooks/stripe", "/senders/{sender_id}/events")
    ]
    codes_by_operation = {}
    for method, path in operations_with_json:
        url = re.sub("{.*?}", "1", path.replace("{list_id}", str(list_id)))
        replies = (
            client.request(method, url, content=b"{", headers=JSON_HEADERS),
            client.request(method, url, content=b"title=x"),
        )
        codes_by_operation[method, path] = [reply.json()["code"] for reply in replies]
    expected_codes = ["body.not_json", "body.unsupported_type"]
    assert {
        operation_key: codes
        for operation_key, codes in codes_by_operation.items()
        if codes != expected_codes
    } == {}
    assert ("post", "/lists") in codes_by_operation


@pytest.mark.parametrize(
    "body",
    [b"{", b"name=key", b"\xff\xfe\x00", b'{"name": "\xe9"}', b'{"name": NaN}', b"[" * 10_000],
    ids=["cut", "form", "bytes", "latin-1", "NaN", "deep"],
)
def test_malformed_json_body_is_rejected(client: httpx2.Client, body: bytes) -> None:
    reply = client.post("/apikeys", content=body, headers={"Content-Type": "application/json"})
    problem(reply, 400, "body.not_json")


def test_empty_body_with_json_content_type_counts_as_missing_body(client: httpx2.Client) -> None:
    headers = {"Content-Type": "application/json", "Content-Length": "0"}
    data(client.get("/users/me", headers=headers))
    key = data(client.post("/apikeys", json={"name": "n"}))
    data(client.request("DELETE", f"/apikeys/{key['id']}", headers=headers))
    problem(client.post("/apikeys", headers=headers), 422, "body.invalid")


@pytest.mark.parametrize("text", ["\0", "a\0b"])
def test_nul_characters_in_bodies_and_paths_cause_no_server_error(
    client: httpx2.Client, text: str
) -> None:
    problem(client.post("/apikeys", json={"name": text}), 422, "body.invalid")
    quoted = text.replace("\0", "%00")
    problem(client.get(f"/media/{quoted}"), 404, "media.not_found")
    problem(client.get(f"/attachments/{quoted}"), 404, "attachment.not_found")
    problem(client.delete(f"/attachments/{quoted}"), 404, "attachment.not_found")


@pytest.mark.parametrize("number", [1, 2**53, 2**63, UINT64_MAX, "00000000000000000001"])
def test_unknown_64_bit_ids_return_404(client: httpx2.Client, number: int | str) -> None:
    problem(client.delete(f"/apikeys/{number}"), 404, "api_key.not_found")
    problem(client.get(f"/jobs/{number}"), 404, "job.not_found")


@pytest.mark.parametrize(
    "text",
    [
        str(UINT64_MAX + 1),
        "-1",
        "+1",
        "1.0",
        "1e3",
        "0x1",
        "abc",
        "%20",
        "%D9%A1",
        "1%00",
    ],
)
def test_malformed_ids_are_rejected(client: httpx2.Client, text: str) -> None:
    for method, path in (("GET", "/jobs/"), ("DELETE", "/jobs/"), ("DELETE", "/apikeys/")):
        body = problem(client.request(method, path + text), 400, "request.invalid")
        assert body["errors"][0]["field"] in ("path.job_id", "path.key_id")


def test_user_ids_are_random_and_safe_in_javascript(stack: Stack) -> None:
    ids = [stack.create_owner().user_id for _ in range(4)]
    assert all(0 < each < 2**53 for each in ids)
    assert len({each.bit_length() // 8 for each in ids} | {6}) < 4
    assert max(ids) - min(ids) > 2**40


@pytest.mark.parametrize("token", ["a", "A.b_c-9", "x" * 128])
def test_valid_request_id_is_echoed(client: httpx2.Client, token: str) -> None:
    assert client.get("/healthz", headers={"X-Request-ID": token}).headers["x-request-id"] == token


@pytest.mark.parametrize("token", ["", "x" * 129, "a b", "a;b", "caf\xe9", "<script>"])
def test_invalid_request_id_is_replaced(client: httpx2.Client, token: str) -> None:
    headers = httpx2.Headers({"X-Request-ID": token}, encoding="latin-1")
    reply = client.get("/nowhere", headers=headers)
    assert reply.headers["x-request-id"] not in ("", token)
    problem(reply, 404, "route.not_found")


def test_trailing_slash_is_accepted_without_redirect(client: httpx2.Client) -> None:
    record = data(client.post("/attachments/", files={"file": ("a.jpg", encoded("JPEG"))}))
    for path in ("/users/me/", "/attachments/", f"/attachments/{record['hash_id']}/", "/jobs/"):
        assert client.get(path).status_code == 200
    for path in ("/healthz/", "/readyz/", "/openapi.json/", "/docs/"):
        assert client.get(path).status_code == 200
    assert client.get(f"/{record['pathname']}/").status_code == 200
    problem(client.post("/jobs/1/retry/"), 404, "job.not_found")


@pytest.mark.parametrize(
    "path",
    ["/users/me", "/jobs", "/auxilia/credits/balance", "/healthz", "/readyz", "/openapi.json"],
)
def test_head_returns_the_headers_of_get_without_a_body(client: httpx2.Client, path: str) -> None:
    get = client.get(path)
    head = client.head(path)
    assert head.status_code == get.status_code == 200
    assert head.content == b""
    for header in ("content-type", "content-length"):
        assert head.headers[header] == get.headers[header]


@pytest.mark.parametrize(
    "path", ["/users/me", "/auxilia/credits/balance", "/nowhere", "/healthz", "/openapi.json"]
)
def test_json_response_ends_with_a_line_break(client: httpx2.Client, path: str) -> None:
    reply = client.get(path)
    assert reply.headers["content-type"].endswith("json")
    assert reply.content.endswith(b"}\n")
    assert int(reply.headers["content-length"]) == len(reply.content)


def test_head_returns_the_same_error_status_as_get(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    assert client.head("/nowhere").status_code == 404
    assert client.head("/jobs/1").status_code == 404
    assert stranger.head("/users/me").status_code == 401
    assert client.head("/jobs/1/retry").status_code == 405


def test_cors_preflight_allows_every_header_of_the_api(stranger: httpx2.Client) -> None:
    requested_headers = (
        "authorization, content-type, idempotency-key, last-event-id, prefer, x-api-key"
        ", x-request-id"
    )
    reply = stranger.options(
        "/attachments",
        headers={
            "Origin": "https://writer.example",
            "Access-Control-Request-Method": "DELETE",
            "Access-Control-Request-Headers": requested_headers,
        },
    )
    assert reply.status_code == 200
    assert reply.headers["access-control-allow-origin"] == "*"
    assert "DELETE" in reply.headers["access-control-allow-methods"]
    assert reply.headers["access-control-allow-headers"].lower() == requested_headers


@pytest.fixture
def app_with_broken_route(stack: Stack) -> FastAPI:
    """The API application with an additional route that raises an exception."""
    app = create_app(stack.settings())

    @app.get("/broken")
    async def broken() -> None:
        raise ValueError("the password is hunter2")

    return app


async def _get(app: FastAPI, path: str) -> httpx2.Response:
    transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.get(path, headers={"Origin": "https://writer.example"})


def test_unexpected_exception_returns_a_problem_response_without_details(
    app_with_broken_route: FastAPI,
) -> None:
    reply = asyncio.run(_get(app_with_broken_route, "/broken"))
    problem(reply, 500, "internal_error")
    assert "hunter2" not in reply.text
    assert "ValueError" not in reply.text
    assert "Traceback" not in reply.text
    assert reply.headers["access-control-allow-origin"] == "*"


def test_unreachable_services_cause_503_with_retry_after_and_without_secrets(
    disconnected_api: httpx2.Client, owner_without_workers: Owner
) -> None:
    reply = disconnected_api.get(
        "/users/me", headers={"Authorization": f"Bearer {owner_without_workers.key}"}
    )
    problem(reply, 503, "service.unavailable")
    assert int(reply.headers["retry-after"]) > 0
    assert "secret-word" not in reply.text


@pytest.mark.parametrize(
    ("path", "query", "code", "place"),
    [
        ("/lists", {"cursor": "x"}, "cursor.invalid", "query.cursor"),
        ("/lists/{}/subscriptions", {"filter": "{"}, "filter.invalid", "query.filter"),
        ("/lists/{}/stats", {"from": "9999-01-01"}, "figures.range", "query.from"),
    ],
)
def test_invalid_query_value_is_rejected_and_names_its_parameter(
    client: httpx2.Client, list_id: int, *, path: str, query: dict[str, str], code: str, place: str
) -> None:
    error = problem(client.get(path.format(list_id), params=query), 400, code)
    assert [each["field"] for each in error["errors"]] == [place]
    assert error["errors"][0]["message"] == error["message"]


LIBRARY_WORDING = ("Value error", "Assertion failed")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("GET /imports/none", "path.import_id: must be an unsigned 64-bit integer"),
        ("GET /lists/1/subscriptions?premium=much", "query.premium: must be one of"),
        ("POST /lists", "body.title: must not contain NUL characters"),
    ],
)
def test_error_message_contains_only_the_violated_rule(
    client: httpx2.Client, call: str, message: str
) -> None:
    method, path = call.split()
    body = {"title": "\0", "slug": "t"} if method == "POST" else None
    error = client.request(method, path, json=body).json()
    assert error["detail"].startswith(message)
    assert error["errors"][0]["message"] == error["detail"].partition(": ")[2]


@pytest.mark.parametrize(
    "arguments", [["export", "list", "--kind", "much"], ["users", "plan", "a@b.example", "gold"]]
)
def test_cli_error_contains_no_library_wording(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "is not one of" in result.output
    assert not any(wording in result.output for wording in LIBRARY_WORDING)


def test_settings_error_contains_no_library_wording(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRESSROOM_DATABASE_URL", "mysql://pressroom")
    with pytest.raises(SettingsError) as error:
        read_settings(DatabaseSettings)
    assert str(error.value) == "PRESSROOM_DATABASE_URL: must start with postgresql://"


# Scripts of other origins can always read the response headers in _ALWAYS_READABLE. The headers in
# _FOR_BROWSERS_AND_PROXIES aren't meant for scripts.
_ALWAYS_READABLE = {"cache-control", "content-length", "content-type", "last-modified"}
_FOR_BROWSERS_AND_PROXIES = {
    "access-control-allow-origin",
    "access-control-expose-headers",
    "allow",
    "connection",
    "content-security-policy",
    "date",
    "referrer-policy",
    "server",
    "transfer-encoding",
    "vary",
    "x-content-type-options",
}


def read_exposed_headers(reply: httpx2.Response) -> set[str]:
    return set(reply.headers["access-control-expose-headers"].split(", "))


def test_cors_exposes_every_response_header_to_scripts(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    client.headers["Origin"] = stranger.headers["Origin"] = "https://writer.example"
    data(client.post("/apikeys", json={"name": "another"}))
    key = secrets.token_hex(16)
    upload_reply = send(client, key=key)
    media = f"/media/{data(upload_reply)['filename']}"
    media_reply = client.get(media)
    replies = [
        upload_reply,
        send(client, key=key),
        send(client, prefer="respond-async"),
        media_reply,
        client.get(media, headers={"Range": "bytes=0-9"}),
        client.get(media, headers={"Range": "bytes=9999999-"}),
        client.get(media, headers={"If-None-Match": media_reply.headers["etag"]}),
        client.post("/composer/metadata", json={"title": "Birds", "content": "Some words."}),
        client.get("/auxilia/credits/prices", headers={"Prefer": "handling=strict"}),
        client.get("/apikeys", params={"limit": 1}),
        client.get("/apikeys", params={"limt": 1}),
        client.post("/users/me"),
        client.get("/jobs/1"),
        stranger.get("/users/me"),
        stranger.post("/subscriptions/1", json={"email": "reader@example.com"}),
    ]
    readable_headers: set[str] = set()
    for reply in replies:
        exposed = {each.lower() for each in read_exposed_headers(reply)}
        assert set(reply.headers) <= exposed | _ALWAYS_READABLE | _FOR_BROWSERS_AND_PROXIES
        readable_headers |= set(reply.headers) & exposed
    # No response in this test has these headers, because the API adds them only for rate limits,
    # deprecated routes and some errors.
    headers_of_other_tests = {
        "retry-after",
        "ratelimit",
        "ratelimit-policy",
        "deprecation",
        "sunset",
    }
    assert readable_headers == {each.lower() for each in EXPOSED_HEADERS} - headers_of_other_tests
