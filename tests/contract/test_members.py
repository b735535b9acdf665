"""Tests of the routes with which owners read and change members, and read a member's history."""

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from devstack.harness.stack import Owner, Stack
from tests.support.http.replies import TIMESTAMP, data, problem
from tests.support.lists.subscribers import (
    Reader,
    insert_members,
    new_address,
    new_list,
    read_subscriber_count,
    require_member,
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
    for enabled, changed_count in ((True, 0), (False, 1), (False, 0), (True, 1)):
        assert data(client.put(f"{member_path}/email", json={"enabled": enabled})) == changed_count
        assert reader.read_status(list_id) == ("active", enabled)
    assert data(client.put(f"{member_path}/email", json={"enabled": False})) == 1
    reader.wants_mail(list_id, enabled=True)
    assert reader.read_status(list_id) == ("active", True)


@pytest.mark.parametrize("opt_out", ["no mail", "left", "both"])
def test_owner_cannot_switch_on_mail_for_an_opted_out_person(
    client: httpx2.Client, reader: Reader, list_id: int, member_path: str, opt_out: str
) -> None:
    if opt_out != "left":
        reader.wants_mail(list_id, enabled=False)
    if opt_out != "no mail":
        reader.leaves(list_id)
    standing_before = reader.read_membership(list_id)
    for _ in range(2):
        reply = client.put(f"{member_path}/email", json={"enabled": True})
        problem(reply, 409, "subscription.opted_out")
    assert reader.read_membership(list_id) == standing_before
    assert data(client.put(f"{member_path}/email", json={"enabled": False})) == int(
        opt_out == "left"
    )


def test_member_patch_changes_only_the_given_attributes(
    client: httpx2.Client, reader: Reader, list_id: int, record_path: str
) -> None:
    member_before = require_member(client, list_id, reader.email)
    new_values = {"name": "Ann", "type": "gold", "paid_expiry": "2030-01-02T03:04:05.678901+02:00"}
    changed_member = data(client.patch(record_path, json=new_values))
    assert changed_member["updated_at"] > member_before["updated_at"]
    assert changed_member == {
        **member_before,
        "name": "Ann",
        "type": "gold",
        "paid_expiry": "2030-01-02T01:04:05.678901Z",
        "updated_at": changed_member["updated_at"],
    }
    assert require_member(client, list_id, reader.email) == changed_member
    cleared_member = data(client.patch(record_path, json={"name": None, "paid_expiry": None}))
    assert (cleared_member["name"], cleared_member["type"], cleared_member["paid_expiry"]) == (
        None,
        "gold",
        None,
    )
    assert data(client.patch(record_path, json={})) == cleared_member
    assert data(client.patch(record_path, json={"type": "gold"})) == cleared_member


def test_member_name_on_one_list_does_not_change_other_lists_or_the_account(
    client: httpx2.Client, other_owner: httpx2.Client, reader: Reader, record_path: str
) -> None:
    other_list_id = new_list(other_owner)["id"]
    reader.joins(other_list_id)
    assert (
        data(client.patch(record_path, json={"name": "Somebody Else"}))["name"] == "Somebody Else"
    )
    assert require_member(other_owner, other_list_id, reader.email)["name"] == reader.name
    assert data(reader.client.get("/users/me"))["name"] == reader.name


@pytest.mark.parametrize(
    ("name", "value"),
    [
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
    ],
)
def test_member_patch_rejects_invalid_values_and_names_their_field(
    client: httpx2.Client, record_path: str, name: str, value: str | int | None
) -> None:
    body = problem(client.patch(record_path, json={name: value}), 422, "body.invalid")
    assert [each["field"] for each in body["errors"]] == [f"body.{name}"]


@pytest.mark.parametrize("moment", ["1970-01-01T00:00:00+14:00", "9998-12-31T23:59:59-12:00"])
def test_earliest_and_latest_paid_expiry_are_stored_and_returned(
    client: httpx2.Client, reader: Reader, list_id: int, record_path: str, moment: str
) -> None:
    member = data(client.patch(record_path, json={"paid_expiry": moment}))
    assert require_member(client, list_id, reader.email) == member
    assert member["paid_expiry"][:4] in ("1969", "9999")


def test_member_patch_cannot_change_status_or_mail_or_address(
    client: httpx2.Client, reader: Reader, list_id: int, record_path: str
) -> None:
    reader.leaves(list_id)
    values = {"status": "active", "email_enabled": True, "email": "other@example.com", "name": "B"}
    member = data(client.patch(record_path, json=values))
    assert (member["status"], member["name"]) == ("unsubscribed", "B")
    assert member["email"] == reader.email


def test_owner_sees_subscriptions_of_a_member_only_on_their_own_lists(
    client: httpx2.Client, other_owner: httpx2.Client, make_reader: Callable[[], Reader]
) -> None:
    reader = make_reader()
    bystander = make_reader()
    own_lists = [new_list(client) for _ in range(3)]
    archived_list = new_list(client)
    foreign_list = new_list(other_owner)
    for mailing_list in (*own_lists, archived_list, foreign_list):
        reader.joins(mailing_list["id"])
    bystander.joins(own_lists[0]["id"])
    reader.leaves(own_lists[1]["id"])
    assert data(client.delete(f"/lists/{archived_list['id']}")) == 1
    for mailing_list in own_lists:
        reply = client.get(f"/subscriptions/{mailing_list['id']}/members/{reader.user_id}/subs")
        subscriptions = data(reply)
        assert [subscription["list_id"] for subscription in subscriptions] == [
            subscription["id"] for subscription in own_lists
        ][::-1]
        assert [subscription["status"] for subscription in subscriptions] == [
            "active",
            "unsubscribed",
            "active",
        ]
        for subscription in subscriptions:
            assert (subscription["user_id"], subscription["list"]["id"]) == (
                reader.user_id,
                subscription["list_id"],
            )
            assert subscription["user"] == {"id": reader.user_id, "name": reader.name}
        assert foreign_list["slug"] not in reply.text
    foreign_subscriptions = data(
        other_owner.get(f"/subscriptions/{foreign_list['id']}/members/{reader.user_id}/subs")
    )
    assert [subscription["list_id"] for subscription in foreign_subscriptions] == [
        foreign_list["id"]
    ]


def read_history(
    client: httpx2.Client, list_id: int, user_id: int, **query: int
) -> list[dict[str, Any]]:
    reply = client.get(f"/lists/{list_id}/members/{user_id}/history", params=query)
    return list(data(reply)["items"])


def test_member_history_records_every_action_of_a_person(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    trace_query = {"trace_id": trace_for(stack, list_id, reader.user_id)}
    base = f"/subscriptions/{list_id}"
    one_click = {"List-Unsubscribe": "One-Click\r\n"}
    actions: list[tuple[httpx2.Client, str, str, dict[str, Any]]] = [
        (reader.client, "POST", f"{base}/no-challenge", {}),
        (reader.client, "PUT", f"{base}/email", {"json": {"enabled": False}}),
        (stranger, "PUT", f"{base}/email", {"params": trace_query, "json": {"enabled": True}}),
        (stranger, "POST", f"{base}/delete", {"params": trace_query, "data": one_click}),
        (stranger, "DELETE", base, {"params": trace_query}),
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
    for number, (caller, method, path, content) in enumerate(actions):
        headers = {"X-Request-ID": f"action-{number}"}
        assert data(caller.request(method, path, headers=headers, **content)) == 1
    entries = read_history(client, list_id, reader.user_id)[::-1]
    assert [summarize_entry(entry) for entry in entries] == expected
    for number, entry in enumerate(entries):
        assert (entry["ip"], entry["request_id"]) == ("127.0.0.1", f"action-{number}")
        assert entry["actor_id"] == (None if entry["actor"] == "stranger" else reader.user_id)
        assert TIMESTAMP.fullmatch(entry["created_at"])


def summarize_entry(entry: dict[str, Any]) -> tuple[object, ...]:
    names = ("status_before", "status_after", "email_enabled_before", "email_enabled_after")
    return entry["action"], entry["actor"], entry["via"], *(entry[name] for name in names)


def test_member_history_records_every_action_of_an_owner(
    client: httpx2.Client, owner: Owner, reader: Reader, list_id: int
) -> None:
    other_list_id = new_list(client)["id"]
    reader.joins(list_id)
    path = f"/subscriptions/{list_id}/members/{reader.user_id}"
    actions: list[tuple[str, str, dict[str, Any]]] = [
        ("PUT", f"{path}/email", {"json": {"enabled": False}}),
        ("PUT", f"{path}/email", {"json": {"enabled": True}}),
        ("PATCH", f"/lists/{list_id}/members/{reader.user_id}", {"json": {"type": "gold"}}),
        ("POST", f"{path}/transfer", {"params": {"dst_list_id": other_list_id}}),
    ]
    for number, (method, action_path, content) in enumerate(actions):
        data(
            client.request(
                method, action_path, headers={"X-Request-ID": f"action-{number}"}, **content
            )
        )
    assert data(client.delete(f"/subscriptions/{other_list_id}/members/{reader.user_id}")) == 1
    entries = read_history(client, list_id, reader.user_id)[::-1][1:]
    assert [summarize_entry(entry) for entry in entries] == [
        ("email_disabled", "owner", "login", "active", "active", True, False),
        ("email_enabled", "owner", "login", "active", "active", False, True),
        ("edited", "owner", "login", "active", "active", True, True),
        ("transferred_away", "owner", "login", "active", "removed", True, True),
    ]
    assert [entry["request_id"] for entry in entries] == [f"action-{number}" for number in range(4)]
    assert {(entry["actor_id"], entry["ip"]) for entry in entries} == {(owner.user_id, "127.0.0.1")}
    assert [
        summarize_entry(entry) for entry in read_history(client, other_list_id, reader.user_id)
    ] == [
        ("removed", "owner", "login", "active", "removed", True, True),
        ("transferred_in", "owner", "login", None, "active", None, True),
    ]


def test_action_without_effect_adds_no_history_entry(
    client: httpx2.Client, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    entries_before = read_history(client, list_id, reader.user_id)
    path = f"/subscriptions/{list_id}/members/{reader.user_id}"
    assert data(reader.client.post(f"/subscriptions/{list_id}/no-challenge")) == 0
    assert data(subscribe(stranger, list_id, reader.email)) == 1
    reader.wants_mail(list_id, enabled=True)
    assert data(client.put(f"{path}/email", json={"enabled": True})) == 0
    data(client.patch(f"/lists/{list_id}/members/{reader.user_id}", json={"type": "free"}))
    assert read_history(client, list_id, reader.user_id) == entries_before


@pytest.mark.parametrize(
    "query", ["premium=2", "premium=platinum", "premium=", "status=", "status=ACTIVE"]
)
def test_member_listing_rejects_malformed_filters_and_names_them(
    client: httpx2.Client, list_id: int, query: str
) -> None:
    reply = client.get(f"/lists/{list_id}/subscriptions?{query}")
    body = problem(reply, 400, "request.invalid")
    name = query.partition("=")[0]
    assert {each["field"] for each in body["errors"]} == {f"query.{name}"}


def test_cursor_pages_return_each_member_once_while_members_are_added_and_removed(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    addresses = [f"m{number:03}.{new_address()}" for number in range(120)]
    insert_members(stack, list_id, addresses)
    listed_addresses: list[str] = []
    query: dict[str, Any] = {"limit": 25}
    while len(listed_addresses) < len(addresses):
        page = data(client.get(f"/lists/{list_id}/subscriptions", params=query))
        listed_addresses += [each["email"] for each in page["items"]]
        insert_members(stack, list_id, [new_address() for _ in range(7)])
        removed_id = page["items"][3]["user_id"]
        assert data(client.delete(f"/subscriptions/{list_id}/members/{removed_id}")) == 1
        query["cursor"] = page["pagination"]["next_cursor"]
    assert (listed_addresses, query["cursor"]) == (addresses[::-1], None)


def test_subscriber_count_is_correct_immediately_after_every_change(
    client: httpx2.Client, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    other_list_id = new_list(client)["id"]
    path = f"/subscriptions/{list_id}/members/{reader.user_id}"

    def counts_of_both_lists() -> tuple[int, int]:
        return read_subscriber_count(client, list_id), read_subscriber_count(client, other_list_id)

    assert counts_of_both_lists() == (0, 0)
    reader.joins(list_id)
    assert counts_of_both_lists() == (1, 0)
    reader.wants_mail(list_id, enabled=False)
    assert counts_of_both_lists() == (1, 0)
    assert data(client.post(f"{path}/transfer", params={"dst_list_id": other_list_id})) == 1
    assert counts_of_both_lists() == (0, 1)
    reader.leaves(other_list_id)
    assert counts_of_both_lists() == (0, 0)
    stranger.post(f"/subscriptions/{other_list_id}", json={"email": reader.email})
    assert counts_of_both_lists() == (0, 0)
    reader.joins(other_list_id).joins(list_id)
    assert counts_of_both_lists() == (1, 1)
    for removed_count in (1, 0):
        assert data(client.delete(path)) == removed_count
        assert counts_of_both_lists() == (0, 1)
    assert {
        mailing_list["id"]: mailing_list["subscriber_count"]
        for mailing_list in data(client.get("/lists"))["items"]
    } == {list_id: 0, other_list_id: 1}
