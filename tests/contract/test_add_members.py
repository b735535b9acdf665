"""Tests of requests that add up to 100,000 members at once."""

from typing import Any

import httpx2
import pytest

from core.upload_limits import MAX_MEMBERS_PER_REQUEST
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from services.subscriptions.tags import MAX_TAGS_OF_LIST
from tests.support.http.replies import data, problem
from tests.support.imports.bulk import (
    COUNT_NAMES,
    add,
    build_addresses,
    fetch_rejected_rows,
    list_stored_keys,
    newest_job,
    nonzero_counts,
)
from tests.support.lists.segments import new_field
from tests.support.lists.subscribers import (
    Reader,
    new_address,
    new_list,
    read_subscriber_count,
    require_member,
    trace_for,
)


def test_bulk_added_members_are_active_and_counted(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    ada, ben = build_addresses(2)
    reply = add(client, list_id, {"email": ada, "name": " Ada Lovelace "}, ben.upper())
    assert data(reply) == 2
    assert read_subscriber_count(client, list_id) == 2
    ada_record = require_member(client, list_id, ada)
    assert (ada_record["name"], ada_record["status"], ada_record["type"]) == (
        "Ada Lovelace",
        "active",
        "free",
    )
    assert (ada_record["source"], ada_record["email_enabled"]) == ("import", True)
    assert require_member(client, list_id, ben)["name"] is None
    # Nobody can log in as a person who was added.
    stored_users = stack.query(
        "SELECT password_hash, name FROM users WHERE email IN (%s, %s)", ada, ben
    )
    assert stored_users == [(None, None)] * 2


def test_bulk_add_job_reports_counts_and_rejected_rows(client: httpx2.Client, list_id: int) -> None:
    [existing, new_email] = build_addresses(2)
    data(add(client, list_id, existing))
    row_with_formula = {"email": "@", "name": "=1+1"}
    assert (
        data(
            add(
                client,
                list_id,
                existing,
                "no address",
                new_email,
                new_email.upper(),
                row_with_formula,
            )
        )
        == 1
    )
    job = newest_job(client)
    assert (job["kind"], job["status"]) == ("members.add", "succeeded")
    assert {*COUNT_NAMES, "errors_url"} <= set(job["result"])
    expected = {"received": 5, "added": 1, "already": 1, "invalid": 2, "duplicate": 1}
    assert nonzero_counts(job["result"]) == expected
    rejected_rows = fetch_rejected_rows(job["result"]["errors_url"])
    assert list(rejected_rows[0]) == ["email", "name", "line", "code", "reason"]
    assert [(each["line"], each["email"], each["code"]) for each in rejected_rows] == [
        ("1", existing, "member.already"),
        ("2", "no address", "email.invalid"),
        ("4", new_email.upper(), "row.duplicate"),
        ("5", "'@", "email.invalid"),
    ]
    assert rejected_rows[-1]["name"] == "'=1+1"
    assert all(each["reason"] for each in rejected_rows)
    assert (job["progress"]["done"], job["progress"]["total"]) == (5, 5)


def test_bulk_add_of_only_invalid_addresses_is_rejected_and_stores_nothing(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    objects_before = list_stored_keys(stack)
    problem(add(client, list_id, "nobody", ""), 422, "members.all_invalid")
    assert read_subscriber_count(client, list_id) == 0
    job = newest_job(client)
    assert (job["status"], job["error"]["code"]) == ("failed", "members.all_invalid")
    eventually(lambda: list_stored_keys(stack) <= objects_before)


def test_bulk_add_keeps_unsubscribed_people_out_and_disabled_mail_off(
    client: httpx2.Client, reader: Reader, make_reader: Any, list_id: int
) -> None:
    opted_out = reader.joins(list_id).leaves(list_id)
    without_mail = make_reader().joins(list_id)
    without_mail.wants_mail(list_id, False)
    assert data(add(client, list_id, opted_out.email, without_mail.email, new_address())) == 1
    expected = {"received": 3, "added": 1, "already": 1, "opted_out": 1}
    assert nonzero_counts(newest_job(client)["result"]) == expected
    assert opted_out.read_status(list_id)[0] == "unsubscribed"
    assert without_mail.read_status(list_id) == ("active", False)
    opted_out.joins(list_id)
    assert opted_out.read_status(list_id) == ("active", True)


def test_removed_member_can_be_added_again_unless_they_opted_out(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    remaining, opted_out = build_addresses(2)
    data(add(client, list_id, remaining, opted_out))
    user_ids = {
        email: require_member(client, list_id, email)["user_id"] for email in (remaining, opted_out)
    }
    trace_params = {"trace_id": trace_for(stack, list_id, user_ids[opted_out])}
    assert data(stranger.delete(f"/subscriptions/{list_id}", params=trace_params)) == 1
    for user_id in user_ids.values():
        assert data(client.delete(f"/subscriptions/{list_id}/members/{user_id}")) == 1
    assert data(add(client, list_id, {"email": remaining, "name": "Back"}, opted_out)) == 1
    assert require_member(client, list_id, remaining)["name"] == "Back"
    assert require_member(client, list_id, opted_out)["status"] == "removed"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "body.members"),
        ([], "body"),
        ({"members": []}, "body.members"),
        ({"members": "ada@example.com"}, "body.members"),
        ({"members": [{"name": "Ada"}]}, "body.members[0].email"),
        ({"members": [{"email": "a@example.com"}, {"email": 7}]}, "body.members[1].email"),
        ({"members": [{"email": "a@example.com", "name": 7}]}, "body.members[0].name"),
        ({"members": [None]}, "body.members[0]"),
    ],
)
def test_bulk_add_rejects_malformed_bodies(
    client: httpx2.Client, list_id: int, body: dict[str, Any] | list[Any], field: str
) -> None:
    reply = client.post(f"/auxilia/subscriptions/{list_id}/members/add", json=body)
    error = problem(reply, 422, "body.invalid")
    assert field in {each["field"] for each in error["errors"]}
    assert read_subscriber_count(client, list_id) == 0


def test_bulk_add_rejects_more_than_100_000_members(client: httpx2.Client, list_id: int) -> None:
    body = b'{"members": [%b]}' % b",".join([b'{"email":""}'] * (MAX_MEMBERS_PER_REQUEST + 1))
    path = f"/auxilia/subscriptions/{list_id}/members/add"
    reply = client.post(path, content=body, headers={"Content-Type": "application/json"})
    problem(reply, 413, "members.too_many")


def test_bulk_add_returns_202_after_its_wait_and_its_job_can_be_cancelled(
    client_without_workers: httpx2.Client,
) -> None:
    list_id = new_list(client_without_workers)["id"]
    reply = add(client_without_workers, list_id, *build_addresses(2), prefer="wait=1")
    job_id = data(reply, 202)
    assert reply.headers["location"] == f"/jobs/{job_id}"
    assert data(client_without_workers.delete(f"/jobs/{job_id}")) == 1
    [import_record] = data(client_without_workers.get("/imports"))["items"]
    assert (import_record["status"], import_record["error"]["code"]) == (
        "cancelled",
        "job.cancelled",
    )
    assert import_record["finished_at"]


def test_bulk_added_members_get_their_type_fields_and_tags(
    client: httpx2.Client, list_id: int
) -> None:
    new_field(client, "city")
    new_field(client, "visits", "number")
    existing, removed, *emails = build_addresses(5)
    data(add(client, list_id, existing, {"email": removed, "tags": ["old"]}))
    record_before = require_member(client, list_id, existing)
    removed_id = require_member(client, list_id, removed)["user_id"]
    data(client.delete(f"/subscriptions/{list_id}/members/{removed_id}"))
    values = {"type": "gold", "fields": {"city": " Paris ", "visits": 3}, "tags": ["VIP", "vip"]}
    people: list[dict[str, Any]] = [
        {"email": each, **values} for each in (existing, removed, *emails[:2])
    ]
    people.append({"email": emails[2], "type": "silver", "fields": {"city": None}, "tags": None})
    assert data(add(client, list_id, *people)) == 4
    for email in (removed, *emails[:2]):
        member = require_member(client, list_id, email)
        assert (member["type"], member["fields"]) == ("gold", {"city": "Paris", "visits": 3})
        assert {"VIP"} <= set(member["tags"]) <= {"VIP", "old"}
    member = require_member(client, list_id, emails[2])
    assert (member["type"], member["fields"], member["tags"]) == ("silver", {}, [])
    # A member who is on the list already stays as they are.
    assert require_member(client, list_id, existing) == record_before
    result = newest_job(client)["result"]
    assert nonzero_counts(result) == {"received": 5, "added": 4, "already": 1}
    assert result["ignored"] == []
    assert result["skipped"] == [{"index": 0, "code": "member.already"}]
    # The rejected rows contain the values, so that the file can be imported.
    [row] = fetch_rejected_rows(result["errors_url"])
    cells = {name: row[name] for name in ("email", "name", "type", "tags", "city", "visits")}
    assert cells == {
        "email": existing,
        "name": "",
        "type": "gold",
        "tags": '["VIP","vip"]',
        "city": " Paris ",
        "visits": "3",
    }


def test_result_of_bulk_add_names_ignored_values_and_skipped_rows(
    client: httpx2.Client, list_id: int
) -> None:
    new_field(client, "visits", "number")
    emails = build_addresses(6)
    people: list[dict[str, Any]] = [
        {"email": emails[0], "type": "platinum", "name": "Ada"},
        {"email": "nobody", "type": "platinum"},
        {"email": emails[1], "fields": {"visits": "many", "town": "Rome"}, "paid_expiry": None},
        {"email": emails[2], "tags": ["a", 7, "b,c", "d"], "gold": True},
        {"email": emails[2], "type": "gold"},
        {"email": emails[3], "type": None, "fields": [], "tags": {}},
        {"email": emails[4], "tags": ["x"] * 101},
        {"email": emails[5], "tags": [], "type": "free", "fields": {}},
    ]
    assert data(add(client, list_id, *people)) == 6
    result = newest_job(client)["result"]
    assert [(each["index"], each["field"]) for each in result["ignored"]] == [
        (0, "type"),
        (2, "paid_expiry"),
        (2, "fields.visits"),
        (2, "fields.town"),
        (3, "gold"),
        (3, "tags[1]"),
        (3, "tags[2]"),
        (5, "type"),
        (5, "fields"),
        (5, "tags"),
        (6, "tags"),
    ]
    assert result["skipped"] == [
        {"index": 1, "code": "email.invalid"},
        {"index": 4, "code": "row.duplicate"},
    ]
    members = [require_member(client, list_id, each) for each in emails]
    assert {each["type"] for each in members} == {"free"}
    assert [each["tags"] for each in members] == [[], [], ["a", "d"], [], [], []]
    assert all(each["fields"] == {} for each in members)
    # The other values of the row were imported.
    assert members[0]["name"] == "Ada"
    left_out_rows = [
        each for each in fetch_rejected_rows(result["errors_url"]) if each["code"] == "row.left_out"
    ]
    assert [each["line"] for each in left_out_rows] == ["1", "3", "4", "6", "7"]
    assert "type: must be one of free, silver, gold" in left_out_rows[0]["reason"]


def test_result_of_bulk_add_names_at_most_100_values_and_rows(
    client: httpx2.Client, list_id: int
) -> None:
    people = [{"email": each, "age": 7} for each in build_addresses(150)]
    assert data(add(client, list_id, *people)) == 150
    ignored = newest_job(client)["result"]["ignored"]
    assert ignored == [{"index": index, "field": "age"} for index in range(100)]
    assert data(add(client, list_id, *people)) == 0
    result = newest_job(client)["result"]
    assert result["skipped"] == [{"index": index, "code": "member.already"} for index in range(100)]
    assert len(fetch_rejected_rows(result["errors_url"])) == 150


HOSTILE_VALUES: list[dict[str, Any]] = [
    {f"n{number}": 1 for number in range(15_000)},
    {"n" * 1_000_000: 1},
    {"a\0b": 1, "\u202egold": 2, "fields": {"\0": 1, "k" * 1_000_000: 1}},
    {"type": ["gold"], "tags": [["vip"]], "fields": {"city": {"a": {"b": []}}}},
    {"type": {"gold": 1}, "tags": "vip", "fields": "city"},
    {"type": "gold\0", "tags": ["a\0", "", " ", "\u202e"], "fields": {"city": "\0"}},
    {"fields": {f"k{number}": 1 for number in range(15_000)}, "tags": ["a"] * 15_000},
    {"fields": {"visits": 10**18}, "type": True, "tags": [None]},
]


@pytest.mark.parametrize("values", HOSTILE_VALUES, ids=range(len(HOSTILE_VALUES)))
def test_hostile_values_of_bulk_added_members_are_ignored(
    client: httpx2.Client, list_id: int, values: dict[str, Any]
) -> None:
    new_field(client, "city")
    new_field(client, "visits", "number")
    emails = build_addresses(2)
    people = [{"email": emails[0], **values}, {"email": emails[1], "type": "gold"}]
    assert data(add(client, list_id, *people)) == 2
    members = [require_member(client, list_id, each) for each in emails]
    assert [(each["type"], each["fields"], each["tags"]) for each in members] == [
        ("free", {}, []),
        ("gold", {}, []),
    ]
    reply = client.get("/jobs", params={"limit": 1})
    ignored = data(reply)["items"][0]["result"]["ignored"]
    assert 1 <= len(ignored) <= 100
    assert {each["index"] for each in ignored} == {0}
    assert len(reply.content) < 50_000


def test_strict_bulk_add_rejects_wrong_values_and_adds_nobody(
    client: httpx2.Client, list_id: int
) -> None:
    new_field(client, "visits", "number")
    people: list[dict[str, Any]] = [
        {"email": each, "type": "gold", "fields": {"visits": 1}, "tags": ["vip"]}
        for each in build_addresses(3)
    ]
    path = f"/auxilia/subscriptions/{list_id}/members/add"
    strict = {"Prefer": "handling=strict"}
    body: dict[str, Any] = {
        "members": [
            people[0],
            {**people[1], "type": "platinum"},
            {**people[2], "fields": {"visits": "1", "town": "Rome"}, "tags": ["a", ""]},
        ]
    }
    error = problem(client.post(path, json=body, headers=strict), 400, "members.values_invalid")
    assert [each["field"] for each in error["errors"]] == [
        "body.members[1].type",
        "body.members[2].fields.visits",
        "body.members[2].fields.town",
        "body.members[2].tags[1]",
    ]
    assert "body.members[1].type must be one of free, silver, gold" in error["message"]
    assert read_subscriber_count(client, list_id) == 0
    assert data(client.post(path, json={"members": people}, headers=strict)) == 3
    assert newest_job(client)["result"]["ignored"] == []


def test_members_without_a_place_for_their_tags_are_added_and_named(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    stack.query(
        "INSERT INTO tags (list_id, name, folded)"
        " SELECT %s, 't' || n, 't' || n FROM generate_series(1, %s) AS n",
        *(list_id, MAX_TAGS_OF_LIST),
    )
    emails = build_addresses(2)
    people = [{"email": emails[0], "tags": ["t1"]}, {"email": emails[1], "tags": ["new", "t2"]}]
    assert data(add(client, list_id, *people)) == 2
    assert newest_job(client)["result"]["ignored"] == [{"index": 1, "field": "tags"}]
    assert require_member(client, list_id, emails[1])["tags"] == ["t2"]


def test_undo_of_a_bulk_add_restores_type_fields_and_tags(
    client: httpx2.Client, list_id: int
) -> None:
    new_field(client, "city")
    removed, new_email = build_addresses(2)
    row = {"email": removed, "type": "silver", "fields": {"city": "Rome"}, "tags": ["a"]}
    data(add(client, list_id, row))
    user_id = require_member(client, list_id, removed)["user_id"]
    data(client.delete(f"/subscriptions/{list_id}/members/{user_id}"))
    record_before = require_member(client, list_id, removed)
    values = {"type": "gold", "fields": {"city": "Paris"}, "tags": ["b"]}
    assert data(add(client, list_id, {"email": removed, **values}, {"email": new_email})) == 2
    assert require_member(client, list_id, removed)["type"] == "gold"
    import_id = newest_job(client)["result"]["import_id"]
    assert data(client.delete(f"/imports/{import_id}/members")) == 2
    assert require_member(client, list_id, removed) == record_before


def test_bulk_add_with_values_has_a_kind_that_older_workers_skip(
    client: httpx2.Client, list_id: int
) -> None:
    """Workers of release 1.1.0 run only jobs of the kinds that they know."""
    rows_by_kind: dict[str, list[dict[str, Any]]] = {
        "members.add": [{"name": "Ada"}, {"age": 7}],
        "members.add_values": [{"type": "gold"}, {"fields": {}}, {"tags": []}],
    }
    for kind, rows in rows_by_kind.items():
        for row in rows:
            assert data(add(client, list_id, {"email": new_address(), **row})) == 1
            assert newest_job(client)["kind"] == kind
