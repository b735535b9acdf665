"""Tests of requests that add up to 100,000 members at once."""

from typing import Any

import httpx2

from core.upload_limits import MAX_MEMBERS_PER_REQUEST
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
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


def test_bulk_add_rejects_malformed_bodies(client: httpx2.Client, list_id: int) -> None:
    for body, field in [
        ({}, "body.members"),
        ([], "body"),
        ({"members": []}, "body.members"),
        ({"members": "ada@example.com"}, "body.members"),
        ({"members": [{"name": "Ada"}]}, "body.members[0].email"),
        ({"members": [{"email": "a@example.com"}, {"email": 7}]}, "body.members[1].email"),
        ({"members": [{"email": "a@example.com", "name": 7}]}, "body.members[0].name"),
        ({"members": [None]}, "body.members[0]"),
    ]:
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
