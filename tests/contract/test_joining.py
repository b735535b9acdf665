"""A person with a login subscribes themselves: their own act, so nothing stands in its way."""

from typing import Any

import httpx
import pytest

from tests.contract.replies import data, problem
from tests.contract.subscribers import Reader, count, known_member, new_list, subscribe
from tests.stack import Stack

UINT64_MAX = 2**64 - 1


def join(reader: Reader, list_id: int) -> int:
    found: int = data(reader.client.post(f"/subscriptions/{list_id}/no-challenge"))
    return found


def test_first_time_is_1_and_again_is_0(client: httpx.Client, reader: Reader, list_id: int) -> None:
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


def test_after_leaving_it_is_active_again(
    client: httpx.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id).leaves(list_id)
    assert join(reader, list_id) == 1
    assert reader.stands(list_id) == ("active", True)
    assert count(client, list_id) == 1


def test_after_removal_it_is_active_again(
    client: httpx.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    assert data(client.delete(f"/subscriptions/{list_id}/members/{reader.user_id}")) == 1
    assert join(reader, list_id) == 1
    assert reader.stands(list_id) == ("active", True)


@pytest.mark.parametrize("from_status", ["active", "unsubscribed", "removed", "never there"])
def test_coming_back_lifts_every_opt_out(
    stack: Stack, client: httpx.Client, reader: Reader, list_id: int, from_status: str
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
    client: httpx.Client, stranger: httpx.Client, reader: Reader, list_id: int
) -> None:
    other = new_list(client)["id"]
    reader.joins(list_id).joins(other).leaves(list_id).leaves(other)
    assert join(reader, list_id) == 1
    subscribe(stranger, other, reader.email)
    assert reader.stands(other)[0] == "pending"


def test_pending_becomes_active(
    client: httpx.Client, stranger: httpx.Client, reader: Reader
) -> None:
    list_id = new_list(client, confirm_required=True)["id"]
    subscribe(stranger, list_id, reader.email)
    assert reader.stands(list_id)[0] == "pending"
    assert join(reader, list_id) == 1
    assert reader.stands(list_id) == ("active", True)


def test_an_owner_may_read_their_own_list(client: httpx.Client, list_id: int) -> None:
    assert data(client.post(f"/subscriptions/{list_id}/no-challenge")) == 1
    assert count(client, list_id) == 1


def test_a_body_makes_no_difference(reader: Reader, list_id: int) -> None:
    path = f"/subscriptions/{list_id}/no-challenge"
    assert data(reader.client.post(path, json={"email": "other@example.com"})) == 1
    assert reader.standing(list_id)["email"] == reader.email


def test_each_caller_subscribes_themselves_alone(
    client: httpx.Client, neighbour: httpx.Client, reader: Reader, list_id: int
) -> None:
    other = new_list(neighbour)["id"]
    reader.joins(list_id)
    assert data(neighbour.get("/subscriptions")) == []
    assert count(neighbour, other) == 0
    assert known_member(client, list_id, reader.email)["user_id"] == reader.user_id


def test_only_a_number_names_the_list(reader: Reader, letter: dict[str, Any]) -> None:
    for unknown in (0, 1, 2**53, UINT64_MAX):
        reply = reader.client.post(f"/subscriptions/{unknown}/no-challenge")
        problem(reply, 404, "list.not_found")
    for bad in (letter["slug"], UINT64_MAX + 1, "-1"):
        reply = reader.client.post(f"/subscriptions/{bad}/no-challenge")
        problem(reply, 400, "request.invalid")
