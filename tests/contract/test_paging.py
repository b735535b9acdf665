"""Tests that paging returns each item once, even if other items are created in between."""

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from devstack.harness.stack import Owner, Stack
from services.subscriptions.filters.member_filter import MAX_FILTER_BYTES
from tests.support.credits import credits, topups
from tests.support.http.openapi import openapi_document
from tests.support.http.replies import data, problem, send, walk_pages
from tests.support.imports.bulk import add, build_address_file, import_members_file
from tests.support.lists.segments import filter_of_bytes, new_field
from tests.support.lists.subscribers import new_address, new_list, require_member
from tests.support.lists.watched_segments import tag, watch_segment
from tests.support.people.oauth import log_in, register
from tests.support.security.calls import CALLS, Paging
from tests.support.senders.mailings import new_mailing

MIN_ITEMS = 2
# Routes whose pages are read by tests in other modules.
ROUTES_TESTED_ELSEWHERE = (
    "/apikeys/{key_id}/requests",
    "/events",
    "/senders/{sender_id}/reports",
    "/webhook-endpoints/{endpoint_id}/deliveries",
)


def _list_routes(*paging: Paging) -> list[str]:
    return [
        path
        for method, path in (operation.split() for operation in CALLS)
        if CALLS[f"{method} {path}"].paging in paging and path not in ROUTES_TESTED_ELSEWHERE
    ]


# The routes that return pages with a cursor. `full_account` provides the path parameters.
CURSOR_ROUTES = _list_routes("cursor", "offset")
OFFSET_ROUTES = _list_routes("offset")
ARRAY_ROUTES = _list_routes("array")
IDENTIFYING_FIELDS = ("id", "order_id", "hash_id", "action", "at")

FullAccount = tuple[httpx2.Client, dict[str, Any]]


@pytest.fixture(scope="module")
def full_account(stack: Stack) -> FullAccount:
    """The API client of an owner with much data, and the path parameters of the tested routes.

    For this owner, each tested route returns more than `MIN_ITEMS` items.
    """
    owner = stack.create_owner()
    client = stack.client(owner.key)
    list_ids = [new_list(client)["id"] for _ in range(5)]
    list_id = list_ids[-1]
    addresses = [f"reader{number}.{list_id}@example.com" for number in range(4)]
    person = log_in(stack, owner)
    for number, address in enumerate(addresses):
        send(client)
        import_members_file(client, list_id, build_address_file(address))
        import_members_file(client, list_ids[number], build_address_file(addresses[0]))
        data(client.post(f"/subscriptions/{list_ids[number]}/no-challenge"))
        register(stack, name=f"program {number}").tokens(person, "credit.read")
        topups.create_order(client)
        credits.grant(stack, owner.user_id, "1")
        data(client.post("/apikeys", json={"name": f"key {number}"}))
        data(client.patch(f"/lists/{list_id}/members/{address}", json={"add_tags": [f"t{number}"]}))
        segment = {"name": f"Segment {number}", "filter": {"field": "tag", "is": "vip"}}
        data(client.post(f"/lists/{list_id}/segments", json=segment))
        new_mailing(stack, list_id, rows=number)
    person.browser.close()
    user_id = require_member(client, list_id, addresses[0])["user_id"]
    for tier in ("silver", "gold", "free"):
        data(client.patch(f"/lists/{list_id}/members/{user_id}", json={"type": tier}))
    for source, target in ((list_id, list_ids[0]), (list_ids[0], list_id)):
        path = f"/subscriptions/{source}/members/{user_id}/transfer"
        data(client.post(path, params={"dst_list_id": target}))
    watched = watch_segment(stack, client, list_id)
    for address in addresses:
        tag(watched, address)
    watched.compare()
    return client, {"list_id": list_id, "user_id": user_id, "segment_id": watched.id}


def identify(items: list[Any]) -> list[Any]:
    return [[each.get(name) for name in IDENTIFYING_FIELDS] for each in items]


def test_paging_tests_cover_every_documented_route_with_a_limit() -> None:
    routes_with_limit = {
        path
        for path, operations in openapi_document()["paths"].items()
        for parameter in operations.get("get", {}).get("parameters", [])
        # The stock photo provider numbers its pages and has no cursors.
        if parameter.get("name") == "limit" and "/photos/" not in path
    }
    assert routes_with_limit == {*CURSOR_ROUTES, *ARRAY_ROUTES, *ROUTES_TESTED_ELSEWHERE}


@pytest.mark.parametrize("path", CURSOR_ROUTES)
@pytest.mark.parametrize("limit", [1, 3])
def test_cursor_pages_return_the_same_items_as_one_large_page(
    full_account: FullAccount, path: str, limit: int
) -> None:
    client, values = full_account
    url = path.format(**values)
    large_page = data(client.get(url, params={"limit": 1000}))
    assert large_page["pagination"]["next_cursor"] is None
    assert len(large_page["items"]) > MIN_ITEMS
    assert identify(walk_pages(client, url, limit)) == identify(large_page["items"])


@pytest.mark.parametrize("path", ARRAY_ROUTES)
@pytest.mark.parametrize("limit", [1, 3])
def test_link_header_pages_return_the_same_items_as_one_array(
    full_account: FullAccount, path: str, limit: int
) -> None:
    client, values = full_account
    base_url = path.format(**values)
    full_reply = client.get(base_url)
    assert "link" not in full_reply.headers
    assert len(data(full_reply)) > MIN_ITEMS
    items: list[Any] = []
    url: str | None = f"{base_url}?limit={limit}"
    while url is not None:
        page = client.get(url)
        items += data(page)
        url = page.links["next"]["url"] if "link" in page.headers else None
        if url is not None:
            assert len(data(page)) == limit
            url = str(page.url.join(url))
    assert identify(items) == identify(data(full_reply))


@pytest.mark.parametrize("path", OFFSET_ROUTES)
def test_offset_pages_return_the_same_items_as_one_large_page(
    full_account: FullAccount, path: str
) -> None:
    client, values = full_account
    url = path.format(**values)
    all_items = data(client.get(url, params={"limit": 1000}))["items"]
    items: list[Any] = []
    while True:
        page = data(client.get(url, params={"limit": MIN_ITEMS, "offset": str(len(items))}))
        items += page["items"]
        assert page["pagination"]["next_offset"] == len(items)
        if len(page["items"]) < MIN_ITEMS:
            break
    assert identify(items) == identify(all_items)


@pytest.mark.parametrize("path", [*CURSOR_ROUTES, "/apikeys"])
def test_listings_return_the_newest_item_first(full_account: FullAccount, path: str) -> None:
    client, values = full_account
    listing = data(client.get(path.format(**values)))
    items = listing if path in ARRAY_ROUTES else listing["items"]
    [time_name] = {"created_at", "occurred_at", "at"} & set(items[0])
    times = [each[time_name] for each in items]
    assert times == sorted(times, reverse=True)
    if path in OFFSET_ROUTES:
        expected_pagination = {"offset": 0, "next_offset": len(items), "next_cursor": None}
        assert listing["pagination"] | expected_pagination == listing["pagination"]


@pytest.mark.parametrize("path", [*CURSOR_ROUTES, *ARRAY_ROUTES])
def test_listings_reject_malformed_cursors(full_account: FullAccount, path: str) -> None:
    client, values = full_account
    for cursor in ("", "x", "-1", "1.5", "1e3", "٣", "9" * 30, "1-", "0x1", "1 ", "\0"):
        reply = client.get(path.format(**values), params={"cursor": cursor})
        problem(reply, 400, "cursor.invalid")


@pytest.mark.parametrize("path", [*CURSOR_ROUTES, *ARRAY_ROUTES])
def test_listings_reject_limits_and_offsets_out_of_bounds(
    full_account: FullAccount, path: str
) -> None:
    client, values = full_account
    url = path.format(**values)
    invalid_values = {"limit": ["0", "1001", "-1", "abc", "", "1.5", "9" * 30]}
    if path in OFFSET_ROUTES:
        invalid_values["offset"] = ["-1", "abc", "", "1.5", str(2**53), str(2**64), "9" * 5000]
        page_beyond_the_end = data(client.get(url, params={"offset": 2**53 - 1}))
        assert (page_beyond_the_end["items"], page_beyond_the_end["pagination"]["next_offset"]) == (
            [],
            2**53 - 1,
        )
    for name, values_of_name in invalid_values.items():
        for value in values_of_name:
            body = problem(client.get(url, params={name: value}), 400, "request.invalid")
            assert body["errors"][0]["field"] == f"query.{name}"


def test_item_created_between_two_pages_does_not_shift_the_next_page(stack: Stack) -> None:
    owner = stack.create_owner()
    with stack.client(owner.key) as client:
        list_ids = [new_list(client)["id"] for _ in range(4)][::-1]
        first_page = data(client.get("/lists", params={"limit": MIN_ITEMS}))
        new_list(client)
        cursor = first_page["pagination"]["next_cursor"]
        second_page = data(client.get("/lists", params={"limit": MIN_ITEMS, "cursor": cursor}))
    assert [each["id"] for each in first_page["items"] + second_page["items"]] == list_ids


def test_cursor_pages_return_items_with_equal_timestamps_exactly_once(
    stack: Stack, owner: Owner
) -> None:
    with stack.client(owner.key) as client:
        created_ids = {new_list(client)["id"] for _ in range(5)}
        stack.query("UPDATE lists SET created_at = now() WHERE user_id = %s", owner.user_id)
        listed_ids = [each["id"] for each in walk_pages(client, "/lists", MIN_ITEMS)]
    assert sorted(listed_ids) == sorted(created_ids)
    assert listed_ids == sorted(listed_ids, reverse=True)


def test_cursor_of_one_owner_reveals_nothing_to_another_owner(
    full_account: FullAccount, stack: Stack, owner: Owner
) -> None:
    client, _ = full_account
    cursor = data(client.get("/lists", params={"limit": 1}))["pagination"]["next_cursor"]
    with stack.client(owner.key) as other_client:
        assert data(other_client.get("/lists", params={"cursor": cursor}))["items"] == []


MAX_RESPONSE_BYTES = 4_000_000


@pytest.fixture(scope="module")
def large_list(stack: Stack) -> Iterator[tuple[httpx2.Client, int]]:
    """An API client and the id of a mailing list that has 9 MB of members and segments."""
    with stack.client(stack.create_owner().key) as client:
        list_id = new_list(client)["id"]
        fields = [new_field(client, f"field_{number}")["id"] for number in range(50)]
        values = {str(field_id): "ö" * 1000 for field_id in fields}
        data(add(client, list_id, *(new_address() for _ in range(90))))
        stack.query(
            "UPDATE subscriptions SET fields = %s WHERE list_id = %s", json.dumps(values), list_id
        )
        stack.query(
            "INSERT INTO segments (list_id, name, folded, filter)"
            " SELECT %s, n::text, n::text, %s FROM generate_series(1, 500) AS n",
            *(list_id, json.dumps(filter_of_bytes(MAX_FILTER_BYTES))),
        )
        yield client, list_id


@pytest.mark.parametrize("query", [{}, {"filter": '{"field": "email", "exists": true}'}])
@pytest.mark.parametrize("collection", ["subscriptions", "segments"])
def test_paged_response_ends_below_4_mb_and_its_cursor_finds_the_remaining_items(
    large_list: tuple[httpx2.Client, int], collection: str, query: dict[str, str]
) -> None:
    client, list_id = large_list
    path = f"/lists/{list_id}/{collection}"
    params = {"limit": "1000", **query}
    first_reply = client.get(path, params=params)
    assert MAX_RESPONSE_BYTES / 2 < len(first_reply.content) < MAX_RESPONSE_BYTES
    [items, pagination] = [data(first_reply)[name] for name in ("items", "pagination")]
    assert pagination["next_offset"] == len(items)
    items_by_cursor = [*items]
    while cursor := pagination["next_cursor"]:
        reply = client.get(path, params={**params, "cursor": cursor})
        assert len(reply.content) < MAX_RESPONSE_BYTES
        items_by_cursor += data(reply)["items"]
        pagination = data(reply)["pagination"]
    ids = [each["id"] for each in items_by_cursor]
    assert ids == sorted(set(ids), reverse=True)
    assert len(ids) == {"subscriptions": 90, "segments": 500}[collection]
    if not query:
        page_by_offset = data(client.get(path, params={**params, "offset": len(items)}))
        assert [each["id"] for each in page_by_offset["items"]][:1] == ids[len(items) :][:1]
        assert page_by_offset["pagination"]["next_offset"] == len(items) + len(
            page_by_offset["items"]
        )
