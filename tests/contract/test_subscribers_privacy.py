"""A person's own name is theirs, and a form tells nobody who is a member."""

import httpx
import pytest

from tests.contract.replies import data
from tests.contract.subscribers import (
    Reader,
    known_member,
    new_address,
    new_list,
    subscribe,
)


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
