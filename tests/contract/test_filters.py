"""Members by a filter: whom it means, in pages, and who may use it."""

import json
from typing import Any

import httpx2
import pytest

from models import SubscriptionStatus
from tests.contract.bulk import add
from tests.contract.replies import data, problem
from tests.contract.subscribers import members, new_address

Json = dict[str, Any]


def search(client: httpx2.Client, list_id: int, sent: object, **more: object) -> Json:
    body = {"filter": sent, **more}
    found: Json = data(client.post(f"/lists/{list_id}/members/search", json=body))
    return found


def listed(client: httpx2.Client, list_id: int, sent: object, **more: str | int) -> Json:
    query: dict[str, str | int] = {"filter": json.dumps(sent), **more}
    found: Json = data(client.get(f"/lists/{list_id}/subscriptions", params=query))
    return found


def names(page: Json) -> list[str]:
    return [item["name"] for item in page["items"]]


@pytest.fixture
def people(client: httpx2.Client, list_id: int) -> dict[str, int]:
    """Ids of Ada, Ben and Cy on the list: Ada has a tag and a field, and Cy was removed."""
    for name in ("Ada", "Ben", "Cy"):
        data(add(client, list_id, {"email": new_address(), "name": name}))
    data(client.post("/fields", json={"key": "city", "label": "City", "type": "text"}))
    found = {item["name"]: item["user_id"] for item in members(client, list_id)}
    change = {"fields": {"city": "Köln"}, "add_tags": ["VIP"]}
    data(client.patch(f"/lists/{list_id}/members/{found['Ada']}", json=change))
    data(client.delete(f"/subscriptions/{list_id}/members/{found['Cy']}"))
    return found


def test_both_doors_answer_the_same_page(
    client: httpx2.Client, list_id: int, people: dict[str, int]
) -> None:
    by_beginning = {"field": "name", "begins": "b"}
    for sent, expected in (
        ({"field": "tag", "is": "vip"}, ["Ada"]),
        ({"field": "fields.city", "is": "KÖLN"}, ["Ada"]),
        ({"not": {"field": "fields.city", "is": "köln"}}, ["Ben"]),
        ({"field": "fields.city", "is_not": "Berlin"}, ["Ben", "Ada"]),
        ({"field": "tag", "exists": False}, ["Ben"]),
        ({"field": "name", "contains": "DA"}, ["Ada"]),
        ({"any": [{"field": "name", "is": "ada"}, by_beginning]}, ["Ben", "Ada"]),
        ({"field": "joined_at", "before": "2001-01-01"}, []),
    ):
        page = search(client, list_id, sent)
        assert names(page) == expected, sent
        assert page == listed(client, list_id, sent)
        assert page["pagination"]["total"] == len(expected)
        assert page["pagination"]["next_cursor"] is None
    whole = data(client.get(f"/lists/{list_id}/subscriptions"))["items"]
    assert search(client, list_id, {"field": "email", "exists": True})["items"] == whole


def test_active_members_alone_are_meant_unless_others_are_named(
    client: httpx2.Client, list_id: int, people: dict[str, int]
) -> None:
    everybody = {"field": "email", "exists": True}
    assert names(search(client, list_id, everybody)) == ["Ben", "Ada"]
    named = {"field": "status", "in": ["removed", "active"]}
    assert names(search(client, list_id, named)) == ["Cy", "Ben", "Ada"]
    others = {"field": "status", "is_not": "active"}
    assert names(search(client, list_id, others)) == ["Cy"]
    removed = SubscriptionStatus.REMOVED.value
    assert names(search(client, list_id, everybody, status=removed)) == ["Cy"]
    assert names(listed(client, list_id, everybody, status=removed)) == ["Cy"]
    assert names(search(client, list_id, others, status="active")) == []


def test_what_is_no_filter_is_refused_with_its_place(client: httpx2.Client, list_id: int) -> None:
    path = f"/lists/{list_id}/members/search"
    sent = {"all": [{"field": "name", "is": "Ada"}, {"any": [{"field": "tag", "is": 1}]}]}
    refused = problem(client.post(path, json={"filter": sent}), 400, "filter.invalid")
    [error] = refused["errors"]
    assert error["field"] == "filter.all[1].any[0].is"
    assert refused["message"].startswith("filter.all[1].any[0].is: ")
    page = f"/lists/{list_id}/subscriptions"
    query = {"filter": json.dumps(sent)}
    assert problem(client.get(page, params=query), 400, "filter.invalid")["errors"] == [error]
    problem(client.get(page, params={"filter": "status=active"}), 400, "filter.invalid")
    problem(client.post(path, json={"filter": None}), 400, "filter.invalid")
    problem(client.post(path, json={}), 422, "body.invalid")
    problem(client.post(path, json={"filter": sent, "limit": 0}), 422, "body.invalid")
    known = {"field": "name", "is": "Ada"}
    problem(client.post(path, json={"filter": known, "cursor": "x"}), 400, "cursor.invalid")
    for name, value in {"offset": "1", "email": "a*", "premium": "1"}.items():
        beside = {"filter": json.dumps(known), name: value}
        problem(client.get(page, params=beside), 400, "filter.alone")
