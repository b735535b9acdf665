"""A list's subscriptions as its owner sees them: pages, filters, totals."""

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.contract.replies import data, problem
from tests.contract.subscribers import Reader, count, fill, new_address, new_list
from tests.stack import Stack


def page(client: httpx2.Client, list_id: int, **query: object) -> dict[str, Any]:
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


def test_members_come_newest_first_with_every_field(
    client: httpx2.Client, make_reader: Callable[[], Reader], list_id: int
) -> None:
    people = [make_reader().joins(list_id) for _ in range(2)]
    found = page(client, list_id)["items"]
    assert [each["user_id"] for each in found] == [each.user_id for each in people][::-1]
    for each, person in zip(found, people[::-1], strict=True):
        assert each["user"] == {"id": person.user_id, "name": person.name}
        assert each["list"] is None
        # What the owner alone is shown.
        own = {"user": each["user"], "fields": {}, "tags": [], "joined_at": each["created_at"]}
        assert each == {**person.standing(list_id), **own, "list": None}


def test_bad_values_are_400_and_named(client: httpx2.Client, list_id: int) -> None:
    for query in ["premium=2", "premium=platinum", "premium=", "status=", "status=ACTIVE"]:
        reply = client.get(f"/lists/{list_id}/subscriptions?{query}")
        body = problem(reply, 400, "request.invalid")
        name = query.partition("=")[0]
        assert {each["field"] for each in body["errors"]} == {f"query.{name}"}


def test_a_walk_by_cursor_sees_each_member_once_while_others_come_and_go(
    stack: Stack, client: httpx2.Client, list_id: int, many: list[str]
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


def test_subscriber_count_is_true_right_after_every_change(
    client: httpx2.Client, stranger: httpx2.Client, reader: Reader, list_id: int
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
