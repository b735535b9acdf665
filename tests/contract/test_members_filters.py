"""Tests of member filters, whose results are compared with a simple search in Python."""

import itertools
import json
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import httpx2
import pytest
from pydantic import TypeAdapter

from api.schemas.envelope import Envelope
from api.schemas.subscriptions import MembersPage
from core import clock
from devstack.harness.stack import Stack
from models import SubscriptionStatus
from tests.support.http.replies import data, problem
from tests.support.imports.bulk import add
from tests.support.lists.subscribers import fetch_members, new_address, new_list, subscribe

Member = dict[str, Any]
STATUSES = ("active", "pending", "unsubscribed", "removed")
# Two addresses contain SQL wildcards, and one address starts with the local part of another.
ADDRESSES = ("ann@example.com", "an_@example.com", "ann%b@example.com", "anna@example.com")
EMAIL_FILTERS = (
    None,
    "ann@example.com",
    "ANN*",
    "an_*",
    "ann%*",
    "a\\*",
    "*",
    "*example.com",
    "ann\0*",
)
PREMIUM_FILTERS = (None, "1", "0", "free", "silver", "gold")
INSERT_MEMBERS = """
    WITH everybody AS (
        SELECT (random() * 9e15)::bigint + 1 AS id, row_number() OVER () AS n, *
        FROM unnest(%s) AS address, unnest(%s) AS status,
            unnest(ARRAY['free', 'silver', 'gold']) AS type,
            unnest(ARRAY[NULL, now() - interval '1 day', current_date + interval '2 days'])
                AS expiry
    ), people AS (
        INSERT INTO users (id, email, name)
        SELECT id, id || '@example.net', 'Name ' || n FROM everybody
    )
    INSERT INTO subscriptions (list_id, user_id, status, type, paid_expiry, email, source)
    SELECT %s, id, status, type, expiry, address, (ARRAY['login', 'import'])[1 + n %% 2]
    FROM everybody
"""


@pytest.fixture(scope="module")
def read_members_page(stack: Stack) -> Iterator[Callable[..., Member]]:
    """A function that reads a page of members from a list with members of every status."""
    with stack.client(stack.create_owner().key) as client:
        list_id = new_list(client)["id"]
        stack.query(INSERT_MEMBERS, list(ADDRESSES), list(STATUSES), list_id)

        def get(**query: object) -> Member:
            params = {name: str(value) for name, value in query.items() if value is not None}
            return dict(data(client.get(f"/lists/{list_id}/subscriptions", params=params)))

        yield get


@pytest.fixture(scope="module")
def expected_members(read_members_page: Callable[..., Member]) -> list[Member]:
    """All members of the list that `read_members_page` reads, from the newest to the oldest."""
    items = [
        item
        for status in STATUSES
        for item in read_members_page(status=status, limit=1000)["items"]
    ]
    assert len(items) == len(ADDRESSES) * len(STATUSES) * 9
    return sorted(items, key=lambda item: -item["id"])


def matches(item: Member, status: str, email: str | None, premium: str | None) -> bool:
    expiry = item["paid_expiry"]
    is_unexpired = expiry is None or datetime.fromisoformat(expiry) > clock.now()
    tier = item["type"] if is_unexpired else "free"
    wanted_tiers = {None: (tier,), "1": ("silver", "gold"), "0": ("free",)}.get(premium, (premium,))
    if item["status"] != status or tier not in wanted_tiers:
        return False
    if email is None:
        return True
    beginning = email.lower().removesuffix("*")
    address: str = item["email"]
    return address.startswith(beginning) if email.endswith("*") else address == beginning


def test_every_combination_of_member_filters_returns_and_counts_exact_matches(
    read_members_page: Callable[..., Member], expected_members: list[Member]
) -> None:
    for status, email, premium in itertools.product(STATUSES, EMAIL_FILTERS, PREMIUM_FILTERS):
        expected = [item for item in expected_members if matches(item, status, email, premium)]
        page = read_members_page(status=status, email=email, premium=premium, limit=7)
        filters = (status, email, premium)
        assert page["pagination"]["total"] == len(expected), filters
        assert page["items"] == expected[:7], filters


def test_offset_and_cursor_pages_return_all_members_once_in_the_same_order(
    read_members_page: Callable[..., Member],
) -> None:
    all_members = read_members_page(premium="0", limit=1000)["items"]
    by_offset: list[Member] = []
    by_cursor: list[Member] = []
    page = read_members_page(premium="0", limit=4)
    while True:
        by_cursor += page["items"]
        by_offset += read_members_page(premium="0", limit=4, offset=len(by_offset))["items"]
        cursor = page["pagination"]["next_cursor"]
        if cursor is None:
            break
        page = read_members_page(premium="0", limit=4, cursor=cursor)
    assert by_offset == by_cursor == all_members
    assert len(all_members) > 8


def test_members_response_matches_its_documented_model_exactly(
    read_members_page: Callable[..., Member], expected_members: list[Member]
) -> None:
    page = read_members_page(limit=1000)
    body = {"data": page, "ts": 0}
    model = TypeAdapter(Envelope[MembersPage])
    assert model.dump_python(model.validate_python(body), mode="json") == body
    assert len(page["items"]) == len(expected_members) / len(STATUSES)


def test_member_premium_filter_accepts_several_spellings(
    read_members_page: Callable[..., Member],
) -> None:
    for spelling, *other_spellings in (
        ("1", "true", "TRUE"),
        ("0", "False", "FREE"),
        ("gold", "Gold"),
    ):
        expected = read_members_page(premium=spelling)["items"]
        assert all(
            read_members_page(premium=other_spelling)["items"] == expected
            for other_spelling in other_spellings
        )


def test_member_search_matches_any_spelling_of_an_internationalized_domain(
    client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    local_part = new_address().partition("@")[0]
    assert data(subscribe(stranger, list_id, f"{local_part}@bücher.example.com")) == 1
    for email_filter in (
        f" {local_part}@bücher.example.com ",
        f"{local_part}@XN--BCHER-KVA.example.com",
    ):
        assert len(fetch_members(client, list_id, email=email_filter)) == 1
    assert len(fetch_members(client, list_id, email=f"{local_part}@bu\u0308ch*")) == 1


Json = dict[str, Any]


def search_members(
    client: httpx2.Client, list_id: int, condition: object, **options: object
) -> Json:
    body = {"filter": condition, **options}
    return dict(data(client.post(f"/lists/{list_id}/members/search", json=body)))


def list_members(
    client: httpx2.Client, list_id: int, condition: object, **options: str | int
) -> Json:
    query: dict[str, str | int] = {"filter": json.dumps(condition), **options}
    return dict(data(client.get(f"/lists/{list_id}/subscriptions", params=query)))


def read_names(page: Json) -> list[str]:
    return [item["name"] for item in page["items"]]


@pytest.fixture
def member_ids(client: httpx2.Client, list_id: int) -> dict[str, int]:
    """The user ids of three list members by name. Cy has been removed from the list."""
    for name in ("Ada", "Ben", "Cy"):
        data(add(client, list_id, {"email": new_address(), "name": name}))
    data(client.post("/fields", json={"key": "city", "label": "City", "type": "text"}))
    ids = {item["name"]: item["user_id"] for item in fetch_members(client, list_id)}
    changes = {"fields": {"city": "Köln"}, "add_tags": ["VIP"]}
    data(client.patch(f"/lists/{list_id}/members/{ids['Ada']}", json=changes))
    data(client.delete(f"/subscriptions/{list_id}/members/{ids['Cy']}"))
    return ids


def test_member_search_and_member_listing_return_the_same_page_for_a_filter(
    client: httpx2.Client, list_id: int, member_ids: dict[str, int]
) -> None:
    name_begins_with_b = {"field": "name", "begins": "b"}
    for member_filter, expected in (
        ({"field": "tag", "is": "vip"}, ["Ada"]),
        ({"not": {"field": "fields.city", "is": "KÖLN"}}, ["Ben"]),
        ({"any": [{"field": "name", "is": "ada"}, name_begins_with_b]}, ["Ben", "Ada"]),
        ({"field": "joined_at", "before": "2001-01-01"}, []),
    ):
        page = search_members(client, list_id, member_filter)
        assert read_names(page) == expected, member_filter
        assert page == list_members(client, list_id, member_filter)
        assert page["pagination"]["total"] == len(expected)
        assert page["pagination"]["next_cursor"] is None
    all_members = data(client.get(f"/lists/{list_id}/subscriptions"))["items"]
    assert (
        search_members(client, list_id, {"field": "email", "exists": True})["items"] == all_members
    )


def test_member_filter_matches_only_active_members_unless_a_status_is_named(
    client: httpx2.Client, list_id: int, member_ids: dict[str, int]
) -> None:
    everybody = {"field": "email", "exists": True}
    assert read_names(search_members(client, list_id, everybody)) == ["Ben", "Ada"]
    removed_or_active = {"field": "status", "in": ["removed", "active"]}
    assert read_names(search_members(client, list_id, removed_or_active)) == ["Cy", "Ben", "Ada"]
    not_active = {"field": "status", "is_not": "active"}
    assert read_names(search_members(client, list_id, not_active)) == ["Cy"]
    removed = SubscriptionStatus.REMOVED.value
    assert read_names(search_members(client, list_id, everybody, status=removed)) == ["Cy"]
    assert read_names(list_members(client, list_id, everybody, status=removed)) == ["Cy"]
    assert read_names(search_members(client, list_id, not_active, status="active")) == []


def test_malformed_member_filter_is_rejected_with_the_place_of_the_error(
    client: httpx2.Client, list_id: int
) -> None:
    path = f"/lists/{list_id}/members/search"
    malformed_filter = {
        "all": [{"field": "name", "is": "Ada"}, {"any": [{"field": "tag", "is": 1}]}]
    }
    response = problem(client.post(path, json={"filter": malformed_filter}), 400, "filter.invalid")
    [error] = response["errors"]
    assert error["field"] == "filter.all[1].any[0].is"
    assert response["message"].startswith("filter.all[1].any[0].is: ")
    list_path = f"/lists/{list_id}/subscriptions"
    query = {"filter": json.dumps(malformed_filter)}
    assert problem(client.get(list_path, params=query), 400, "filter.invalid")["errors"] == [error]
    problem(client.get(list_path, params={"filter": "status=active"}), 400, "filter.invalid")
    problem(client.post(path, json={"filter": None}), 400, "filter.invalid")
    problem(client.post(path, json={}), 422, "body.invalid")
    problem(client.post(path, json={"filter": malformed_filter, "limit": 0}), 422, "body.invalid")
    valid_filter = {"field": "name", "is": "Ada"}
    problem(client.post(path, json={"filter": valid_filter, "cursor": "x"}), 400, "cursor.invalid")
    for name, value in {"offset": "1", "email": "a*", "premium": "1"}.items():
        query_with_more = {"filter": json.dumps(valid_filter), name: value}
        problem(client.get(list_path, params=query_with_more), 400, "filter.alone")
