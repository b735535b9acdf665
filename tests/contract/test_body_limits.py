"""Tests of size limits for request bodies.

Some tests use a raw socket to see whether the response arrives before the end of the body.
"""

import json
from typing import Any

import httpx2
import orjson
import pytest

from api.middleware.body_limits import find_body_limit
from core.scopes import Scope
from core.upload_limits import MAX_IMAGE_BYTES, MAX_IMPORT_FILE_BYTES, MAX_MEMBERS_PER_REQUEST
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from models import Plan
from services.subscriptions.deny_lists import MAX_ENTRIES
from tests.support.http.multipart import make_multipart
from tests.support.http.raw_requests import RawRequest
from tests.support.http.replies import data, problem
from tests.support.images.pictures import photo
from tests.support.lists.subscribers import new_list
from tests.support.security.attackers import read_answer

MEGABYTE = 1024 * 1024
# The maximum number of bytes that a form with a file may have in addition to the file.
FORM_OVERHEAD_BYTES = 64 * 1024


def upload_head(owner: Owner, *other_headers: str, path: str = "/attachments") -> tuple[str, ...]:
    return (
        f"POST {path} HTTP/1.1",
        f"Authorization: Bearer {owner.key}",
        'Content-Type: multipart/form-data; boundary="cut here"',
        *other_headers,
    )


def test_json_body_of_two_megabytes_is_accepted(client: httpx2.Client) -> None:
    def body(length: int) -> bytes:
        return b'{"name": "n", "x": "%b"}' % (b"x" * (length - 22))

    headers = {"Content-Type": "application/json"}
    largest = body(2 * MEGABYTE)
    assert len(largest) == 2 * MEGABYTE
    data(client.post("/apikeys", content=largest, headers=headers))


def test_brackets_and_commas_in_texts_do_not_make_a_body_too_complex(
    client: httpx2.Client,
) -> None:
    text = '[[{"a": [1, 2]}, "\\\\"], ' * 60_000
    assert len(data(client.post("/apikeys", json={"name": "n", "x": text}))["name"]) == 1


@pytest.mark.parametrize("path", ["/apikeys", "/auxilia/credits/consume"])
@pytest.mark.parametrize(
    "value",
    [{"x": [[]] * 20_000}, {"x": [{}] * 20_000}, {"x": [1] * 100_002}, [[[]]] * 10_000],
)
def test_body_with_too_many_arrays_objects_or_commas_is_rejected(
    client: httpx2.Client, value: Any, path: str
) -> None:
    headers = {"Prefer": "handling=strict"}
    body = problem(client.post(path, json=value, headers=headers), 413, "body.too_complex")
    assert "20,000 arrays and objects" in body["detail"]


def test_largest_deny_lists_and_member_lists_are_not_too_complex() -> None:
    names = ("add_addresses", "add_domains", "remove_addresses", "remove_domains")
    changes = orjson.dumps({name: ["a.example"] * MAX_ENTRIES for name in names})
    row = {"email": "reader@example.org", "name": "Reader", "x": {"city": ["Oslo"]}}
    rows = orjson.dumps({"members": [row] * MAX_MEMBERS_PER_REQUEST})
    for path, body in (
        ("/deny-list", changes),
        ("/auxilia/subscriptions/1/members/add", rows),
    ):
        limit = find_body_limit(path)
        assert len(body) <= limit.max_bytes
        assert not limit.json_limits.are_exceeded_by(body)


def test_chunked_json_body_over_the_limit_is_rejected(client: httpx2.Client) -> None:
    chunks = (b" " * MEGABYTE for _ in range(3))
    headers = {"Content-Type": "application/json"}
    problem(client.post("/apikeys", content=chunks, headers=headers), 413, "body.too_large")


def test_endless_chunked_upload_is_rejected_before_the_body_ends(
    stack: Stack, owner: Owner
) -> None:
    planned_bytes = 256 * MEGABYTE
    chunk = b"\0" * (256 * 1024)
    with RawRequest(stack, *upload_head(owner, "Transfer-Encoding: chunked")) as request:
        start_of_body = make_multipart(b'name="file"; filename="a.jpg"', photo(64, 64))
        request.chunk(start_of_body.removesuffix(b"\r\n--cut here--\r\n"))
        while request.sent < planned_bytes and not request.has_answered():
            request.chunk(chunk)
        assert read_answer(request.socket) == (413, "attachment.too_large")
    # The client may already have written data into the socket buffers when the response arrives.
    assert request.sent < MAX_IMAGE_BYTES + 16 * MEGABYTE


@pytest.mark.parametrize(
    ("path", "max_bytes", "code"),
    [
        ("/apikeys", 2 * MEGABYTE, "body.too_large"),
        ("/subscriptions/{}", 64 * 1024, "body.too_large"),
        ("/auxilia/composer/metadata", 8 * MEGABYTE, "body.too_large"),
        ("/composer/generate-tweets", 8 * MEGABYTE, "body.too_large"),
        ("/auxilia/subscriptions/{}/members/add", 32 * MEGABYTE, "body.too_large"),
        ("/attachments", MAX_IMAGE_BYTES + FORM_OVERHEAD_BYTES, "attachment.too_large"),
        ("/lists/{}/imports", MAX_IMPORT_FILE_BYTES + FORM_OVERHEAD_BYTES, "import.too_large"),
    ],
)
def test_declared_content_length_over_the_limit_is_rejected_before_the_body_is_sent(
    *, stack: Stack, owner: Owner, list_id: int, path: str, max_bytes: int, code: str
) -> None:
    path = path.format(list_id)
    allowed_length = f"Content-Length: {max_bytes}"
    excessive_length = f"Content-Length: {max_bytes + 1}"
    expect_continue = "Expect: 100-continue"
    for other_headers in ((), (expect_continue,)):
        with RawRequest(
            stack, *upload_head(owner, excessive_length, *other_headers, path=path)
        ) as request:
            assert read_answer(request.socket) == (413, code)
        assert request.sent == 0
    with RawRequest(
        stack, *upload_head(owner, allowed_length, expect_continue, path=path)
    ) as request:
        assert b" 413 " not in request.socket.recv(4096).partition(b"\r\n")[0]


def test_members_without_the_paid_plan_or_scope_are_rejected_before_the_body_is_sent(
    stack: Stack, owner: Owner, list_id: int
) -> None:
    free_owner = stack.create_owner(plan=Plan.FREE)
    with stack.client(free_owner.key) as client:
        free_list_id = new_list(client)["id"]
    reader = Owner(owner.user_id, owner.email, stack.create_key(owner.user_id, Scope.CREDIT_READ))
    for caller, id_, status, code in (
        (free_owner, free_list_id, 403, "plan.required"),
        (free_owner, list_id, 403, "list.not_owner"),
        (owner, 1, 404, "list.not_found"),
        (reader, list_id, 403, "auth.insufficient_scope"),
    ):
        head = (
            f"POST /auxilia/subscriptions/{id_}/members/add HTTP/1.1",
            f"Authorization: Bearer {caller.key}",
            "Content-Type: application/json",
            f"Content-Length: {32 * MEGABYTE}",
        )
        with RawRequest(stack, *head) as request:
            assert read_answer(request.socket) == (status, code)


def test_complexity_of_members_is_limited_by_the_plan(client: httpx2.Client, list_id: int) -> None:
    path = f"/auxilia/subscriptions/{list_id}/members/add"
    members = [{"email": "no address", "x": [[]] * 500}] * 100
    problem(client.post(path, json={"members": members}), 422, "members.all_invalid")
    body = b'{"members": [%b{}]}' % (b"[[]]," * 1_000_000)
    reply = client.post(path, content=body, headers={"Content-Type": "application/json"})
    assert "2,000,000 arrays and objects" in problem(reply, 413, "body.too_complex")["detail"]


@pytest.mark.parametrize("length", ["abc", "-1", "1_0", "\u00b2"])
def test_malformed_content_length_is_rejected(stack: Stack, owner: Owner, length: str) -> None:
    with RawRequest(stack, *upload_head(owner, f"Content-Length: {length}")) as request:
        received = request.socket.recv(4096)
    assert received.startswith(b"HTTP/1.1 400 ")


def test_client_disconnect_during_upload_is_logged_as_499_and_not_as_error(
    stack: Stack, owner: Owner
) -> None:
    request_id = "left-in-the-middle"
    head = upload_head(owner, f"Content-Length: {MEGABYTE}", f"X-Request-ID: {request_id}")
    with RawRequest(stack, *head) as request:
        request.send(b"--cut here\r\n")

    def read_log_lines() -> list[dict[str, Any]]:
        logs = {running.log for running in stack.processes if running.name == "api"}
        matching_lines = [
            line for log in logs for line in log.read_text().splitlines() if request_id in line
        ]
        return [json.loads(line) for line in matching_lines]

    eventually(
        lambda: any("status" in line for line in read_log_lines()), what="the request's log line"
    )
    assert [line["status"] for line in read_log_lines() if "status" in line] == [499]
    assert not [line for line in read_log_lines() if line["level"] == "error"]
