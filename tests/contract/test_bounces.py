"""Tests which bounces turn off a list's mail to a member, and how the API reports the reason."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx2
import pytest
import sqlalchemy

from core import clock
from devstack.harness.stack import Owner, Stack
from services.subscriptions.members import locks
from services.subscriptions.members.bounce_recording import BounceOutcome, ReportedBounce
from services.subscriptions.members.stale_events import MemberMailing
from tests.support.feed.causes import events
from tests.support.http.replies import data, problem
from tests.support.imports.bulk import add
from tests.support.lists.bounces import backdate_history, bounce_hard, build_mailing, reach, record
from tests.support.lists.subscribers import (
    Reader,
    await_mails,
    confirm,
    get_member,
    insert_members,
    new_address,
    new_list,
    require_member,
    subscribe,
)

# In every test of this module, the mailing list has one member, whom the fixture ``member`` adds.
pytestmark = pytest.mark.usefixtures("member")

SOFT_BOUNCE_LIMIT = 5
# How many days ago each of five mailings was sent. If all five mailings have a soft bounce for a
# member, the list's mail to the member is turned off.
SOFT_BOUNCE_DAYS_AGO = (8, 6, 4, 2, 0)


def build_old_mailing(
    list_id: int, user_id: int, *, days: int, mailing_id: int | None = None
) -> MemberMailing:
    """Return a ``MemberMailing`` for a mailing that began ``days`` days ago.

    ``mailing_id``: by default, the older of two mailings gets the lower id.
    """
    return build_mailing(
        list_id,
        user_id,
        mailing_id=1_000 - days if mailing_id is None else mailing_id,
        mailing_at=clock.now() - timedelta(days=days),
    )


def bounce_softly(stack: Stack, *mailings: MemberMailing) -> list[BounceOutcome]:
    return record(stack, [ReportedBounce(each, is_hard=False, status="4.2.2") for each in mailings])


def test_hard_bounce_turns_mail_off_and_keeps_the_membership(
    stack: Stack, client: httpx2.Client, list_id: int, member: Reader
) -> None:
    assert get_member(client, list_id, member)["email_off"] is None
    outcome = bounce_hard(stack, build_mailing(list_id, member.user_id))
    assert outcome is BounceOutcome.APPLIED
    member_record = get_member(client, list_id, member)
    assert (member_record["status"], member_record["email_enabled"]) == ("active", False)
    assert member_record["email_off"].pop("at") > member_record["created_at"]
    assert member_record["email_off"] == {"reason": "bounced", "status": "5.1.1"}
    [listed_member] = data(client.get(f"/lists/{list_id}/subscriptions"))["items"]
    matching_members = data(
        client.post(
            f"/lists/{list_id}/members/search",
            json={"filter": {"field": "email_enabled", "is": False}},
        )
    )["items"]
    assert listed_member == matching_members[0]
    assert (
        listed_member["email_off"]["reason"]
        == member.read_membership(list_id)["email_off"]["reason"]
    )
    path = f"/subscriptions/{list_id}/members/{member.user_id}/subs"
    assert data(client.get(path))[0]["email_off"] == listed_member["email_off"]


def test_hard_bounce_covers_the_lists_of_the_owner_that_the_sender_covers(
    stack: Stack, client: httpx2.Client, other_owner: httpx2.Client, list_id: int, member: Reader
) -> None:
    covered_list_id, other_list_id, left_list_id = (new_list(client)["id"] for _ in range(3))
    foreign_list_id = new_list(other_owner)["id"]
    for each in (covered_list_id, other_list_id, left_list_id, foreign_list_id):
        member.joins(each)
    member.leaves(left_list_id)
    backdate_history(stack, member)
    covered_list_ids = [list_id, covered_list_id, left_list_id]
    bounce_hard(stack, build_mailing(list_id, member.user_id), covered_list_ids=covered_list_ids)
    assert member.read_status(list_id) == member.read_status(covered_list_id) == ("active", False)
    assert (
        member.read_status(other_list_id) == member.read_status(foreign_list_id) == ("active", True)
    )
    assert member.read_status(left_list_id) == ("unsubscribed", True)
    # A sender for all lists covers every list of its owner, but no lists of other owners.
    bounce_hard(stack, build_mailing(list_id, member.user_id, mailing_id=2))
    assert member.read_status(other_list_id) == ("active", False)
    assert member.read_status(foreign_list_id) == ("active", True)


def test_bounce_is_in_the_history_and_in_the_feed(
    stack: Stack, client: httpx2.Client, list_id: int, member: Reader
) -> None:
    bounce_hard(stack, build_mailing(list_id, member.user_id))
    path = f"/lists/{list_id}/members/{member.user_id}/history"
    entry = data(client.get(path))["items"][0]
    assert (entry["action"], entry["actor"], entry["via"]) == ("bounced", "sender", "sender")
    assert (entry["email_enabled_before"], entry["email_enabled_after"]) == (True, False)
    event = events(client, type="subscription.email_off")[-1]
    event_data = {
        name: event["data"][name] for name in ("action", "via", "reason", "email_enabled")
    }
    assert event_data == {
        "action": "bounced",
        "via": "sender",
        "reason": "bounced",
        "email_enabled": False,
    }


def test_consecutive_soft_bounces_turn_mail_off_at_the_limit(
    stack: Stack, client: httpx2.Client, list_id: int, member: Reader
) -> None:
    mailings = [
        build_old_mailing(list_id, member.user_id, days=days) for days in SOFT_BOUNCE_DAYS_AGO
    ]
    for mailing in mailings[:-1]:
        # Several reports about the same mailing are recorded as one bounce.
        assert bounce_softly(stack, mailing, mailing) == ["applied", "duplicate"]
        assert bounce_softly(stack, mailing) == ["duplicate"]
    assert member.read_status(list_id) == ("active", True)
    bounce_softly(stack, mailings[-1])
    email_off = get_member(client, list_id, member)["email_off"]
    assert (email_off["reason"], email_off["status"]) == ("soft_bounced", "4.2.2")
    event = events(client, type="subscription.email_off")[-1]
    assert (event["data"]["action"], event["data"]["via"]) == ("soft_bounced", "sender")


def test_soft_bounces_within_less_than_a_week_never_turn_mail_off(
    stack: Stack, list_id: int, member: Reader
) -> None:
    for days in (6, 5, 4, 3, 2, 1, 0):
        bounce_softly(stack, build_old_mailing(list_id, member.user_id, days=days))
    assert member.read_status(list_id) == ("active", True)


@pytest.mark.parametrize("limit", [0, 2])
def test_soft_bounce_limit_of_a_list_applies(
    stack: Stack, client: httpx2.Client, list_id: int, member: Reader, limit: int
) -> None:
    assert data(client.get(f"/lists/{list_id}"))["soft_bounce_limit"] == SOFT_BOUNCE_LIMIT
    changed = client.patch(f"/lists/{list_id}", json={"soft_bounce_limit": limit})
    assert data(changed)["soft_bounce_limit"] == limit
    for days in (20, 8, 6, 4, 2, 0):
        bounce_softly(stack, build_old_mailing(list_id, member.user_id, days=days))
    assert member.read_status(list_id) == ("active", limit == 0)


@pytest.mark.parametrize("limit", [-1, 21, None, "5"])
def test_soft_bounce_limit_is_from_0_to_20(
    client: httpx2.Client, list_id: int, limit: object
) -> None:
    reply = client.patch(f"/lists/{list_id}", json={"soft_bounce_limit": limit})
    problem(reply, 422, "body.invalid")


def test_delivered_mailing_ends_a_series_of_soft_bounces_in_any_order(
    stack: Stack, list_id: int, member: Reader
) -> None:
    def old_mailing(days: int) -> Any:
        return build_old_mailing(list_id, member.user_id, days=days)

    bounce_softly(stack, *map(old_mailing, (16, 14, 12)))
    reach(stack, old_mailing(10))
    # The delivery of the mailing from 10 days ago has reset the count of soft bounces, so the soft
    # bounce of a mailing from 11 days ago no longer counts.
    bounce_softly(stack, old_mailing(11))
    bounce_softly(stack, *map(old_mailing, (8, 6, 4, 2)))
    assert member.read_status(list_id) == ("active", True)
    # Report a soft bounce and a delivery in one batch. The delivery resets the count of soft
    # bounces before Pressroom compares the count with the limit.
    soft_bounce = ReportedBounce(old_mailing(0), is_hard=False)
    record(stack, [soft_bounce], reached_mails=[old_mailing(3)])
    assert member.read_status(list_id) == ("active", True)


def test_delivery_cancels_only_an_earlier_bounce_of_the_same_mailing(
    stack: Stack, client: httpx2.Client, list_id: int, member: Reader
) -> None:
    client.patch(f"/lists/{list_id}", json={"soft_bounce_limit": 2})

    def build_timed_mailing(days: int, minute: int) -> Any:
        now = clock.now()
        return build_mailing(
            list_id,
            member.user_id,
            mailing_id=1_000 - days,
            mailing_at=now - timedelta(days=days),
            occurred_at=now - timedelta(minutes=60 - minute),
        )

    bounce_softly(stack, build_timed_mailing(20, 1))
    reach(stack, build_timed_mailing(20, 2))
    bounce_softly(stack, build_timed_mailing(8, 3))
    assert member.read_status(list_id) == ("active", True)
    # If the mail was delivered before it bounced, the bounce stays in effect.
    reach(stack, build_timed_mailing(8, 2))
    bounce_softly(stack, build_timed_mailing(0, 4))
    assert member.read_status(list_id) == ("active", False)


def test_no_report_turns_mail_on(
    stack: Stack, client: httpx2.Client, list_id: int, member: Reader
) -> None:
    mailing = build_mailing(list_id, member.user_id)
    bounce_hard(stack, mailing)
    reach(stack, build_mailing(list_id, member.user_id), mailing)
    assert member.read_status(list_id) == ("active", False)
    assert get_member(client, list_id, member)["email_off"]["reason"] == "bounced"


def test_hard_bounce_replaces_a_soft_bounce_of_the_same_mailing(
    stack: Stack, list_id: int, member: Reader
) -> None:
    mailing = build_mailing(list_id, member.user_id)
    soft_report = ReportedBounce(mailing, is_hard=False)
    hard_report = ReportedBounce(mailing, is_hard=True)
    assert bounce_softly(stack, mailing) == ["applied"]
    outcomes = record(stack, [soft_report, hard_report, hard_report])
    assert outcomes == ["duplicate", "applied", "duplicate"]
    assert member.read_status(list_id) == ("active", False)
    assert record(stack, [soft_report]) == ["duplicate"]


def test_reports_from_before_the_latest_action_of_the_person_are_stale(
    stack: Stack, list_id: int, member: Reader
) -> None:
    mailing = build_mailing(list_id, member.user_id)
    member.wants_mail(list_id, False)
    member.wants_mail(list_id, True)
    assert bounce_hard(stack, mailing) == "stale"
    assert bounce_softly(stack, mailing) == ["stale"]
    assert member.read_status(list_id) == ("active", True)
    mailing = build_mailing(list_id, member.user_id)
    member.leaves(list_id).joins(list_id)
    assert bounce_hard(stack, mailing) == "stale"
    assert bounce_hard(stack, build_mailing(list_id, member.user_id)) == "applied"


def test_bounce_of_a_mailing_to_a_former_address_is_stale(
    stack: Stack, list_id: int, member: Reader
) -> None:
    mailing = build_old_mailing(list_id, member.user_id, days=1)
    stack.query(
        "INSERT INTO former_addresses (user_id, email) VALUES (%s, %s)",
        member.user_id,
        new_address(),
    )
    assert bounce_hard(stack, mailing) == "stale"
    assert member.read_status(list_id) == ("active", True)


def test_only_hard_bounces_of_mailings_older_than_30_days_count(
    stack: Stack, list_id: int, member: Reader
) -> None:
    mailing = build_old_mailing(list_id, member.user_id, days=31)
    assert bounce_softly(stack, mailing) == ["late"]
    assert bounce_hard(stack, mailing) == "applied"


def test_bounce_about_a_person_who_is_not_a_member_is_unmatched(
    stack: Stack, list_id: int, member: Reader
) -> None:
    member.leaves(list_id)
    assert bounce_hard(stack, build_mailing(list_id, member.user_id)) == "unmatched"
    assert bounce_hard(stack, build_mailing(list_id, 1)) == "unmatched"
    assert member.read_status(list_id) == ("unsubscribed", True)


def test_hard_bounce_of_a_mail_to_a_former_member_turns_mail_off_on_other_lists(
    stack: Stack, client: httpx2.Client, list_id: int, member: Reader
) -> None:
    other_list_id = int(new_list(client)["id"])
    member.leaves(list_id).joins(other_list_id)
    backdate_history(stack, member)
    mailing = build_mailing(list_id, member.user_id)
    assert bounce_hard(stack, mailing) == "applied"
    assert member.read_status(other_list_id) == ("active", False)
    assert bounce_hard(stack, mailing) == "duplicate"


def test_hard_bounce_of_a_confirmation_mail_ends_the_sign_up(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    list_id = new_list(client, confirm_required=True)["id"]
    email = new_address()
    subscribe(stranger, list_id, email)
    await_mails(stack, email)
    user_id = require_member(client, list_id, email)["user_id"]
    assert bounce_softly(stack, build_mailing(list_id, user_id)) == ["unmatched"]
    assert bounce_hard(stack, build_mailing(list_id, user_id)) == "applied"
    assert client.get(f"/lists/{list_id}/members/{email}").status_code == 404
    # A hard bounce ends the pending sign-up of a former member. After the bounce, the former member
    # has the status ``removed`` again, and gets no reminder to confirm the sign-up.
    member_list = new_list(client, confirm_required=True)["id"]
    data(add(client, member_list, email))
    client.delete(f"/subscriptions/{member_list}/members/{user_id}")
    subscribe(stranger, member_list, email)
    assert require_member(client, member_list, email)["status"] == "pending"
    user_id = require_member(client, member_list, email)["user_id"]
    bounce_hard(stack, build_mailing(member_list, user_id))
    assert require_member(client, member_list, email)["status"] == "removed"
    query = "SELECT count(*) FROM subscriptions WHERE user_id = %s AND remind_at IS NOT NULL"
    assert stack.query(query, user_id) == [(0,)]


def test_bounce_does_not_end_a_sign_up_that_is_confirmed_at_the_same_time(
    stack: Stack,
    client: httpx2.Client,
    stranger: httpx2.Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    list_id = new_list(client, confirm_required=True)["id"]
    email = new_address()
    subscribe(stranger, list_id, email)
    [mail] = await_mails(stack, email)
    user_id = require_member(client, list_id, email)["user_id"]
    lock_members = locks.lock_members

    def lock_after_confirmation(*arguments: Any) -> set[int]:
        assert confirm(stranger, mail).status_code == 303
        return lock_members(*arguments)

    monkeypatch.setattr(locks, "lock_members", lock_after_confirmation)
    assert bounce_hard(stack, build_mailing(list_id, user_id)) == "stale"
    member_record = require_member(client, list_id, email)
    assert (member_record["status"], member_record["email_enabled"]) == ("active", True)


def test_thousand_bounces_need_few_statements(stack: Stack, owner: Owner, list_id: int) -> None:
    insert_members(stack, list_id, [new_address() for _ in range(1_000)])
    rows = stack.query("SELECT user_id FROM subscriptions WHERE list_id = %s", list_id)
    reports = [
        ReportedBounce(build_mailing(list_id, int(str(user_id))), is_hard=number % 20 == 0)
        for number, (user_id,) in enumerate(rows)
    ]
    statements = []
    engine = stack.resources.database.engine

    def record_statement(*args: Any) -> None:
        statements.append(args[2])

    sqlalchemy.event.listen(engine, "before_cursor_execute", record_statement)
    try:
        assert set(record(stack, reports)) == {"applied"}
    finally:
        sqlalchemy.event.remove(engine, "before_cursor_execute", record_statement)

    assert len(statements) < 25, statements
    query = "SELECT count(*) FROM subscriptions WHERE list_id = %s AND NOT email_enabled"
    assert stack.query(query, list_id) == [(len(range(0, len(rows), 20)),)]


def test_bounced_filter_selects_members_by_the_bounces_that_count(
    stack: Stack, client: httpx2.Client, make_reader: Callable[[], Reader], list_id: int
) -> None:
    readers = [make_reader().joins(list_id) for _ in range(3)]
    for each in readers:
        backdate_history(stack, each)
    unaffected, soft_bounced, hard_bounced = (each.email for each in readers)
    bounce_softly(
        stack, *(build_mailing(list_id, each.user_id, mailing_id=1) for each in readers[1:])
    )
    bounce_hard(stack, build_mailing(list_id, readers[2].user_id, mailing_id=2))

    def find_emails(**condition: object) -> set[str]:
        body = {"filter": {"field": "bounced", **condition}}
        return {each["email"] for each in data(client.post(path, json=body))["items"]} & emails

    path = f"/lists/{list_id}/members/search"
    emails = {unaffected, soft_bounced, hard_bounced}
    assert find_emails(**{"is": "none"}) == {unaffected}
    assert find_emails(**{"is": "soft"}) == find_emails(**{"in": ["soft"]}) == {soft_bounced}
    assert find_emails(**{"is": "hard"}) == {hard_bounced}
    assert (
        find_emails(is_not="none")
        == find_emails(**{"in": ["soft", "hard"]})
        == {soft_bounced, hard_bounced}
    )
    assert find_emails(is_not="hard") == {unaffected, soft_bounced}
    reach(stack, build_mailing(list_id, readers[1].user_id, mailing_id=3))
    readers[2].wants_mail(list_id, True)
    assert find_emails(**{"is": "none"}) == {unaffected, soft_bounced, hard_bounced}


def test_email_off_reason_is_the_person_if_an_opt_out_exists_and_the_owner_otherwise(
    stack: Stack, client: httpx2.Client, list_id: int, member: Reader
) -> None:
    member.wants_mail(list_id, False)
    [(opted_out_at,)] = stack.query(
        'SELECT to_char(created_at, \'YYYY-MM-DD"T"HH24:MI:SS.US"Z"\') FROM opt_outs'
        " WHERE list_id = %s AND user_id = %s",
        list_id,
        member.user_id,
    )
    expected = {"reason": "person", "status": None, "at": opted_out_at}
    assert get_member(client, list_id, member)["email_off"] == expected
    assert member.read_membership(list_id)["email_off"] == expected
    # A member may have neither an opt-out nor a history event if an earlier release of Pressroom
    # turned off the list's mail to the member.
    for table in ("opt_outs", "subscription_events"):
        stack.query(f"DELETE FROM {table} WHERE list_id = %s", list_id)
    expected = {"reason": "owner", "status": None, "at": None}
    assert get_member(client, list_id, member)["email_off"] == expected


def test_email_off_reason_is_kept_after_the_retention_period_of_bounces(
    stack: Stack, client: httpx2.Client, list_id: int, member: Reader
) -> None:
    bounce_hard(stack, build_mailing(list_id, member.user_id))
    stack.query("DELETE FROM bounces WHERE list_id = %s", list_id)
    email_off = get_member(client, list_id, member)["email_off"]
    assert (email_off["reason"], email_off["status"]) == ("bounced", None)
    assert email_off["at"] is not None
