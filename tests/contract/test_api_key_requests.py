"""Tests that an owner can list the latest requests that were made with an API key."""

import secrets
from typing import Any

import httpx2
import pytest

from api.console.developers.routes import REQUESTS_ON_PAGE
from core.scopes import Scope
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from models import ApiKey
from services.access.api_requests import MAX_REQUESTS_PER_KEY
from tests.support.credits.credits import CONSUME, consume, grant
from tests.support.http.replies import data, problem, walk_pages
from tests.support.lists.subscribers import new_list
from tests.support.people.consoles import OwnerAtConsole, calls_of, heading, rows_of

# Inserts the given number of request records for an API key. The HTTP statuses 300, 400, 500 and
# 200 repeat in this order.
INSERT_REQUESTS = """
INSERT INTO api_requests (key_id, occurred_at, id, method, route, status, code, request_id,
    milliseconds)
SELECT %s, now() - n * interval '1 second', n, 'GET', '/lists', 200 + 100 * (n %% 4),
    CASE WHEN n %% 4 = 2 THEN 'list.not_found' END, 'request-' || n, n FROM generate_series(1, %s) n
"""


def find_key_id(stack: Stack, owner: Owner, key: str) -> int:
    with stack.resources.unit_of_work() as uow:
        query = uow.session.query(ApiKey.id).where(
            ApiKey.user_id == owner.user_id, ApiKey.last_four == key[-4:]
        )
        return query.one()[0]


@pytest.fixture
def key(stack: Stack, owner: Owner) -> str:
    """A second API key of the owner, with all scopes."""
    return stack.create_key(owner.user_id)


@pytest.fixture
def requests_path(stack: Stack, owner: Owner, key: str) -> str:
    """The path of the API at which an owner lists the requests that used the API key `key`."""
    return f"/apikeys/{find_key_id(stack, owner, key)}/requests"


def list_requests(
    client: httpx2.Client, requests_path: str, **query: str | int
) -> list[dict[str, Any]]:
    return list(data(client.get(requests_path, params=query))["items"])


def await_requests(client: httpx2.Client, requests_path: str, count: int) -> list[dict[str, Any]]:
    """Wait until at least ``count`` requests are listed, and return them, newest first."""
    eventually(lambda: len(list_requests(client, requests_path)) >= count, what="the requests")
    return list_requests(client, requests_path)


def test_owner_sees_the_requests_of_an_api_key_with_their_outcomes(
    stack: Stack, client: httpx2.Client, key: str, requests_path: str
) -> None:
    request_id = secrets.token_hex(8)
    with stack.client(key) as program:
        list_id = new_list(program)["id"]
        problem(program.get(f"/lists/{list_id + 1}/segments"), 404, "list.not_found")
        problem(program.get("/lists", params={"limit": -1}), 400, "request.invalid")
        assert program.head("/lists", headers={"X-Request-ID": request_id}).status_code == 200
    newest, invalid, missing, created = await_requests(client, requests_path, 4)
    assert set(newest) == {
        "occurred_at",
        "method",
        "route",
        "status",
        "code",
        "request_id",
        "milliseconds",
    }
    assert (newest["method"], newest["route"], newest["request_id"]) == (
        "HEAD",
        "/lists",
        request_id,
    )
    assert (newest["status"], newest["code"]) == (200, None)
    assert (invalid["status"], invalid["code"]) == (400, "request.invalid")
    assert (missing["route"], missing["status"]) == ("/lists/{list_id}/segments", 404)
    assert missing["code"] == "list.not_found"
    assert (created["method"], created["code"]) == ("POST", None)
    assert created["milliseconds"] > 0
    assert newest["occurred_at"] > invalid["occurred_at"] > created["occurred_at"]


def test_recorded_requests_contain_no_path_query_body_or_address(
    stack: Stack, client: httpx2.Client, key: str, requests_path: str
) -> None:
    marker = secrets.token_hex(8)
    with stack.client(key) as program:
        slug = new_list(program, slug=f"list-{marker}")["slug"]
        data(program.get(f"/lists/{slug}", params={"mark": marker}))
        program.get(
            f"/lists/{slug}/segments", headers={"User-Agent": marker, "X-Request-ID": "x" * 9}
        )
        program.put("/deny-list", json={"emails": [f"{marker}@example.com"]})
    await_requests(client, requests_path, 4)
    key_id = requests_path.split("/")[2]
    rows = str(stack.query("SELECT r::text FROM api_requests r WHERE key_id = %s", key_id))
    assert "/lists/{list_id}" in rows
    assert marker not in rows
    assert "127.0.0.1" not in rows


def test_requests_of_an_api_key_are_filtered_by_status_and_paged_newest_first(
    stack: Stack, client: httpx2.Client, requests_path: str
) -> None:
    stack.query(INSERT_REQUESTS, requests_path.split("/")[2], 8)
    all_requests = list_requests(client, requests_path)
    assert [each["milliseconds"] for each in all_requests] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert walk_pages(client, requests_path, limit=3)[:8] == all_requests
    for status, expected_numbers in (
        ("404", []),
        ("400", [2, 6]),
        ("4xx", [2, 6]),
        ("2xx", [4, 8]),
    ):
        rows = list_requests(client, requests_path, status=status)
        assert [each["milliseconds"] for each in rows] == expected_numbers
    [newest_failure] = list_requests(client, requests_path, status="5xx", limit=1)
    assert newest_failure["milliseconds"] == 3
    for status in ("", "4", "4x", "600", "4XX", "429 "):
        problem(client.get(requests_path, params={"status": status}), 400, "request.invalid")
    problem(client.get(requests_path, params={"cursor": "1"}), 400, "cursor.invalid")


def test_only_the_last_1000_requests_of_an_api_key_are_listed(
    stack: Stack, client: httpx2.Client, requests_path: str
) -> None:
    stack.query(INSERT_REQUESTS, requests_path.split("/")[2], MAX_REQUESTS_PER_KEY + 10)
    numbers = [each["milliseconds"] for each in list_requests(client, requests_path, limit=1000)]
    assert numbers == list(range(1, MAX_REQUESTS_PER_KEY + 1))
    assert len(walk_pages(client, requests_path, limit=250)) == MAX_REQUESTS_PER_KEY
    # The filter applies only to the last 1,000 requests, even if older requests match.
    assert (
        len(list_requests(client, requests_path, status="2xx", limit=1000))
        == MAX_REQUESTS_PER_KEY / 4
    )


def test_requests_of_an_api_key_need_an_unrestricted_credential_of_the_owner(
    stack: Stack, owner: Owner, client: httpx2.Client, requests_path: str
) -> None:
    restricted_key = stack.create_key(owner.user_id, Scope.ATTACHMENT, Scope.WEBHOOK)
    with stack.client(restricted_key) as program:
        problem(program.get(requests_path), 403, "auth.restricted_credential")
    problem(client.get("/apikeys/1/requests"), 404, "api_key.not_found")


def test_charges_with_a_cached_api_key_are_recorded(
    stack: Stack, owner: Owner, client: httpx2.Client, key: str, requests_path: str
) -> None:
    grant(stack, owner.user_id, "1")
    with stack.client(key) as program:
        assert [consume(program).status_code for _ in range(3)] == [200, 402, 402]
        assert program.post(CONSUME, json={}).status_code == 422
    invalid, *charges = await_requests(client, requests_path, 4)
    assert {each["route"] for each in (invalid, *charges)} == {CONSUME}
    assert [each["status"] for each in charges] == [402, 402, 200]
    assert charges[0]["code"] == "credits.insufficient"
    assert invalid["status"] == 422


def test_requests_with_an_expired_api_key_are_not_recorded(
    stack: Stack, owner: Owner, client: httpx2.Client, key: str, requests_path: str
) -> None:
    grant(stack, owner.user_id, "9")
    with stack.client(key) as program:
        data(consume(program))
        await_requests(client, requests_path, 1)
        stack.query(
            "UPDATE api_keys SET expires_at = now() WHERE id = %s", requests_path.split("/")[2]
        )
        problem(program.get("/lists"), 401, "auth.invalid_credentials")
        # The API process rejects the charge although its cache contains the expired API key.
        problem(consume(program), 401, "auth.invalid_credentials")
    other_key = stack.create_key(owner.user_id)
    with stack.client(other_key) as program:
        data(program.get("/lists"))
    # Wait for the record of the latest request. The API process records requests in the order of
    # their arrival, so it would have recorded the rejected requests before the latest request.
    await_requests(client, f"/apikeys/{find_key_id(stack, owner, other_key)}/requests", 1)
    assert [each["status"] for each in list_requests(client, requests_path)] == [200]


def test_revoking_an_api_key_deletes_its_requests_and_those_of_its_descendants(
    stack: Stack, owner: Owner, client: httpx2.Client, key: str, requests_path: str
) -> None:
    key_id = requests_path.split("/")[2]
    with stack.client(key) as program:
        descendant_id = data(program.post("/apikeys", json={"name": "descendant"}))["id"]
    for each in (key_id, descendant_id):
        stack.query(INSERT_REQUESTS, each, 2)
    await_requests(client, requests_path, 3)
    with stack.client(key) as program:
        # This request revokes the API key that the request uses, so the key is already revoked when
        # the API process records the request.
        assert data(program.delete(requests_path.removesuffix("/requests"))) == 1
    other_key = stack.create_key(owner.user_id)
    with stack.client(other_key) as program:
        data(program.get("/lists"))
    await_requests(client, f"/apikeys/{find_key_id(stack, owner, other_key)}/requests", 1)
    for each in (key_id, descendant_id):
        assert stack.query("SELECT 1 FROM api_requests WHERE key_id = %s", each) == []
        problem(client.get(f"/apikeys/{each}/requests"), 404, "api_key.not_found")


def test_deleting_an_api_key_deletes_its_requests_and_delays_no_other_requests(
    stack: Stack, owner: Owner, client: httpx2.Client, key: str, requests_path: str
) -> None:
    key_id = requests_path.split("/")[2]
    other_key = stack.create_key(owner.user_id)
    with stack.client(key) as program, stack.client(other_key) as other_program:
        data(program.get("/lists"))
        await_requests(client, requests_path, 1)
        data(program.get("/lists"))
        data(other_program.get("/lists"))
    stack.query("DELETE FROM api_keys WHERE id = %s", key_id)
    await_requests(client, f"/apikeys/{find_key_id(stack, owner, other_key)}/requests", 1)
    assert stack.query("SELECT 1 FROM api_requests WHERE key_id = %s", key_id) == []


def test_console_shows_and_filters_the_requests_of_an_api_key(
    console: OwnerAtConsole, stack: Stack
) -> None:
    key_id = find_key_id(stack, console.owner, console.owner.key)
    requests_path = f"/console/developers/keys/{key_id}/requests"
    assert requests_path in console.see("/console/developers/keys")
    assert "No requests yet" in console.see(requests_path)
    stack.query(INSERT_REQUESTS, key_id, REQUESTS_ON_PAGE + 1)
    text = console.see(requests_path)
    assert heading(text).startswith("Requests with ")
    rows = rows_of(text)[1:]
    assert len(rows) == REQUESTS_ON_PAGE
    assert rows[1][:4] == ["GET /lists", "400", "2 ms", "list.not_found"]
    assert rows[1][5].endswith(" request-2")
    assert 'rel="next"' in text
    assert "requests on this page failed" in text
    text = console.see(requests_path, status="4xx")
    assert {row[1] for row in rows_of(text)[1:]} == {"400"}
    assert '<option value="4xx" selected>' in text
    [call] = calls_of(text)
    assert call.path == f"/apikeys/{key_id}/requests?status=4xx"
    assert "No requests with this status" in console.see(requests_path, status="429")
