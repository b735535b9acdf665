"""A list's subscriptions as its owner sees them: pages, filters, totals."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.contract.replies import data, problem
from tests.contract.subscribers import (
    SUBSCRIPTION_FIELDS,
    Reader,
    count,
    fill,
    members,
    new_address,
    new_list,
    subscribe,
)
from tests.stack import Stack


def page(client: httpx.Client, list_id: int, **query: object) -> dict[str, Any]:
    reply = client.get(f"/lists/{list_id}/subscriptions", params=dict(query))  # type: ignore[arg-type]
    found: dict[str, Any] = data(reply)
    assert set(found) == {"items", "pagination"}
    assert found["pagination"]["next_offset"] == found["pagination"]["offset"] + len(found["items"])
    return found


def addresses(found: list[dict[str, Any]]) -> list[str]:
    return [each["email"] for each in found]


@pytest.fixture
def many(stack: Stack, list_id: int) -> list[str]:
    """The addresses of 120 members, newest first."""
    made = [f"m{number:03}.{new_address()}" for number in range(120)]
    fill(stack, list_id, made)
    return made[::-1]


def test_empty_list_has_an_empty_page(client: httpx.Client, list_id: int) -> None:
    assert page(client, list_id) == {
        "items": [],
        "pagination": {
            "total": 0,
            "offset": 0,
            "next_offset": 0,
            "limit": 50,
            "next_cursor": None,
        },
    }


def test_members_come_newest_first_with_every_field(
    client: httpx.Client, make_reader: Callable[[], Reader], list_id: int
) -> None:
    people = [make_reader().joins(list_id) for _ in range(2)]
    found = page(client, list_id)["items"]
    assert [each["user_id"] for each in found] == [each.user_id for each in people][::-1]
    for each, person in zip(found, people[::-1], strict=True):
        assert set(each) == SUBSCRIPTION_FIELDS
        assert each["user"] == {"id": person.user_id, "name": person.name}
        assert each["list"] is None
        # What the owner alone is shown.
        own = {"user": each["user"], "fields": {}, "tags": [], "joined_at": each["created_at"]}
        assert each == {**person.standing(list_id), **own, "list": None}


def test_pages_by_offset(client: httpx.Client, list_id: int, many: list[str]) -> None:
    first = page(client, list_id)
    assert addresses(first["items"]) == many[:50]
    assert {**first["pagination"], "next_cursor": ""} == {
        "total": 120,
        "offset": 0,
        "next_offset": 50,
        "limit": 50,
        "next_cursor": "",
    }
    last = page(client, list_id, offset=100, limit=30)
    assert addresses(last["items"]) == many[100:]
    assert (last["pagination"]["next_offset"], last["pagination"]["next_cursor"]) == (120, None)
    beyond = page(client, list_id, offset=2**53 - 1, limit=1000)
    assert (beyond["items"], beyond["pagination"]["total"]) == ([], 120)
    assert addresses(page(client, list_id, limit=1000)["items"]) == many
    exact = page(client, list_id, limit=120)
    assert exact["pagination"]["next_cursor"] is None


def test_bad_values_are_400_and_named(client: httpx.Client, list_id: int) -> None:
    for query in [
        "premium=2",
        "premium=platinum",
        "premium=",
        "premium=yes",
        "status=gone",
        "status=",
        "status=ACTIVE",
    ]:
        reply = client.get(f"/lists/{list_id}/subscriptions?{query}")
        body = problem(reply, 400, "request.invalid")
        name = query.partition("=")[0]
        assert {each["field"] for each in body["errors"]} == {f"query.{name}"}


def test_a_walk_by_cursor_sees_each_member_once_while_others_come_and_go(
    stack: Stack, client: httpx.Client, list_id: int, many: list[str]
) -> None:
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        found = page(client, list_id, limit=25, **cursor)
        seen += addresses(found["items"])
        fill(stack, list_id, [new_address() for _ in range(7)])
        gone = found["items"][3]["user_id"]
        assert data(client.delete(f"/subscriptions/{list_id}/members/{gone}")) == 1
        if found["pagination"]["next_cursor"] is None:
            break
        cursor = {"cursor": found["pagination"]["next_cursor"]}
    assert seen == many


def test_a_walk_by_cursor_keeps_to_its_filter(
    stack: Stack, client: httpx.Client, list_id: int, many: list[str]
) -> None:
    fill(stack, list_id, [f"other.{new_address()}" for _ in range(5)])
    first = page(client, list_id, limit=100, email="m*")
    assert first["pagination"]["total"] == 120
    rest = page(client, list_id, limit=100, email="m*", cursor=first["pagination"]["next_cursor"])
    assert addresses(first["items"]) + addresses(rest["items"]) == many
    assert rest["pagination"]["next_cursor"] is None


def test_total_counts_what_the_filter_lets_through(
    stack: Stack, client: httpx.Client, list_id: int, many: list[str]
) -> None:
    fill(stack, list_id, [new_address() for _ in range(3)], status="removed")
    fill(stack, list_id, [new_address() for _ in range(2)], status="pending")
    for query, expected in (
        ({}, 120),
        ({"status": "active"}, 120),
        ({"status": "removed"}, 3),
        ({"status": "pending"}, 2),
        ({"status": "unsubscribed"}, 0),
        ({"email": "m00*"}, 10),
        ({"email": many[0]}, 1),
        ({"email": "nobody@example.com"}, 0),
        ({"premium": "1"}, 0),
        ({"premium": "0"}, 120),
        ({"premium": "0", "email": "m00*"}, 10),
    ):
        found = page(client, list_id, limit=1, **query)
        assert (query, found["pagination"]["total"]) == (query, expected)
        assert len(found["items"]) == min(expected, 1)


def test_total_is_right_at_once_after_each_member(
    client: httpx.Client, stranger: httpx.Client, list_id: int
) -> None:
    for number in range(1, 4):
        subscribe(stranger, list_id, new_address())
        for query in ({}, {"email": "*"}):
            found = page(client, list_id, **query)
            assert found["pagination"]["total"] == len(found["items"]) == number


def test_each_status_has_its_own_pages(
    client: httpx.Client, stranger: httpx.Client, make_reader: Callable[[], Reader]
) -> None:
    list_id = new_list(client, confirm_required=True)["id"]
    active, left, removed = (make_reader().joins(list_id) for _ in range(3))
    pending = new_address()
    subscribe(stranger, list_id, pending)
    left.leaves(list_id)
    assert data(client.delete(f"/subscriptions/{list_id}/members/{removed.user_id}")) == 1
    for status, email in (
        ("active", active.email),
        ("unsubscribed", left.email),
        ("removed", removed.email),
        ("pending", pending),
    ):
        found = page(client, list_id, status=status)
        assert addresses(found["items"]) == [email]
        assert [each["status"] for each in found["items"]] == [status]
        assert found["pagination"]["total"] == 1
    assert addresses(members(client, list_id)) == [active.email]


def test_another_lists_members_are_not_shown(
    client: httpx.Client, neighbour: httpx.Client, reader: Reader, list_id: int
) -> None:
    other, theirs = new_list(client)["id"], new_list(neighbour)["id"]
    reader.joins(list_id).joins(theirs)
    assert page(client, other)["items"] == []
    [mine], [hers] = members(client, list_id), members(neighbour, theirs)
    assert mine["id"] != hers["id"]
    assert (mine["list_id"], hers["list_id"]) == (list_id, theirs)


# -- the count ------------------------------------------------------------------------------------


def test_subscriber_count_is_true_right_after_every_change(
    client: httpx.Client, stranger: httpx.Client, reader: Reader, list_id: int
) -> None:
    other = new_list(client)["id"]
    path = f"/subscriptions/{list_id}/members/{reader.user_id}"

    def both() -> tuple[int, int]:
        return count(client, list_id), count(client, other)

    assert both() == (0, 0)
    reader.joins(list_id)
    assert both() == (1, 0)
    reader.wants_mail(list_id, enabled=False)
    assert both() == (1, 0)
    assert data(client.post(f"{path}/transfer", params={"dst_list_id": other})) == 1
    assert both() == (0, 1)
    reader.leaves(other)
    assert both() == (0, 0)
    stranger.post(f"/subscriptions/{other}", json={"email": reader.email})
    assert both() == (0, 0)
    reader.joins(other).joins(list_id)
    assert both() == (1, 1)
    assert data(client.delete(path)) == 1
    assert both() == (0, 1)
    assert {
        each["id"]: each["subscriber_count"] for each in data(client.get("/lists"))["items"]
    } == {list_id: 0, other: 1}
