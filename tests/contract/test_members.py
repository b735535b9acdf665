"""A list's members as its owner sees them, and what the owner does with one of them."""

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from devstack.harness.stack import Owner, Stack
from tests.support.http.replies import TIMESTAMP, data, problem
from tests.support.lists.subscribers import (
    Reader,
    count,
    fill,
    known_member,
    new_address,
    new_list,
    subscribe,
    trace_for,
)


@pytest.fixture
def member_path(reader: Reader, list_id: int) -> str:
    """The API path of the subscription of `reader` to the list `list_id`."""
    reader.joins(list_id)
    return f"/subscriptions/{list_id}/members/{reader.user_id}"


@pytest.fixture
def record_path(reader: Reader, list_id: int, member_path: str) -> str:
    """The API path of the member record that the list `list_id` keeps of `reader`."""
    return f"/lists/{list_id}/members/{reader.user_id}"


def test_owner_switches_mail_of_a_member_and_the_person_can_switch_mail_on_again(
    client: httpx2.Client, reader: Reader, list_id: int, member_path: str
) -> None:
    for enabled, expected in ((True, 0), (False, 1), (False, 0), (True, 1)):
        assert data(client.put(f"{member_path}/email", json={"enabled": enabled})) == expected
        assert reader.stands(list_id) == ("active", enabled)
    assert data(client.put(f"{member_path}/email", json={"enabled": False})) == 1
    reader.wants_mail(list_id, enabled=True)
    assert reader.stands(list_id) == ("active", True)


@pytest.mark.parametrize("said", ["no mail", "left", "both"])
def test_owner_cannot_switch_on_mail_for_an_opted_out_person(
    client: httpx2.Client, reader: Reader, list_id: int, member_path: str, said: str
) -> None:
    if said != "left":
        reader.wants_mail(list_id, enabled=False)
    if said != "no mail":
        reader.leaves(list_id)
    before = reader.standing(list_id)
    for _ in range(2):
        reply = client.put(f"{member_path}/email", json={"enabled": True})
        problem(reply, 409, "subscription.opted_out")
    assert reader.standing(list_id) == before
    assert data(client.put(f"{member_path}/email", json={"enabled": False})) == int(said == "left")


def test_member_patch_changes_only_the_given_attributes(
    client: httpx2.Client, reader: Reader, list_id: int, record_path: str
) -> None:
    before = known_member(client, list_id, reader.email)
    wanted = {"name": "Ann", "type": "gold", "paid_expiry": "2030-01-02T03:04:05.678901+02:00"}
    changed = data(client.patch(record_path, json=wanted))
    assert changed["updated_at"] > before["updated_at"]
    assert changed == {
        **before,
        "name": "Ann",
        "type": "gold",
        "paid_expiry": "2030-01-02T01:04:05.678901Z",
        "updated_at": changed["updated_at"],
    }
    assert known_member(client, list_id, reader.email) == changed
    cleared = data(client.patch(record_path, json={"name": None, "paid_expiry": None}))
    assert (cleared["name"], cleared["type"], cleared["paid_expiry"]) == (None, "gold", None)
    assert data(client.patch(record_path, json={})) == cleared
    assert data(client.patch(record_path, json={"type": "gold"})) == cleared


def test_member_name_on_one_list_does_not_change_other_lists_or_the_account(
    client: httpx2.Client, other_owner: httpx2.Client, reader: Reader, record_path: str
) -> None:
    other = new_list(other_owner)["id"]
    reader.joins(other)
    assert (
        data(client.patch(record_path, json={"name": "Somebody Else"}))["name"] == "Somebody Else"
    )
    assert known_member(other_owner, other, reader.email)["name"] == reader.name
    assert data(reader.client.get("/users/me"))["name"] == reader.name


def test_member_patch_rejects_invalid_values_and_names_their_field(
    client: httpx2.Client, record_path: str
) -> None:
    for name, value in [
        ("name", "n" * 201),
        ("name", "a\0b"),
        ("type", None),
        ("type", "Gold"),
        ("paid_expiry", 1_900_000_000),
        ("paid_expiry", "2030-01-01"),
        ("paid_expiry", "2030-01-01T00:00:00"),
        ("paid_expiry", "2030-13-01T00:00:00Z"),
        ("paid_expiry", "0001-01-01T00:00:00+14:00"),
        ("paid_expiry", "9999-12-31T23:59:59-12:00"),
    ]:
        body = problem(client.patch(record_path, json={name: value}), 422, "body.invalid")
        assert [each["field"] for each in body["errors"]] == [f"body.{name}"]


@pytest.mark.parametrize("moment", ["1970-01-01T00:00:00+14:00", "9998-12-31T23:59:59-12:00"])
def test_earliest_and_latest_paid_expiry_are_stored_and_returned(
    client: httpx2.Client, reader: Reader, list_id: int, record_path: str, moment: str
) -> None:
    changed = data(client.patch(record_path, json={"paid_expiry": moment}))
    assert known_member(client, list_id, reader.email) == changed
    assert changed["paid_expiry"][:4] in ("1969", "9999")


def test_member_patch_cannot_change_status_or_mail_or_address(
    client: httpx2.Client, reader: Reader, list_id: int, record_path: str
) -> None:
    reader.leaves(list_id)
    sent = {"status": "active", "email_enabled": True, "email": "other@example.com", "name": "B"}
    changed = data(client.patch(record_path, json=sent))
    assert (changed["status"], changed["name"]) == ("unsubscribed", "B")
    assert changed["email"] == reader.email


def test_owner_sees_subscriptions_of_a_member_only_on_their_own_lists(
    client: httpx2.Client, other_owner: httpx2.Client, make_reader: Callable[[], Reader]
) -> None:
    reader = make_reader()
    bystander = make_reader()
    mine = [new_list(client) for _ in range(3)]
    archived = new_list(client)
    theirs = new_list(other_owner)
    for each in (*mine, archived, theirs):
        reader.joins(each["id"])
    bystander.joins(mine[0]["id"])
    reader.leaves(mine[1]["id"])
    assert data(client.delete(f"/lists/{archived['id']}")) == 1
    for each in mine:
        reply = client.get(f"/subscriptions/{each['id']}/members/{reader.user_id}/subs")
        found = data(reply)
        assert [one["list_id"] for one in found] == [one["id"] for one in mine][::-1]
        assert [one["status"] for one in found] == ["active", "unsubscribed", "active"]
        for one in found:
            assert (one["user_id"], one["list"]["id"]) == (reader.user_id, one["list_id"])
            assert one["user"] == {"id": reader.user_id, "name": reader.name}
        assert theirs["slug"] not in reply.text
    hers = data(other_owner.get(f"/subscriptions/{theirs['id']}/members/{reader.user_id}/subs"))
    assert [one["list_id"] for one in hers] == [theirs["id"]]


def history(
    client: httpx2.Client, list_id: int, user_id: int, **query: int
) -> list[dict[str, Any]]:
    reply = client.get(f"/lists/{list_id}/members/{user_id}/history", params=query)
    return list(data(reply)["items"])


def test_member_history_records_every_action_of_a_person(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    trace = {"trace_id": trace_for(stack, list_id, reader.user_id)}
    base = f"/subscriptions/{list_id}"
    one_click = {"List-Unsubscribe": "One-Click\r\n"}
    actions: list[tuple[httpx2.Client, str, str, dict[str, Any]]] = [
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
    for number, (caller, method, path, sent) in enumerate(actions):
        headers = {"X-Request-ID": f"action-{number}"}
        assert data(caller.request(method, path, headers=headers, **sent)) == 1
    found = history(client, list_id, reader.user_id)[::-1]
    assert [summary(each) for each in found] == expected
    for number, each in enumerate(found):
        assert (each["ip"], each["request_id"]) == ("127.0.0.1", f"action-{number}")
        assert each["actor_id"] == (None if each["actor"] == "stranger" else reader.user_id)
        assert TIMESTAMP.fullmatch(each["created_at"])


def summary(entry: dict[str, Any]) -> tuple[object, ...]:
    names = ("status_before", "status_after", "email_enabled_before", "email_enabled_after")
    return entry["action"], entry["actor"], entry["via"], *(entry[name] for name in names)


def test_member_history_records_every_action_of_an_owner(
    client: httpx2.Client, owner: Owner, reader: Reader, list_id: int
) -> None:
    other = new_list(client)["id"]
    reader.joins(list_id)
    path = f"/subscriptions/{list_id}/members/{reader.user_id}"
    actions: list[tuple[str, str, dict[str, Any]]] = [
        ("PUT", f"{path}/email", {"json": {"enabled": False}}),
        ("PUT", f"{path}/email", {"json": {"enabled": True}}),
        ("PATCH", f"/lists/{list_id}/members/{reader.user_id}", {"json": {"type": "gold"}}),
        ("POST", f"{path}/transfer", {"params": {"dst_list_id": other}}),
    ]
    for number, (method, where, sent) in enumerate(actions):
        data(client.request(method, where, headers={"X-Request-ID": f"action-{number}"}, **sent))
    assert data(client.delete(f"/subscriptions/{other}/members/{reader.user_id}")) == 1
    found = history(client, list_id, reader.user_id)[::-1][1:]
    assert [summary(each) for each in found] == [
        ("email_disabled", "owner", "login", "active", "active", True, False),
        ("email_enabled", "owner", "login", "active", "active", False, True),
        ("edited", "owner", "login", "active", "active", True, True),
        ("transferred_away", "owner", "login", "active", "removed", True, True),
    ]
    assert [each["request_id"] for each in found] == [f"action-{number}" for number in range(4)]
    assert {(each["actor_id"], each["ip"]) for each in found} == {(owner.user_id, "127.0.0.1")}
    assert [summary(each) for each in history(client, other, reader.user_id)] == [
        ("removed", "owner", "login", "active", "removed", True, True),
        ("transferred_in", "owner", "login", None, "active", None, True),
    ]


def test_action_without_effect_adds_no_history_entry(
    client: httpx2.Client, stranger: httpx2.Client, reader: Reader, list_id: int
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


def test_member_listing_rejects_malformed_filters_and_names_them(
    client: httpx2.Client, list_id: int
) -> None:
    for query in ["premium=2", "premium=platinum", "premium=", "status=", "status=ACTIVE"]:
        reply = client.get(f"/lists/{list_id}/subscriptions?{query}")
        body = problem(reply, 400, "request.invalid")
        name = query.partition("=")[0]
        assert {each["field"] for each in body["errors"]} == {f"query.{name}"}


def test_cursor_pages_return_each_member_once_while_members_are_added_and_removed(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    many = [f"m{number:03}.{new_address()}" for number in range(120)]
    fill(stack, list_id, many)
    seen: list[str] = []
    asked: dict[str, Any] = {"limit": 25}
    while len(seen) < len(many):
        found = data(client.get(f"/lists/{list_id}/subscriptions", params=asked))
        seen += [each["email"] for each in found["items"]]
        fill(stack, list_id, [new_address() for _ in range(7)])
        gone = found["items"][3]["user_id"]
        assert data(client.delete(f"/subscriptions/{list_id}/members/{gone}")) == 1
        asked["cursor"] = found["pagination"]["next_cursor"]
    assert (seen, asked["cursor"]) == (many[::-1], None)


def test_subscriber_count_is_correct_immediately_after_every_change(
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
    for changed in (1, 0):
        assert data(client.delete(path)) == changed
        assert both() == (0, 1)
    assert {
        each["id"]: each["subscriber_count"] for each in data(client.get("/lists"))["items"]
    } == {list_id: 0, other: 1}
