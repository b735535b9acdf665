"""Erasing a person: nothing tells who they were, and their no stays a no."""

from collections.abc import Iterator

import httpx
import pytest

from tests.commands import printed, refused
from tests.contract.replies import data, problem, send
from tests.contract.subscribers import Reader, count, known_member, members, new_list, subscribe
from tests.erasing import erase
from tests.stack import Stack


def tables_that_hold(stack: Stack, text: str) -> Iterator[str]:
    for (table,) in stack.query("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"):
        if stack.query(f'SELECT 1 FROM "{table}" AS t WHERE t::text ILIKE %s', f"%{text}%"):
            yield str(table)


def test_nothing_is_left_that_tells_who_it_was(
    stack: Stack, client: httpx.Client, stranger: httpx.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    other = new_list(client, confirm_required=True)["id"]
    subscribe(stranger, other, reader.email)
    data(send(reader.client, name=f"{reader.name}.png"))
    sign = f"erase-{reader.user_id}"
    reader.client.delete(f"/subscriptions/{list_id}", headers={"X-Request-ID": sign})
    assert set(tables_that_hold(stack, reader.email)) >= {"users", "subscriptions"}
    shown = printed(stack, "users", "erase", reader.email)
    assert shown["user_id"] == reader.user_id
    assert (shown["subscriptions"], shown["opt_outs_kept"]) == (2, 1)
    for text in (reader.email, reader.name, sign):
        assert list(tables_that_hold(stack, text)) == []
    assert count(client, list_id) == count(client, other) == 0
    problem(reader.client.get("/users/me"), 401, "auth.invalid_credentials")


def test_an_owner_sees_that_somebody_was_there_and_not_who(
    stack: Stack, client: httpx.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    erase(stack.resources, reader.email)
    [found] = members(client, list_id, status="removed")
    assert (found["email"], found["name"]) == (None, None)
    assert found["user"] == {"id": reader.user_id, "name": None}
    path = f"/lists/{list_id}/members/{reader.user_id}/history"
    entries = data(client.get(path))["items"]
    assert [each["action"] for each in entries] == ["erased", "subscribed"]
    assert {(each["ip"], each["request_id"]) for each in entries} == {(None, None)}


@pytest.mark.parametrize("said", ["left", "no mail"])
def test_an_opt_out_outlives_the_person(
    stack: Stack, client: httpx.Client, stranger: httpx.Client, reader: Reader, said: str
) -> None:
    refused_list, free = new_list(client)["id"], new_list(client)["id"]
    reader.joins(refused_list).joins(free)
    if said == "left":
        reader.leaves(refused_list)
    else:
        reader.wants_mail(refused_list, enabled=False)
    erase(stack.resources, reader.email)
    for list_id, status in ((refused_list, "pending"), (free, "active")):
        assert data(subscribe(stranger, list_id, reader.email.upper())) == 1
        anew = known_member(client, list_id, reader.email)
        assert (anew["status"], anew["user_id"] == reader.user_id) == (status, False)
    path = f"/subscriptions/{refused_list}/members/{anew['user_id']}/email"
    problem(client.put(path, json={"enabled": True}), 409, "subscription.opted_out")


def test_others_stay_as_they_are(
    stack: Stack, client: httpx.Client, neighbour: httpx.Client, reader: Reader, list_id: int
) -> None:
    assert data(neighbour.post(f"/subscriptions/{list_id}/no-challenge")) == 1
    reader.joins(list_id)
    before = data(neighbour.get(f"/subscriptions/{list_id}/rel"))
    erase(stack.resources, reader.email)
    after = data(neighbour.get(f"/subscriptions/{list_id}/rel"))
    assert {**after, "list": None} == {**before, "list": None}
    assert count(client, list_id) == 1


def test_who_owns_lists_is_not_erased(stack: Stack, client: httpx.Client, list_id: int) -> None:
    email = data(client.get("/users/me"))["email"]
    refused(stack, "user.owns_lists", "users", "erase", email)
    assert data(client.get(f"/lists/{list_id}"))["id"] == list_id
