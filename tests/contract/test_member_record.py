"""Tests of the calls that read, change or create one member, by user id or e-mail address."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from devstack.harness.stack import Owner, Stack
from models import Plan
from tests.support.feed.causes import events
from tests.support.http.replies import data, problem
from tests.support.lists.segments import new_field, put
from tests.support.lists.subscribers import (
    Reader,
    count,
    known_member,
    member,
    new_address,
    new_list,
    subscribe,
)
from tests.support.people.erasure import erase


def path_of(list_id: int | str, named: object) -> str:
    return f"/lists/{list_id}/members/{named}"


def test_member_is_found_by_id_and_any_spelling_of_the_address_in_every_status(
    client: httpx2.Client, reader: Reader, mailing_list: dict[str, Any], list_id: int
) -> None:
    reader.joins(list_id)
    by_id = data(client.get(path_of(list_id, reader.user_id)))
    assert by_id == known_member(client, list_id, reader.email)
    assert by_id["user"] == {"id": reader.user_id, "name": reader.name}
    for named in (reader.email, reader.email.upper(), reader.email.replace("@", "%40")):
        assert data(client.get(path_of(list_id, named))) == by_id
    assert data(client.get(path_of(mailing_list["slug"], reader.email))) == by_id
    for action, status in (
        (lambda: reader.leaves(list_id), "unsubscribed"),
        (lambda: client.delete(f"/subscriptions/{list_id}/members/{reader.user_id}"), "removed"),
    ):
        action()
        for name in (reader.email, reader.user_id):
            assert data(client.get(path_of(list_id, name)))["status"] == status


def test_logs_never_contain_the_address_of_a_member_path(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    email = new_address()
    problem(client.get(path_of(list_id, email)), 404, "member.not_found")
    put(client, list_id, email)
    client.get(path_of(list_id, f"{email}/nowhere"))
    client.get(path_of(list_id, email.replace("@", "%40")), params={"limit": "x"})
    logs = "".join(running.log.read_text() for running in stack.processes)
    assert path_of(list_id, "{address}") in logs
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
    made = put(client, list_id, email, **values)
    assert {name: made[name] for name in values} == values
    assert (made["status"], made["email_enabled"], made["source"]) == ("active", True, "owner")
    assert (made["joined_at"], made["import_id"]) == (made["created_at"], None)
    assert put(client, list_id, email.upper(), **values) == made
    assert known_member(client, list_id, email) == made
    assert count(client, list_id) == 1
    changed = put(client, list_id, email, name=None, fields={"city": "Rome"})
    assert (changed["name"], changed["type"], changed["tags"]) == (None, "gold", ["VIP"])
    assert changed["fields"] == {"city": "Rome"}
    path = f"{path_of(list_id, made['user_id'])}/history"
    entries = data(client.get(path))["items"]
    assert [(each["action"], each["actor"], each["changed"]) for each in entries] == [
        ("edited", "owner", ["name", "fields.city"]),
        ("added", "owner", None),
    ]
    # Of the person nothing is known but the address.
    assert stack.query("SELECT name FROM users WHERE email = %s", email) == [(None,)]
    assert stack.mails(to=email) == []


def test_member_put_keeps_a_pending_member_pending(
    client: httpx2.Client, stranger: httpx2.Client, reader: Reader
) -> None:
    list_id = new_list(client, confirm_required=True)["id"]
    subscribe(stranger, list_id, reader.email)
    made = put(client, list_id, reader.email, name="Ada", tags=["VIP"])
    assert (made["status"], made["name"], made["tags"]) == ("pending", "Ada", ["VIP"])
    assert reader.stands(list_id)[0] == "pending"


def test_member_put_restores_a_removed_member_with_the_old_field_values(
    client: httpx2.Client, list_id: int
) -> None:
    new_field(client, "city")
    email = new_address()
    made = put(client, list_id, email, fields={"city": "Paris"}, tags=["VIP"])
    data(client.delete(f"/subscriptions/{list_id}/members/{made['user_id']}"))
    assert count(client, list_id) == 0
    back = put(client, list_id, email, tags=["returned"])
    assert (back["status"], back["fields"], back["tags"]) == (
        "active",
        {"city": "Paris"},
        ["returned"],
    )
    assert count(client, list_id) == 1


@pytest.mark.parametrize("then", ["left", "removed", "pending", "erased"])
def test_member_put_for_an_opted_out_person_is_rejected_and_changes_nothing(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, reader: Reader, then: str
) -> None:
    list_id = new_list(client)["id"]
    reader.joins(list_id)
    put(client, list_id, reader.email, name="Ada", tags=["VIP"])
    reader.leaves(list_id)
    if then == "removed":
        data(client.delete(f"/subscriptions/{list_id}/members/{reader.user_id}"))
    if then == "pending":
        subscribe(stranger, list_id, reader.email)
    if then == "erased":
        erase(stack.resources, reader.email)
    kept = "SELECT to_jsonb(t) FROM {} AS t WHERE list_id = %s ORDER BY id"
    tables = ("subscriptions", "opt_outs", "subscription_events", "tags")
    before = [stack.query(kept.format(table), list_id) for table in tables]
    for _ in range(2):
        body = {"name": "Eve", "type": "gold", "tags": ["new"]}
        reply = client.put(path_of(list_id, reader.email), json=body)
        problem(reply, 409, "subscription.opted_out")
    assert [stack.query(kept.format(table), list_id) for table in tables] == before
    if then == "erased":
        assert stack.query("SELECT 1 FROM users WHERE email = %s", reader.email) == []


def test_member_put_keeps_mail_off_that_the_person_switched_off(
    client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    reader.wants_mail(list_id, enabled=False)
    changed = put(client, list_id, reader.email, name="Ada")
    assert (changed["status"], changed["email_enabled"]) == ("active", False)
    data(client.delete(f"/subscriptions/{list_id}/members/{reader.user_id}"))
    back = put(client, list_id, reader.email)
    assert (back["status"], back["email_enabled"]) == ("active", False)


def test_creating_a_member_requires_the_paid_plan_but_changing_a_member_does_not(
    stack: Stack, client: httpx2.Client, owner: Owner, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    stack.query("UPDATE users SET plan = %s WHERE id = %s", Plan.FREE, owner.user_id)
    email = new_address()
    problem(client.put(path_of(list_id, email), json={}), 403, "plan.required")
    assert member(client, list_id, email) is None
    assert stack.query("SELECT 1 FROM users WHERE email = %s", email) == []
    assert put(client, list_id, reader.email, name="Ada")["name"] == "Ada"
    data(client.delete(f"/subscriptions/{list_id}/members/{reader.user_id}"))
    problem(client.put(path_of(list_id, reader.email), json={}), 403, "plan.required")


def test_concurrent_member_puts_create_only_one_member(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    email = new_address()
    with ThreadPoolExecutor(6) as pool:
        calls = [pool.submit(put, client, list_id, email, name="Ada") for _ in range(6)]
        shown = [each.result() for each in calls]
    assert shown == [shown[0]] * 6
    assert count(client, list_id) == 1
    rows = "SELECT count(*) FROM subscription_events WHERE list_id = %s"
    assert stack.query(rows, list_id) == [(1,)]


def test_member_is_found_only_by_the_address_that_the_list_knows(
    stack: Stack, client: httpx2.Client, other_owner: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    elsewhere = new_address()
    foreign = new_address()
    put(other_owner, new_list(other_owner)["id"], foreign)
    stack.query("UPDATE users SET email = %s WHERE id = %s", elsewhere, reader.user_id)
    for unknown in (elsewhere, foreign, new_address()):
        for reply in (
            client.get(path_of(list_id, unknown)),
            client.patch(path_of(list_id, unknown), json={"name": "x"}),
        ):
            problem(reply, 404, "member.not_found")
    assert data(client.get(path_of(list_id, reader.email)))["user_id"] == reader.user_id
    assert put(client, list_id, reader.email, name="Ada")["user_id"] == reader.user_id


def test_event_feed_names_the_changed_member_attributes_but_not_their_values(
    client: httpx2.Client, list_id: int
) -> None:
    new_field(client, "ailment")
    email = new_address()
    put(client, list_id, email)
    put(client, list_id, email, name="Ada", fields={"ailment": "gout"}, tags=["patient"])
    types = ["subscription.created", "subscription.changed"]
    made, changed = events(client, 2, type=types, list_id=list_id)
    assert (made["type"], made["data"]["action"]) == ("subscription.created", "added")
    assert made["data"]["changed"] is None
    assert changed["data"]["changed"] == ["fields", "name", "tags"]
    assert not {"ailment", "gout", "patient"} & set(str(changed).replace("'", " ").split())


def test_member_fields_and_tags_are_visible_only_to_the_owner(
    client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    new_field(client, "note", public=True)
    reader.joins(list_id)
    put(client, list_id, reader.email, fields={"note": "loud"}, tags=["difficult"])
    hidden = dict.fromkeys(("fields", "tags", "joined_at", "import_id"))
    own = data(reader.client.get("/subscriptions"))
    opponent = data(reader.client.get("/subscriptions/opponent", params={"list_id": list_id}))
    for shown in (reader.standing(list_id), own[0], opponent["sub"]):
        assert {name: shown[name] for name in hidden} == hidden


def test_member_of_several_lists_has_separate_fields_and_tags_on_each_list(
    client: httpx2.Client, list_id: int
) -> None:
    new_field(client, "city")
    other = new_list(client)["id"]
    email = new_address()
    first = put(client, list_id, email, fields={"city": "Paris"}, tags=["VIP"])
    put(client, other, email, fields={"city": "Rome"}, tags=["press"])
    path = f"/subscriptions/{list_id}/members/{first['user_id']}/subs"
    found = {each["list_id"]: (each["fields"], each["tags"]) for each in data(client.get(path))}
    assert found == {list_id: ({"city": "Paris"}, ["VIP"]), other: ({"city": "Rome"}, ["press"])}


def test_erasure_clears_fields_and_tags_and_history_details_of_the_member(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    new_field(client, "ailment")
    email = new_address()
    made = put(client, list_id, email, fields={"ailment": "gout"}, tags=["patient"])
    put(client, list_id, email, fields={"ailment": "gout again"})
    erase(stack.resources, email)
    shown = data(client.get(path_of(list_id, made["user_id"])))
    assert (shown["status"], shown["fields"], shown["tags"]) == ("removed", {}, [])
    entries = data(client.get(f"{path_of(list_id, made['user_id'])}/history"))["items"]
    assert [(each["action"], each["changed"]) for each in entries] == [
        ("erased", None),
        ("edited", None),
        ("added", None),
    ]


def test_erasure_of_an_owner_deletes_their_fields_and_tags(stack: Stack) -> None:
    gone = stack.create_owner()
    with stack.client(gone.key) as client:
        list_id = new_list(client)["id"]
        new_field(client, "city")
        put(client, list_id, new_address(), tags=["VIP"])
        data(client.delete(f"/lists/{list_id}"))
    erase(stack.resources, gone.email)
    assert stack.query("SELECT 1 FROM tags WHERE list_id = %s", list_id) == []
    assert stack.query("SELECT 1 FROM fields WHERE user_id = %s", gone.user_id) == []


def test_transfer_copies_fields_and_tags_to_the_target_list(
    client: httpx2.Client, list_id: int
) -> None:
    new_field(client, "city")
    target = new_list(client)["id"]
    email = new_address()
    put(client, target, new_address(), tags=["vip"])
    made = put(client, list_id, email, fields={"city": "Paris"}, tags=["VIP", "press"])
    move = f"/subscriptions/{list_id}/members/{made['user_id']}/transfer"
    assert data(client.post(move, params={"dst_list_id": target})) == 1
    there = known_member(client, target, email)
    assert (there["fields"], there["tags"]) == ({"city": "Paris"}, ["press", "vip"])


@pytest.mark.parametrize("is_removed", [False, True])
def test_transfer_keeps_target_values_unless_the_target_had_removed_the_member(
    client: httpx2.Client, list_id: int, is_removed: bool
) -> None:
    for key in ("city", "size", "pet"):
        new_field(client, key)
    target = new_list(client)["id"]
    email = new_address()
    there = put(client, target, email, fields={"city": "Rome", "pet": "cat"}, tags=["press"])
    put(client, list_id, email, fields={"city": "Paris", "size": "XL"}, tags=["VIP"])
    base = f"/members/{there['user_id']}"
    if is_removed:
        data(client.delete(f"/subscriptions/{target}{base}"))
    move = f"/subscriptions/{list_id}{base}/transfer"
    assert data(client.post(move, params={"dst_list_id": target})) == 1
    merged = known_member(client, target, email)
    city = "Paris" if is_removed else "Rome"
    assert merged["fields"] == {"city": city, "size": "XL", "pet": "cat"}
    assert (merged["status"], merged["tags"]) == ("active", ["press", "VIP"])
