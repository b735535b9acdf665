"""What a person sees of their own subscriptions: one, all, and the one that a mail is about."""

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.contract.replies import data, problem
from tests.contract.subscribers import Reader, count, new_list, subscribe, trace_for
from tests.stack import Stack

UINT64_MAX = 2**64 - 1


def opponent(caller: httpx2.Client, **query: object) -> httpx2.Response:
    return caller.get("/subscriptions/opponent", params=dict(query))  # type: ignore[arg-type]


def test_relation_is_the_callers_own_by_id_and_by_slug(
    make_reader: Callable[[], Reader], letter: dict[str, Any]
) -> None:
    one, two = make_reader().joins(letter["id"]), make_reader().joins(letter["id"])
    for name in (letter["id"], letter["slug"]):
        found = data(one.client.get(f"/subscriptions/{name}/rel"))
        assert (found["user_id"], found["email"]) == (one.user_id, one.email)
        assert found["user"] is None
        assert found["list"] == {**letter, "subscriber_count": 2}
        assert two.email not in one.client.get(f"/subscriptions/{name}/rel").text


def test_no_relation_is_404(client: httpx2.Client, reader: Reader, letter: dict[str, Any]) -> None:
    for caller in (client, reader.client):
        for name in (letter["id"], letter["slug"]):
            reply = caller.get(f"/subscriptions/{name}/rel")
            problem(reply, 404, "subscription.not_found")
    for name in (0, UINT64_MAX, "no-such-list"):
        problem(reader.client.get(f"/subscriptions/{name}/rel"), 404, "list.not_found")
    for name in (UINT64_MAX + 1, "-1", "No_Slug"):
        problem(reader.client.get(f"/subscriptions/{name}/rel"), 400, "list.name_invalid")


def test_my_subscriptions_are_mine_newest_first_with_their_lists(
    client: httpx2.Client, neighbour: httpx2.Client, make_reader: Callable[[], Reader]
) -> None:
    reader, other = make_reader(), make_reader()
    lists = [new_list(each) for each in (client, neighbour, client)]
    for each in lists:
        reader.joins(each["id"])
    other.joins(lists[0]["id"])
    found = data(reader.client.get("/subscriptions"))
    assert [each["list_id"] for each in found] == [each["id"] for each in lists][::-1]
    for each in found:
        assert (each["user_id"], each["user"]) == (reader.user_id, None)
        assert each["list"] == data(client.get(f"/lists/{each['list_id']}"))
    assert [each["list_id"] for each in data(other.client.get("/subscriptions"))] == [
        lists[0]["id"]
    ]
    assert data(client.get("/subscriptions")) == []


def test_my_subscriptions_are_those_that_i_have(
    client: httpx2.Client, stranger: httpx2.Client, reader: Reader
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
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    trace_id = trace_for(stack, list_id, reader.user_id)
    with stack.client("prk_nonsense") as mistaken:
        for caller in (stranger, client, mistaken):
            for query in ({}, {"list_id": list_id}):
                found = data(opponent(caller, trace_id=trace_id, **query))
                assert set(found) == {"list", "sub"}
                assert found["list"] == data(client.get(f"/lists/{list_id}"))
                hidden = {"email": f"{reader.email[0]}…@example.com", "name": None, "user_id": None}
                assert found["sub"] == {**reader.standing(list_id), "list": None, **hidden}


def test_opponent_by_login_needs_the_list(reader: Reader, list_id: int) -> None:
    reader.joins(list_id)
    found = data(opponent(reader.client, list_id=list_id))
    assert found["list"]["id"] == list_id
    assert found["sub"]["user_id"] == reader.user_id
    problem(opponent(reader.client), 400, "list_id.missing")


def test_opponent_with_a_trace_id_of_another_list_is_403(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    other = new_list(client)["id"]
    reader.joins(list_id).joins(other)
    trace_id = trace_for(stack, list_id, reader.user_id)
    for caller in (stranger, reader.client):
        reply = opponent(caller, trace_id=trace_id, list_id=other)
        problem(reply, 403, "trace.invalid")
        problem(opponent(caller, trace_id="nonsense", list_id=other), 403, "trace.invalid")


def test_opponent_that_cannot_be_told_says_why(
    stack: Stack, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    trace_id = trace_for(stack, list_id, reader.user_id)
    for caller, query, status, code in (
        (stranger, {}, 401, "auth.credentials_missing"),
        (stranger, {"list_id": list_id}, 401, "auth.credentials_missing"),
        (stranger, {"list_id": list_id, "trace_id": ""}, 401, "auth.credentials_missing"),
        (stranger, {"trace_id": trace_id}, 404, "subscription.not_found"),
        (reader.client, {"list_id": list_id}, 404, "subscription.not_found"),
        (reader.client, {"list_id": UINT64_MAX}, 404, "list.not_found"),
        *(
            (reader.client, {"list_id": bad}, 400, "request.invalid")
            for bad in (UINT64_MAX + 1, "-1", "a-slug", "")
        ),
    ):
        problem(opponent(caller, **query), status, code)


def test_two_trace_ids_are_400(
    stack: Stack, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    trace_id = trace_for(stack, list_id, reader.user_id)
    reader.joins(list_id)
    path = "/subscriptions/opponent"
    reply = stranger.get(f"{path}?trace_id={trace_id}&trace_id={trace_id}A")
    problem(reply, 400, "trace.ambiguous")
    assert data(stranger.get(f"{path}?trace_id={trace_id}&trace_id={trace_id}"))


def join(reader: Reader, list_id: int) -> int:
    """Join; the address in the body is nobody's concern."""
    body = {"email": "other@example.com"}
    found: int = data(reader.client.post(f"/subscriptions/{list_id}/no-challenge", json=body))
    return found


def test_first_time_is_1_and_again_is_0(
    client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    assert join(reader, list_id) == 1
    before = reader.standing(list_id)
    assert (before["status"], before["email_enabled"]) == ("active", True)
    assert (before["source"], before["email"], before["name"]) == (
        "login",
        reader.email,
        reader.name,
    )
    assert join(reader, list_id) == 0
    assert reader.standing(list_id) == before
    assert count(client, list_id) == 1


@pytest.mark.parametrize("from_status", ["active", "unsubscribed", "removed", "never there"])
def test_coming_back_lifts_every_opt_out(
    stack: Stack, client: httpx2.Client, reader: Reader, list_id: int, from_status: str
) -> None:
    if from_status != "never there":
        reader.joins(list_id)
    reader.wants_mail(list_id, enabled=False)
    if from_status == "removed":
        data(client.delete(f"/subscriptions/{list_id}/members/{reader.user_id}"))
    if from_status != "active":
        reader.leaves(list_id)
        assert join(reader, list_id) == 1
        assert reader.stands(list_id) == ("active", True)
        assert stack.query("SELECT 1 FROM opt_outs WHERE user_id = %s", reader.user_id) == []
    else:
        # They never left: what they said about the mail stays said.
        assert join(reader, list_id) == 0
        assert reader.stands(list_id) == ("active", False)


def test_lifted_here_is_not_lifted_elsewhere(
    client: httpx2.Client, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    other = new_list(client)["id"]
    reader.joins(list_id).joins(other).leaves(list_id).leaves(other)
    assert join(reader, list_id) == 1
    subscribe(stranger, other, reader.email)
    assert reader.stands(other)[0] == "pending"
