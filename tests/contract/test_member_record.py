"""Tests of the calls that read, change or create one member, by user id or e-mail address."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from devstack.harness.stack import Owner, Stack
from models import Plan
from tests.support.feed.causes import events
from tests.support.http.replies import data, problem
from tests.support.lists.segments import new_field, put_member
from tests.support.lists.subscribers import (
    Reader,
    find_member,
    new_address,
    new_list,
    read_subscriber_count,
    require_member,
    subscribe,
)
from tests.support.people.erasure import erase


def build_member_path(list_id: int | str, id_or_address: object) -> str:
    return f"/lists/{list_id}/members/{id_or_address}"


def test_member_is_found_by_id_and_any_spelling_of_the_address_in_every_status(
    client: httpx2.Client, reader: Reader, mailing_list: dict[str, Any], list_id: int
) -> None:
    reader.joins(list_id)
    member_by_id = data(client.get(build_member_path(list_id, reader.user_id)))
    assert member_by_id == require_member(client, list_id, reader.email)
    assert member_by_id["user"] == {"id": reader.user_id, "name": reader.name}
    for spelling in (reader.email, reader.email.upper(), reader.email.replace("@", "%40")):
        assert data(client.get(build_member_path(list_id, spelling))) == member_by_id
    assert data(client.get(build_member_path(mailing_list["slug"], reader.email))) == member_by_id
    for action, status in (
        (lambda: reader.leaves(list_id), "unsubscribed"),
        (lambda: client.delete(f"/subscriptions/{list_id}/members/{reader.user_id}"), "removed"),
    ):
        action()
        for id_or_address in (reader.email, reader.user_id):
            assert data(client.get(build_member_path(list_id, id_or_address)))["status"] == status


@pytest.mark.parametrize("slash", ["%2F", "%2f"])
def test_encoded_slash_belongs_to_the_address_of_a_member(
    client: httpx2.Client, list_id: int, slash: str
) -> None:
    email = f"a/b/{new_address()}"
    path = build_member_path(list_id, email.replace("/", slash))
    assert data(client.put(path, json={"name": "Ada"}))["email"] == email
    assert data(client.get(path))["name"] == "Ada"
    problem(client.get(build_member_path(list_id, email)), 404, "route.not_found")
    problem(client.get(f"/lists/{list_id}%2Fmembers"), 400, "list.name_invalid")


def test_logs_never_contain_the_address_of_a_member_path(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    email = new_address()
    problem(client.get(build_member_path(list_id, email)), 404, "member.not_found")
    put_member(client, list_id, email)
    client.get(build_member_path(list_id, f"{email}/nowhere"))
    client.get(build_member_path(list_id, email.replace("@", "%40")), params={"limit": "x"})
    client.get(build_member_path(list_id, f"{email.partition('@')[0]}%2Fx@example.com"))
    logs = "".join(process.log.read_text() for process in stack.processes)
    assert build_member_path(list_id, "{address}") in logs
    assert email.partition("@")[0] not in logs


def test_member_put_creates_a_member_and_a_second_put_changes_the_member(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    new_field(client, "city")
    email = new_address()
    values: dict[str, Any] = {
        "name": "Ada",
        "type": "gold",
        "paid_expiry": "2035-01-01T00:00:00.000000Z",
        "fields": {"city": "Paris"},
        "tags": ["VIP"],
    }
    created_member = put_member(client, list_id, email, **values)
    assert {name: created_member[name] for name in values} == values
    assert (
        created_member["status"],
        created_member["email_enabled"],
        created_member["source"],
    ) == ("active", True, "owner")
    assert (created_member["joined_at"], created_member["import_id"]) == (
        created_member["created_at"],
        None,
    )
    assert put_member(client, list_id, email.upper(), **values) == created_member
    assert require_member(client, list_id, email) == created_member
    assert read_subscriber_count(client, list_id) == 1
    changed_member = put_member(client, list_id, email, name=None, fields={"city": "Rome"})
    assert (changed_member["name"], changed_member["type"], changed_member["tags"]) == (
        None,
        "gold",
        ["VIP"],
    )
    assert changed_member["fields"] == {"city": "Rome"}
    path = f"{build_member_path(list_id, created_member['user_id'])}/history"
    entries = data(client.get(path))["items"]
    assert [(each["action"], each["actor"], each["changed"]) for each in entries] == [
        ("edited", "owner", ["name", "fields.city"]),
        ("added", "owner", None),
    ]
    # The name that the owner entered for the member isn't copied to the user record, which contains
    # only the e-mail address.
    assert stack.query("SELECT name FROM users WHERE email = %s", email) == [(None,)]
    assert stack.mails(to=email) == []


def test_member_put_keeps_a_pending_member_pending(
    client: httpx2.Client, stranger: httpx2.Client, reader: Reader
) -> None:
    list_id = new_list(client, confirm_required=True)["id"]
    subscribe(stranger, list_id, reader.email)
    changed_member = put_member(client, list_id, reader.email, name="Ada", tags=["VIP"])
    assert (changed_member["status"], changed_member["name"], changed_member["tags"]) == (
        "pending",
        "Ada",
        ["VIP"],
    )
    assert reader.read_status(list_id)[0] == "pending"


def test_member_put_restores_a_removed_member_with_the_old_field_values(
    client: httpx2.Client, list_id: int
) -> None:
    new_field(client, "city")
    email = new_address()
    created_member = put_member(client, list_id, email, fields={"city": "Paris"}, tags=["VIP"])
    data(client.delete(f"/subscriptions/{list_id}/members/{created_member['user_id']}"))
    assert read_subscriber_count(client, list_id) == 0
    restored_member = put_member(client, list_id, email, tags=["returned"])
    assert (restored_member["status"], restored_member["fields"], restored_member["tags"]) == (
        "active",
        {"city": "Paris"},
        ["returned"],
    )
    assert read_subscriber_count(client, list_id) == 1


@pytest.mark.parametrize("later_state", ["left", "removed", "pending", "erased"])
def test_member_put_for_an_opted_out_person_is_rejected_and_changes_nothing(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, reader: Reader, later_state: str
) -> None:
    list_id = new_list(client)["id"]
    reader.joins(list_id)
    put_member(client, list_id, reader.email, name="Ada", tags=["VIP"])
    reader.leaves(list_id)
    if later_state == "removed":
        data(client.delete(f"/subscriptions/{list_id}/members/{reader.user_id}"))
    if later_state == "pending":
        subscribe(stranger, list_id, reader.email)
    if later_state == "erased":
        erase(stack.resources, reader.email)
    select_rows = "SELECT to_jsonb(t) FROM {} AS t WHERE list_id = %s ORDER BY id"
    tables = ("subscriptions", "opt_outs", "subscription_events", "tags")
    rows_before = [stack.query(select_rows.format(table), list_id) for table in tables]
    for _ in range(2):
        body = {"name": "Eve", "type": "gold", "tags": ["new"]}
        reply = client.put(build_member_path(list_id, reader.email), json=body)
        problem(reply, 409, "subscription.opted_out")
    assert [stack.query(select_rows.format(table), list_id) for table in tables] == rows_before
    if later_state == "erased":
        assert stack.query("SELECT 1 FROM users WHERE email = %s", reader.email) == []


def test_member_put_keeps_mail_off_that_the_person_switched_off(
    client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    reader.wants_mail(list_id, enabled=False)
    changed_member = put_member(client, list_id, reader.email, name="Ada")
    assert (changed_member["status"], changed_member["email_enabled"]) == ("active", False)
    data(client.delete(f"/subscriptions/{list_id}/members/{reader.user_id}"))
    restored_member = put_member(client, list_id, reader.email)
    assert (restored_member["status"], restored_member["email_enabled"]) == ("active", False)


def test_creating_a_member_requires_the_paid_plan_but_changing_a_member_does_not(
    stack: Stack, client: httpx2.Client, owner: Owner, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    stack.query("UPDATE users SET plan = %s WHERE id = %s", Plan.FREE, owner.user_id)
    email = new_address()
    problem(client.put(build_member_path(list_id, email), json={}), 403, "plan.required")
    assert find_member(client, list_id, email) is None
    assert stack.query("SELECT 1 FROM users WHERE email = %s", email) == []
    assert put_member(client, list_id, reader.email, name="Ada")["name"] == "Ada"
    data(client.delete(f"/subscriptions/{list_id}/members/{reader.user_id}"))
    problem(client.put(build_member_path(list_id, reader.email), json={}), 403, "plan.required")


def test_concurrent_member_puts_create_only_one_member(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    email = new_address()
    with ThreadPoolExecutor(6) as pool:
        calls = [pool.submit(put_member, client, list_id, email, name="Ada") for _ in range(6)]
        replies = [call.result() for call in calls]
    assert replies == [replies[0]] * 6
    assert read_subscriber_count(client, list_id) == 1
    count_events = "SELECT count(*) FROM subscription_events WHERE list_id = %s"
    assert stack.query(count_events, list_id) == [(1,)]


def test_member_is_found_only_by_the_address_that_the_list_knows(
    stack: Stack, client: httpx2.Client, other_owner: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    account_address = new_address()
    foreign_address = new_address()
    put_member(other_owner, new_list(other_owner)["id"], foreign_address)
    stack.query("UPDATE users SET email = %s WHERE id = %s", account_address, reader.user_id)
    for unknown_address in (account_address, foreign_address, new_address()):
        for reply in (
            client.get(build_member_path(list_id, unknown_address)),
            client.patch(build_member_path(list_id, unknown_address), json={"name": "x"}),
        ):
            problem(reply, 404, "member.not_found")
    assert data(client.get(build_member_path(list_id, reader.email)))["user_id"] == reader.user_id
    assert put_member(client, list_id, reader.email, name="Ada")["user_id"] == reader.user_id


def test_event_feed_names_the_changed_member_attributes_but_not_their_values(
    client: httpx2.Client, list_id: int
) -> None:
    new_field(client, "ailment")
    email = new_address()
    put_member(client, list_id, email)
    put_member(client, list_id, email, name="Ada", fields={"ailment": "gout"}, tags=["patient"])
    types = ["subscription.created", "subscription.changed"]
    created_event, changed_event = events(client, 2, type=types, list_id=list_id)
    assert (created_event["type"], created_event["data"]["action"]) == (
        "subscription.created",
        "added",
    )
    assert created_event["data"]["changed"] is None
    assert changed_event["data"]["changed"] == ["fields", "name", "tags"]
    assert not {"ailment", "gout", "patient"} & set(str(changed_event).replace("'", " ").split())


def test_member_fields_and_tags_are_visible_only_to_the_owner(
    client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    new_field(client, "note", public=True)
    reader.joins(list_id)
    put_member(client, list_id, reader.email, fields={"note": "loud"}, tags=["difficult"])
    hidden_values = dict.fromkeys(("fields", "tags", "joined_at", "import_id"))
    own_subscriptions = data(reader.client.get("/subscriptions"))
    looked_up_subscription = data(
        reader.client.get("/subscriptions/opponent", params={"list_id": list_id})
    )
    for subscription in (
        reader.read_membership(list_id),
        own_subscriptions[0],
        looked_up_subscription["sub"],
    ):
        assert {name: subscription[name] for name in hidden_values} == hidden_values


def test_member_of_several_lists_has_separate_fields_and_tags_on_each_list(
    client: httpx2.Client, list_id: int
) -> None:
    new_field(client, "city")
    other_list_id = new_list(client)["id"]
    email = new_address()
    first_member = put_member(client, list_id, email, fields={"city": "Paris"}, tags=["VIP"])
    put_member(client, other_list_id, email, fields={"city": "Rome"}, tags=["press"])
    path = f"/subscriptions/{list_id}/members/{first_member['user_id']}/subs"
    values_by_list = {
        each["list_id"]: (each["fields"], each["tags"]) for each in data(client.get(path))
    }
    assert values_by_list == {
        list_id: ({"city": "Paris"}, ["VIP"]),
        other_list_id: ({"city": "Rome"}, ["press"]),
    }


def test_erasure_clears_fields_and_tags_and_history_details_of_the_member(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    new_field(client, "ailment")
    email = new_address()
    created_member = put_member(
        client, list_id, email, fields={"ailment": "gout"}, tags=["patient"]
    )
    put_member(client, list_id, email, fields={"ailment": "gout again"})
    erase(stack.resources, email)
    erased_member = data(client.get(build_member_path(list_id, created_member["user_id"])))
    assert (erased_member["status"], erased_member["fields"], erased_member["tags"]) == (
        "removed",
        {},
        [],
    )
    entries = data(client.get(f"{build_member_path(list_id, created_member['user_id'])}/history"))[
        "items"
    ]
    assert [(each["action"], each["changed"]) for each in entries] == [
        ("erased", None),
        ("edited", None),
        ("added", None),
    ]


def test_erasure_of_an_owner_deletes_their_fields_and_tags(stack: Stack) -> None:
    erased_owner = stack.create_owner()
    with stack.client(erased_owner.key) as client:
        list_id = new_list(client)["id"]
        new_field(client, "city")
        put_member(client, list_id, new_address(), tags=["VIP"])
        data(client.delete(f"/lists/{list_id}"))
    erase(stack.resources, erased_owner.email)
    assert stack.query("SELECT 1 FROM tags WHERE list_id = %s", list_id) == []
    assert stack.query("SELECT 1 FROM fields WHERE user_id = %s", erased_owner.user_id) == []


def test_transfer_copies_fields_and_tags_to_the_target_list(
    client: httpx2.Client, list_id: int
) -> None:
    new_field(client, "city")
    target_id = new_list(client)["id"]
    email = new_address()
    put_member(client, target_id, new_address(), tags=["vip"])
    source_member = put_member(
        client, list_id, email, fields={"city": "Paris"}, tags=["VIP", "press"]
    )
    transfer_path = f"/subscriptions/{list_id}/members/{source_member['user_id']}/transfer"
    assert data(client.post(transfer_path, params={"dst_list_id": target_id})) == 1
    target_member = require_member(client, target_id, email)
    assert (target_member["fields"], target_member["tags"]) == ({"city": "Paris"}, ["press", "vip"])


@pytest.mark.parametrize("is_removed", [False, True])
def test_transfer_keeps_target_values_unless_the_target_had_removed_the_member(
    client: httpx2.Client, list_id: int, is_removed: bool
) -> None:
    for key in ("city", "size", "pet"):
        new_field(client, key)
    target_id = new_list(client)["id"]
    email = new_address()
    target_member = put_member(
        client, target_id, email, fields={"city": "Rome", "pet": "cat"}, tags=["press"]
    )
    put_member(client, list_id, email, fields={"city": "Paris", "size": "XL"}, tags=["VIP"])
    member_path = f"/members/{target_member['user_id']}"
    if is_removed:
        data(client.delete(f"/subscriptions/{target_id}{member_path}"))
    transfer_path = f"/subscriptions/{list_id}{member_path}/transfer"
    assert data(client.post(transfer_path, params={"dst_list_id": target_id})) == 1
    merged_member = require_member(client, target_id, email)
    city = "Paris" if is_removed else "Rome"
    assert merged_member["fields"] == {"city": city, "size": "XL", "pet": "cat"}
    assert (merged_member["status"], merged_member["tags"]) == ("active", ["press", "VIP"])
