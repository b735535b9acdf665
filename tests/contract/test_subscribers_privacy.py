"""A member's address is for the list's owner and the member; a person's own name is theirs."""

from collections.abc import Iterator

import httpx
import pytest

from tests.contract.replies import data
from tests.contract.subscribers import (
    Reader,
    known_member,
    new_address,
    new_list,
    subscribe,
    trace_for,
)
from tests.stack import Stack


def everything_one_can_ask(list_id: int, slug: str, user_id: int) -> Iterator[tuple[str, str]]:
    for path in (
        "/lists",
        f"/lists/{list_id}",
        f"/lists/{slug}",
        f"/lists/{list_id}/subscriptions",
        f"/lists/{list_id}/members/{user_id}/history",
        f"/lists/{list_id}/members/{user_id}/consent",
        "/subscriptions",
        f"/subscriptions/{list_id}/rel",
        f"/subscriptions/{slug}/rel",
        f"/subscriptions/opponent?list_id={list_id}",
        f"/subscriptions/{list_id}/members/{user_id}/subs",
        "/users/me",
        "/jobs",
    ):
        yield "GET", path
    yield "PATCH", f"/lists/{list_id}/members/{user_id}"
    yield "PUT", f"/subscriptions/{list_id}/members/{user_id}/email"
    yield "DELETE", f"/subscriptions/{list_id}/members/{user_id}"
    yield "POST", f"/subscriptions/{list_id}/members/{user_id}/transfer?dst_list_id={list_id}"


def test_nobody_else_is_told_a_members_address(
    stack: Stack,
    client: httpx.Client,
    neighbour: httpx.Client,
    stranger: httpx.Client,
    reader: Reader,
) -> None:
    letter = new_list(client)
    reader.joins(letter["id"])
    theirs = new_list(neighbour)["id"]
    other = stack.new_owner()
    trace = {"trace_id": trace_for(stack, letter["id"], other.user_id)}
    with stack.client(other.key) as fellow:
        assert data(fellow.post(f"/subscriptions/{letter['id']}/no-challenge")) == 1
        for caller in (neighbour, stranger, fellow):
            for method, path in everything_one_can_ask(
                letter["id"], letter["slug"], reader.user_id
            ):
                reply = caller.request(method, path, json={} if method != "GET" else None)
                assert reply.status_code < 500
                assert reader.email not in reply.text, path
                assert reader.name not in reply.text, path
    assert reader.email not in stranger.get("/subscriptions/opponent", params=trace).text
    assert reader.email not in subscribe(stranger, letter["id"], reader.email).text
    assert reader.email not in neighbour.get(f"/lists/{theirs}/subscriptions").text


def test_owner_and_member_are_told(
    stack: Stack, client: httpx.Client, stranger: httpx.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    trace = {"trace_id": trace_for(stack, list_id, reader.user_id)}
    for reply in (
        client.get(f"/lists/{list_id}/subscriptions"),
        client.get(f"/subscriptions/{list_id}/members/{reader.user_id}/subs"),
        reader.client.get(f"/subscriptions/{list_id}/rel"),
        reader.client.get("/subscriptions"),
        reader.client.get("/subscriptions/opponent", params={"list_id": list_id}),
    ):
        assert reader.email in reply.text
    # The link of a mail that was passed on shows the address masked.
    assert reader.email not in stranger.get("/subscriptions/opponent", params=trace).text


def test_a_persons_name_is_for_lists_that_they_joined_by_a_login(
    client: httpx.Client, stranger: httpx.Client, reader: Reader, list_id: int
) -> None:
    subscribe(stranger, list_id, reader.email)
    user_id = reader.user_id
    subs = f"/subscriptions/{list_id}/members/{user_id}/subs"
    for reply in (
        client.get(f"/lists/{list_id}/subscriptions"),
        client.get(subs),
        client.patch(f"/lists/{list_id}/members/{user_id}", json={"type": "gold"}),
    ):
        assert reader.name not in reply.text
    [found] = data(client.get(subs))
    assert (found["user"], found["name"]) == ({"id": user_id, "name": None}, None)
    joined = new_list(client)["id"]
    reader.joins(joined)
    shown = known_member(client, joined, reader.email)
    assert (shown["user"]["name"], shown["name"]) == (reader.name, reader.name)
    # Having shown it to one list of an owner's does not show it to the next.
    assert known_member(client, list_id, reader.email)["user"]["name"] is None


def test_a_move_does_not_show_a_name_to_another_list(
    client: httpx.Client, stranger: httpx.Client, reader: Reader, list_id: int
) -> None:
    other = new_list(client)["id"]
    subscribe(stranger, list_id, reader.email)
    path = f"/subscriptions/{list_id}/members/{reader.user_id}/transfer"
    assert data(client.post(path, params={"dst_list_id": other})) == 1
    assert reader.name not in client.get(f"/lists/{other}/subscriptions").text


@pytest.mark.parametrize("confirm_required", [False, True])
def test_the_form_answers_alike_for_every_address(
    client: httpx.Client, stranger: httpx.Client, reader: Reader, confirm_required: bool
) -> None:
    letter = new_list(client, confirm_required=confirm_required)
    reader.joins(letter["id"])
    replies = [
        subscribe(stranger, letter["id"], email)
        for email in (reader.email, new_address(), data(client.get("/users/me"))["email"])
    ]
    reader.leaves(letter["id"])
    replies.append(subscribe(stranger, letter["id"], reader.email))
    assert {data(each) for each in replies} == {1}
    assert len({tuple(sorted(each.headers)) for each in replies}) == 1
