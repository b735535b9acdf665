"""Tests of bulk actions, which change all members who match a filter, and of their undo."""

from datetime import timedelta
from typing import Any

import httpx2
import pytest

from devstack.harness.stack import Stack
from services.privacy.retention import RULES
from tests.support.http.replies import data, problem
from tests.support.imports.bulk import await_job, newest_job
from tests.support.lists.segments import (
    VIP,
    bulk_action,
    import_some_members,
    new_segment,
    read_members,
    run_bulk_action,
    set_member,
    tag_names,
    undo,
)
from tests.support.lists.subscribers import Reader, new_list, read_subscriber_count, require_member
from tests.support.people.erasure import erase

EVERY_MEMBER = {"field": "email", "exists": True}


def test_bulk_action_runs_as_job_that_reports_matched_and_changed_members(
    client: httpx2.Client, list_id: int
) -> None:
    [ada, ben, _] = import_some_members(client, list_id, 3, vips=2)
    set_member(client, list_id, ada, add_tags=["spring"])
    reply = bulk_action(client, list_id, "tag", filter=VIP, value="spring")
    job = data(reply, 202)
    assert reply.headers["location"] == f"/jobs/{job['id']}"
    finished_job = await_job(client, job["id"])
    bulk_id = finished_job["result"]["bulk_id"]
    assert finished_job["result"] == {"bulk_id": bulk_id, "matched": 2, "changed": 1}
    assert (finished_job["progress"]["done"], finished_job["progress"]["total"]) == (3, 3)
    assert require_member(client, list_id, ben)["tags"] == ["spring", "vip"]


def test_bulk_action_dry_run_returns_the_count_and_changes_nothing(
    client: httpx2.Client, list_id: int
) -> None:
    members = import_some_members(client, list_id, 3, vips=2)
    members_before = read_members(client, list_id, members)
    path = f"/lists/{list_id}/members/bulk"
    body = {"action": "tag", "value": "new"}
    reply = client.post(path, params={"dry_run": 1}, json={**body, "filter": VIP})
    assert data(reply) == {"matched": 2, "is_exact": True}
    assert newest_job(client)["kind"] != "members.bulk"
    assert tag_names(client, list_id) == ["vip"]
    assert read_members(client, list_id, members) == members_before


ACTIONS: list[tuple[str, str | None, dict[str, Any]]] = [
    ("tag", "Spring", {"tags": ["Spring", "vip"]}),
    ("untag", "VIP", {"tags": []}),
    ("remove", None, {"status": "removed"}),
    ("set_type", "gold", {"type": "gold"}),
    ("email_off", None, {"email_enabled": False}),
]
EMAIL_OFF_BY_OWNER = {"reason": "owner", "status": None}


@pytest.mark.parametrize(("action", "value", "expected"), ACTIONS)
def test_bulk_action_changes_only_matching_members_and_its_undo_restores_them(
    client: httpx2.Client, list_id: int, action: str, value: str | None, expected: dict[str, Any]
) -> None:
    members = import_some_members(client, list_id, 3, vips=2)
    members_before = read_members(client, list_id, members)
    active_count = read_subscriber_count(client, list_id)
    segment = new_segment(client, list_id)
    result = run_bulk_action(client, list_id, action, segment_id=segment["id"], value=value)
    assert (result["matched"], result["changed"]) == (2, 2)
    members_after = read_members(client, list_id, members)
    for old, new in zip(members_before[:2], members_after[:2], strict=True):
        if action == "email_off":
            expected = expected | {"email_off": EMAIL_OFF_BY_OWNER | {"at": new["email_off"]["at"]}}
        assert new == {**old, **expected, "updated_at": new["updated_at"]}
        assert new["updated_at"] > old["updated_at"]
    assert members_after[2] == members_before[2]
    assert read_subscriber_count(client, list_id) == (
        active_count - 2 if action == "remove" else active_count
    )
    assert data(undo(client, result["bulk_id"])) == 2
    assert newest_job(client)["result"] == {"bulk_id": result["bulk_id"], "undone": 2, "kept": 0}
    assert read_members(client, list_id, members) == members_before
    assert read_subscriber_count(client, list_id) == active_count
    # A second undo changes nothing.
    assert data(undo(client, result["bulk_id"])) == 0


def test_member_history_records_bulk_actions_and_their_undo(
    client: httpx2.Client, list_id: int
) -> None:
    [ada] = import_some_members(client, list_id, 1, vips=1)
    bulk_id = run_bulk_action(client, list_id, "remove", filter=VIP)["bulk_id"]
    data(undo(client, bulk_id))
    user_id = require_member(client, list_id, ada)["user_id"]
    path = f"/lists/{list_id}/members/{user_id}/history"
    restored, removed, *_ = data(client.get(path))["items"]
    assert (restored["action"], restored["status_before"], restored["status_after"]) == (
        "bulk_undone",
        "removed",
        "active",
    )
    assert (removed["action"], removed["actor"], removed["via"]) == ("removed", "owner", "bulk")


def test_bulk_tier_change_drops_past_expiry_and_its_undo_restores_the_expiry(
    client: httpx2.Client, list_id: int
) -> None:
    members = import_some_members(client, list_id, 3)
    expiries = {"past": "2020-01-01T00:00:00.000000Z", "future": "2031-01-01T00:00:00.000000Z"}
    for email, expiry in zip(members, (expiries["past"], expiries["future"], None), strict=True):
        set_member(client, list_id, email, type="silver", paid_expiry=expiry)
    members_before = read_members(client, list_id, members)
    bulk_id = run_bulk_action(client, list_id, "set_type", filter=EVERY_MEMBER, value="gold")[
        "bulk_id"
    ]
    members_after = read_members(client, list_id, members)
    assert [each["type"] for each in members_after] == ["gold"] * 3
    assert [each["paid_expiry"] for each in members_after] == [None, expiries["future"], None]
    assert data(undo(client, bulk_id)) == 3
    assert read_members(client, list_id, members) == members_before
    run_bulk_action(client, list_id, "set_type", filter=EVERY_MEMBER, value="free")
    assert {each["paid_expiry"] for each in read_members(client, list_id, members)} == {None}


def test_bulk_undo_keeps_values_that_were_changed_after_the_bulk_action(
    client: httpx2.Client, list_id: int
) -> None:
    members = import_some_members(client, list_id, 4, vips=4)
    bulk_id = run_bulk_action(client, list_id, "set_type", filter=VIP, value="gold")["bulk_id"]
    set_member(client, list_id, members[0], type="silver")
    set_member(client, list_id, members[1], name="Named since")
    run_bulk_action(client, list_id, "tag", filter=VIP, value="later")
    assert data(undo(client, bulk_id)) == 3
    assert newest_job(client)["result"]["kept"] == 1
    members_after = read_members(client, list_id, members)
    assert [each["type"] for each in members_after] == ["silver", "free", "free", "free"]
    assert members_after[1]["name"] == "Named since"
    assert all(each["tags"] == ["later", "vip"] for each in members_after)


def test_bulk_undo_keeps_mail_settings_that_were_changed_after_the_bulk_action(
    client: httpx2.Client, list_id: int
) -> None:
    changed_email, unchanged_email = import_some_members(client, list_id, 2, vips=2)
    bulk_id = run_bulk_action(client, list_id, "email_off", filter=VIP)["bulk_id"]
    user_id = require_member(client, list_id, changed_email)["user_id"]
    for enabled in (True, False):
        path = f"/subscriptions/{list_id}/members/{user_id}/email"
        assert data(client.put(path, json={"enabled": enabled})) == 1
    # A bulk action can be undone even after a later bulk action of another kind.
    run_bulk_action(client, list_id, "tag", filter=EVERY_MEMBER, value="later")
    assert data(undo(client, bulk_id)) == 1
    restored_members = read_members(client, list_id, [changed_email, unchanged_email])
    assert [each["email_enabled"] for each in restored_members] == [False, True]


def test_bulk_undo_neither_restores_nor_mails_people_who_opted_out(
    client: httpx2.Client, make_reader: Any, list_id: int
) -> None:
    opted_out, without_mail, active = (make_reader().joins(list_id) for _ in range(3))
    emails = [each.email for each in (opted_out, without_mail, active)]
    email_off_id = run_bulk_action(client, list_id, "email_off", filter=EVERY_MEMBER)["bulk_id"]
    removal_id = run_bulk_action(client, list_id, "remove", filter=EVERY_MEMBER)["bulk_id"]
    # Two of the three people opt out after the bulk action has removed them from the list.
    opted_out.client.delete(f"/subscriptions/{list_id}")
    without_mail.wants_mail(list_id, False)
    assert data(undo(client, removal_id)) == 2
    assert data(undo(client, email_off_id)) == 1
    members = {email: require_member(client, list_id, email) for email in emails}
    assert members[opted_out.email]["status"] == "removed"
    silent_member = members[without_mail.email]
    assert (silent_member["status"], silent_member["email_enabled"]) == ("active", False)
    active_member = members[active.email]
    assert (active_member["status"], active_member["email_enabled"]) == ("active", True)


def test_bulk_undo_keeps_mail_off_that_was_off_before_the_bulk_action(
    client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id).wants_mail(list_id, False)
    result = run_bulk_action(client, list_id, "email_off", filter=EVERY_MEMBER)
    assert (result["matched"], result["changed"]) == (1, 0)
    assert data(undo(client, result["bulk_id"])) == 0
    assert reader.read_status(list_id) == ("active", False)


def test_erased_member_is_excluded_from_bulk_actions_and_from_their_undo(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    erased, remaining = import_some_members(client, list_id, 2, vips=2)
    bulk_id = run_bulk_action(client, list_id, "remove", filter=VIP)["bulk_id"]
    count_changes = "SELECT count(*) FROM bulk_changes WHERE bulk_id = %s"
    assert stack.query(count_changes, bulk_id) == [(2,)]
    erase(stack.resources, erased)
    assert stack.query(count_changes, bulk_id) == [(1,)]
    assert data(undo(client, bulk_id)) == 1
    assert require_member(client, list_id, remaining)["status"] == "active"
    # A filter that includes removed members doesn't match the erased person.
    any_status = {"field": "status", "in": ["active", "removed"]}
    assert run_bulk_action(client, list_id, "tag", filter=any_status, value="x")["matched"] == 1


@pytest.mark.parametrize(
    "body",
    [
        {"action": "tag", "filter": VIP},
        {"action": "tag", "filter": VIP, "value": "a,b"},
        {"action": "untag", "filter": VIP, "value": " "},
        {"action": "set_type", "filter": VIP, "value": "platinum"},
        {"action": "set_type", "filter": VIP},
        {"action": "remove", "filter": VIP, "value": "now"},
    ],
)
def test_bulk_action_rejects_a_value_that_does_not_fit_the_action(
    client: httpx2.Client, list_id: int, body: dict[str, Any]
) -> None:
    error = problem(client.post(f"/lists/{list_id}/members/bulk", json=body), 422, "bulk.value")
    assert [each["field"] for each in error["errors"]] == ["body.value"]


def test_bulk_action_requires_either_a_segment_or_a_filter(
    client: httpx2.Client, list_id: int
) -> None:
    segment = new_segment(client, list_id)
    problem(bulk_action(client, list_id, "remove"), 400, "selection.unclear")
    reply = bulk_action(client, list_id, "remove", filter=VIP, segment_id=segment["id"])
    problem(reply, 400, "selection.unclear")
    problem(bulk_action(client, list_id, "burn", filter=VIP), 422, "body.invalid")


def test_running_bulk_action_cannot_be_undone(
    stack_without_workers: Stack, client_without_workers: httpx2.Client
) -> None:
    list_id = new_list(client_without_workers)["id"]
    job = data(bulk_action(client_without_workers, list_id, "remove", filter=EVERY_MEMBER), 202)
    [(bulk_id,)] = stack_without_workers.query(
        "SELECT subject_id FROM jobs WHERE id = %s", job["id"]
    )
    assert isinstance(bulk_id, int)
    problem(undo(client_without_workers, bulk_id), 409, "bulk.running")
    assert data(client_without_workers.delete(f"/jobs/{job['id']}")) == 1
    # The cancelled bulk action can be undone. Two requests for the undo start only one job.
    undo_job_ids = {
        data(undo(client_without_workers, bulk_id, Prefer="wait=0"), 202) for _ in range(2)
    }
    assert len(undo_job_ids) == 1
    # A bulk action can't be retried after a request for its undo.
    problem(client_without_workers.post(f"/jobs/{job['id']}/retry"), 409, "job.not_retryable")


def test_bulk_undo_expires_after_ninety_days_and_its_data_is_kept_that_long(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    import_some_members(client, list_id, 1, vips=1)
    bulk_id = run_bulk_action(client, list_id, "remove", filter=VIP)["bulk_id"]
    stack.query(
        "UPDATE bulk_actions SET created_at = created_at - interval '91 days' WHERE id = %s",
        bulk_id,
    )
    problem(undo(client, bulk_id), 409, "bulk.undo_over")
    [retention_rule] = [rule for rule in RULES if rule.name == "bulk_changes"]
    assert retention_rule.age(stack.settings()) > timedelta(days=90)
