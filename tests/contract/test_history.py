"""What happened to a member's subscription: by whom, through which door, when and from where."""

import re
from typing import Any

import httpx
import pytest

from tests.contract.replies import data
from tests.contract.subscribers import (
    TIMESTAMP,
    Reader,
    known_member,
    new_address,
    new_list,
    subscribe,
    trace_for,
)
from tests.stack import Owner, Stack

FIELDS = {
    "id",
    "action",
    "actor",
    "actor_id",
    "via",
    "status_before",
    "status_after",
    "email_enabled_before",
    "email_enabled_after",
    "changed",
    "reason",
    "ip",
    "request_id",
    "created_at",
}


def history(client: httpx.Client, list_id: int, user_id: int, **query: int) -> list[dict[str, Any]]:
    reply = client.get(f"/lists/{list_id}/members/{user_id}/history", params=query)
    items: list[dict[str, Any]] = data(reply)["items"]
    return items


def test_each_act_of_a_person_is_kept(
    stack: Stack, client: httpx.Client, stranger: httpx.Client, reader: Reader, list_id: int
) -> None:
    trace = {"trace_id": trace_for(stack, list_id, reader.user_id)}
    base = f"/subscriptions/{list_id}"
    one_click = {"List-Unsubscribe": "One-Click"}
    acts: list[tuple[httpx.Client, str, str, dict[str, Any]]] = [
        (reader.client, "POST", f"{base}/no-challenge", {}),
        (reader.client, "PUT", f"{base}/email", {"json": {"enabled": False}}),
        (stranger, "PUT", f"{base}/email", {"params": trace, "json": {"enabled": True}}),
        (stranger, "POST", f"{base}/delete", {"params": trace, "data": one_click}),
        (stranger, "DELETE", base, {"params": trace}),
        (stranger, "POST", base, {"json": {"email": reader.email}}),
        (reader.client, "POST", f"{base}/no-challenge", {}),
        (reader.client, "DELETE", base, {}),
    ]
    expected = [
        ("subscribed", "user", "login", None, "active", None, True),
        ("email_disabled", "user", "login", "active", "active", True, False),
        ("email_enabled", "user", "trace", "active", "active", False, True),
        ("email_disabled", "user", "one-click", "active", "active", True, False),
        ("unsubscribed", "user", "trace", "active", "unsubscribed", False, False),
        ("requested", "stranger", "form", "unsubscribed", "pending", False, False),
        ("subscribed", "user", "login", "pending", "active", False, True),
        ("unsubscribed", "user", "login", "active", "unsubscribed", True, True),
    ]
    for number, (caller, method, path, sent) in enumerate(acts):
        headers = {"X-Request-ID": f"act-{number}"}
        assert data(caller.request(method, path, headers=headers, **sent)) == 1
    found = history(client, list_id, reader.user_id)[::-1]
    assert [summary(each) for each in found] == expected
    for number, each in enumerate(found):
        assert set(each) == FIELDS
        assert (each["ip"], each["request_id"]) == ("127.0.0.1", f"act-{number}")
        assert each["actor_id"] == (None if each["actor"] == "stranger" else reader.user_id)
        assert re.fullmatch(TIMESTAMP, each["created_at"])


def summary(entry: dict[str, Any]) -> tuple[object, ...]:
    names = ("status_before", "status_after", "email_enabled_before", "email_enabled_after")
    return entry["action"], entry["actor"], entry["via"], *(entry[name] for name in names)


def test_each_act_of_an_owner_is_kept(
    client: httpx.Client, owner: Owner, reader: Reader, list_id: int
) -> None:
    other = new_list(client)["id"]
    reader.joins(list_id)
    path = f"/subscriptions/{list_id}/members/{reader.user_id}"
    acts: list[tuple[str, str, dict[str, Any]]] = [
        ("PUT", f"{path}/email", {"json": {"enabled": False}}),
        ("PUT", f"{path}/email", {"json": {"enabled": True}}),
        ("PATCH", f"/lists/{list_id}/members/{reader.user_id}", {"json": {"type": "gold"}}),
        ("POST", f"{path}/transfer", {"params": {"dst_list_id": other}}),
    ]
    for number, (method, where, sent) in enumerate(acts):
        data(client.request(method, where, headers={"X-Request-ID": f"act-{number}"}, **sent))
    assert data(client.delete(f"/subscriptions/{other}/members/{reader.user_id}")) == 1
    found = history(client, list_id, reader.user_id)[::-1][1:]
    assert [summary(each) for each in found] == [
        ("email_disabled", "owner", "login", "active", "active", True, False),
        ("email_enabled", "owner", "login", "active", "active", False, True),
        ("edited", "owner", "login", "active", "active", True, True),
        ("transferred_away", "owner", "login", "active", "removed", True, True),
    ]
    assert [each["request_id"] for each in found] == [f"act-{number}" for number in range(4)]
    assert {(each["actor_id"], each["ip"]) for each in found} == {(owner.user_id, "127.0.0.1")}
    assert [summary(each) for each in history(client, other, reader.user_id)] == [
        ("removed", "owner", "login", "active", "removed", True, True),
        ("transferred_in", "owner", "login", None, "active", None, True),
    ]


def test_what_changes_nothing_leaves_no_entry(
    stack: Stack, client: httpx.Client, stranger: httpx.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    before = history(client, list_id, reader.user_id)
    path = f"/subscriptions/{list_id}/members/{reader.user_id}"
    assert data(reader.client.post(f"/subscriptions/{list_id}/no-challenge")) == 0
    assert data(subscribe(stranger, list_id, reader.email)) == 1
    reader.wants_mail(list_id, enabled=True)
    assert data(client.put(f"{path}/email", json={"enabled": True})) == 0
    data(client.patch(f"/lists/{list_id}/members/{reader.user_id}", json={"type": "free"}))
    assert history(client, list_id, reader.user_id) == before


def test_history_is_of_one_list_and_one_member(
    client: httpx.Client, neighbour: httpx.Client, stranger: httpx.Client, reader: Reader
) -> None:
    mine, theirs = new_list(client)["id"], new_list(neighbour)["id"]
    reader.joins(mine).joins(theirs).leaves(theirs)
    other = new_address()
    subscribe(stranger, mine, other)
    assert len(history(client, mine, reader.user_id)) == 1
    assert len(history(neighbour, theirs, reader.user_id)) == 2
    found = history(client, mine, known_member(client, mine, other)["user_id"])
    assert [(each["action"], each["actor"]) for each in found] == [("requested", "stranger")]


@pytest.mark.parametrize("sent", ["an id with spaces", "a" * 129, "ü"])
def test_request_ids_that_are_none_are_made(
    client: httpx.Client, reader: Reader, list_id: int, sent: str
) -> None:
    headers = {"X-Request-ID": sent.encode()}
    reply = reader.client.post(f"/subscriptions/{list_id}/no-challenge", headers=headers)  # type: ignore[arg-type]
    [entry] = history(client, list_id, reader.user_id)
    assert entry["request_id"] == reply.headers["x-request-id"] != sent
