"""What a person sees of their own subscriptions: one, all, and the one that a mail is about."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from core.scopes import Scope
from tests.contract.replies import data, problem
from tests.contract.subscribers import (
    LIST_FIELDS,
    SUBSCRIPTION_FIELDS,
    Reader,
    new_list,
    subscribe,
    trace_for,
)
from tests.stack import Stack

UINT64_MAX = 2**64 - 1


def opponent(caller: httpx.Client, **query: object) -> httpx.Response:
    return caller.get("/subscriptions/opponent", params=dict(query))  # type: ignore[arg-type]


def test_relation_is_the_callers_own_by_id_and_by_slug(
    client: httpx.Client, make_reader: Callable[[], Reader], letter: dict[str, Any]
) -> None:
    one, two = make_reader().joins(letter["id"]), make_reader().joins(letter["id"])
    for name in (letter["id"], letter["slug"]):
        found = data(one.client.get(f"/subscriptions/{name}/rel"))
        assert set(found) == SUBSCRIPTION_FIELDS
        assert (found["user_id"], found["email"]) == (one.user_id, one.email)
        assert found["user"] is None
        assert set(found["list"]) == LIST_FIELDS
        assert found["list"] == {**letter, "subscriber_count": 2}
        assert two.email not in one.client.get(f"/subscriptions/{name}/rel").text


def test_relation_is_told_whatever_the_status(
    client: httpx.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id).leaves(list_id)
    assert reader.standing(list_id)["status"] == "unsubscribed"
    assert data(client.delete(f"/subscriptions/{list_id}/members/{reader.user_id}")) == 1
    assert reader.standing(list_id)["status"] == "removed"


def test_no_relation_is_404(client: httpx.Client, reader: Reader, letter: dict[str, Any]) -> None:
    for caller in (client, reader.client):
        for name in (letter["id"], letter["slug"]):
            reply = caller.get(f"/subscriptions/{name}/rel")
            problem(reply, 404, "subscription.not_found")
    for name in (0, UINT64_MAX, "no-such-list"):
        problem(reader.client.get(f"/subscriptions/{name}/rel"), 404, "list.not_found")
    for name in (UINT64_MAX + 1, "-1", "No_Slug"):
        problem(reader.client.get(f"/subscriptions/{name}/rel"), 400, "list.name_invalid")


def test_my_subscriptions_are_mine_newest_first_with_their_lists(
    client: httpx.Client, neighbour: httpx.Client, make_reader: Callable[[], Reader]
) -> None:
    reader, other = make_reader(), make_reader()
    lists = [new_list(each) for each in (client, neighbour, client)]
    for each in lists:
        reader.joins(each["id"])
    other.joins(lists[0]["id"])
    found = data(reader.client.get("/subscriptions"))
    assert [each["list_id"] for each in found] == [each["id"] for each in lists][::-1]
    for each in found:
        assert set(each) == SUBSCRIPTION_FIELDS
        assert (each["user_id"], each["user"]) == (reader.user_id, None)
        assert each["list"] == data(client.get(f"/lists/{each['list_id']}"))
    assert [each["list_id"] for each in data(other.client.get("/subscriptions"))] == [
        lists[0]["id"]
    ]
    assert data(client.get("/subscriptions")) == []


def test_my_subscriptions_are_those_that_i_have(
    client: httpx.Client, stranger: httpx.Client, reader: Reader
) -> None:
    left, removed, archived, kept = (new_list(client)["id"] for _ in range(4))
    pending = new_list(client, confirm_required=True)["id"]
    for each in (left, removed, archived, kept):
        reader.joins(each)
    subscribe(stranger, pending, reader.email)
    reader.leaves(left)
    assert data(client.delete(f"/subscriptions/{removed}/members/{reader.user_id}")) == 1
    assert data(client.delete(f"/lists/{archived}")) == 1
    found = data(reader.client.get("/subscriptions"))
    assert [(each["list_id"], each["status"]) for each in found] == [
        (pending, "pending"),
        (kept, "active"),
    ]


def test_opponent_by_trace_id_is_the_list_and_the_persons_subscription(
    stack: Stack, client: httpx.Client, stranger: httpx.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    trace_id = trace_for(stack, list_id, reader.user_id)
    with stack.client("prk_nonsense") as mistaken:
        for caller in (stranger, client, mistaken):
            for query in ({}, {"list_id": list_id}):
                found = data(opponent(caller, trace_id=trace_id, **query))
                assert set(found) == {"list", "sub"}
                assert found["list"] == data(client.get(f"/lists/{list_id}"))
                assert set(found["sub"]) == SUBSCRIPTION_FIELDS
                hidden = {"email": f"{reader.email[0]}…@example.com", "name": None, "user_id": None}
                assert found["sub"] == {**reader.standing(list_id), "list": None, **hidden}


def test_opponent_by_login_needs_the_list(reader: Reader, list_id: int) -> None:
    reader.joins(list_id)
    found = data(opponent(reader.client, list_id=list_id))
    assert found["list"]["id"] == list_id
    assert found["sub"]["user_id"] == reader.user_id
    problem(opponent(reader.client), 400, "list_id.missing")


def test_opponent_of_nobody_is_401(stranger: httpx.Client, list_id: int) -> None:
    problem(opponent(stranger), 401, "auth.credentials_missing")
    problem(opponent(stranger, list_id=list_id), 401, "auth.credentials_missing")
    problem(opponent(stranger, list_id=list_id, trace_id=""), 401, "auth.credentials_missing")


def test_opponent_with_a_trace_id_of_another_list_is_403(
    stack: Stack, client: httpx.Client, stranger: httpx.Client, reader: Reader, list_id: int
) -> None:
    other = new_list(client)["id"]
    reader.joins(list_id).joins(other)
    trace_id = trace_for(stack, list_id, reader.user_id)
    for caller in (stranger, reader.client):
        reply = opponent(caller, trace_id=trace_id, list_id=other)
        problem(reply, 403, "trace.invalid")
        problem(opponent(caller, trace_id="nonsense", list_id=other), 403, "trace.invalid")


def test_opponent_without_a_subscription_is_404(
    stack: Stack, stranger: httpx.Client, reader: Reader, list_id: int
) -> None:
    trace_id = trace_for(stack, list_id, reader.user_id)
    problem(opponent(stranger, trace_id=trace_id), 404, "subscription.not_found")
    problem(opponent(reader.client, list_id=list_id), 404, "subscription.not_found")
    problem(opponent(reader.client, list_id=UINT64_MAX), 404, "list.not_found")


@pytest.mark.parametrize("list_id", [UINT64_MAX + 1, "-1", "a-slug", ""])
def test_opponent_of_what_is_no_id_is_400(reader: Reader, list_id: object) -> None:
    problem(opponent(reader.client, list_id=list_id), 400, "request.invalid")


def test_two_trace_ids_are_400(
    stack: Stack, stranger: httpx.Client, reader: Reader, list_id: int
) -> None:
    trace_id = trace_for(stack, list_id, reader.user_id)
    reader.joins(list_id)
    path = "/subscriptions/opponent"
    reply = stranger.get(f"{path}?trace_id={trace_id}&trace_id={trace_id}A")
    problem(reply, 400, "trace.ambiguous")
    assert data(stranger.get(f"{path}?trace_id={trace_id}&trace_id={trace_id}"))


def test_reading_needs_a_login_that_may_read(
    stack: Stack, stranger: httpx.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    paths = (f"/subscriptions/{list_id}/rel", "/subscriptions", f"{OPPONENT}?list_id={list_id}")
    for path in paths:
        problem(stranger.get(path), 401, "auth.credentials_missing")
    with stack.client(stack.new_key(reader.user_id, Scope.SUBSCRIPTION_READ)) as reading:
        for path in paths:
            assert data(reading.get(path))
    with stack.client(stack.new_key(reader.user_id, Scope.CREDIT_FULL)) as unrelated:
        for path in paths:
            problem(unrelated.get(path), 403, "auth.insufficient_scope")


OPPONENT = "/subscriptions/opponent"
