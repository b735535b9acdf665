"""Tests of the effects that reports have on members and mailings.

Each report takes effect only once, and the order of the reports doesn't matter.
"""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import httpx2
import sqlalchemy

from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from services.subscriptions.members.opt_out_checks import compute_address_digest
from tests.support.http.replies import data, problem
from tests.support.imports.bulk import add
from tests.support.lists.subscribers import Reader, new_address, new_list, require_member, trace_for
from tests.support.people.changed_addresses import add_person, change_address
from tests.support.people.erasure import erase
from tests.support.senders.own_senders import new_sender
from tests.support.senders.posting import (
    body_of,
    bounce,
    deliver,
    delivery_for,
    outcomes,
    post,
    report,
    reports_of,
    settle,
)

FIGURE_COLUMNS = "delivered, hard_bounced, soft_bounced, blocked, complained, unsubscribed, opened"


def export_roster(stack: Stack, delivery_client: httpx2.Client, list_id: int) -> int:
    """Export a delivery roster, and return the id of the mailing."""
    job = data(delivery_client.post(f"/lists/{list_id}/exports", json={"kind": "delivery"}))
    return int(job["id"])


def read_figures(stack: Stack, mailing_id: int) -> tuple[object, ...]:
    [row] = stack.query(f"SELECT {FIGURE_COLUMNS} FROM mailings WHERE id = %s", mailing_id)
    return row


def test_reports_about_a_mailing_count_each_member_once(
    stack: Stack,
    client: httpx2.Client,
    delivery_client: httpx2.Client,
    sender: dict[str, Any],
    list_id: int,
) -> None:
    emails = [new_address() for _ in range(4)]
    data(add(client, list_id, *emails))
    user_ids = [require_member(client, list_id, email)["user_id"] for email in emails]
    mailing_id = export_roster(stack, delivery_client, list_id)
    delivery_ids = [delivery_for(stack, list_id, user_id, mailing_id) for user_id in user_ids]
    reports = [
        report("delivered", delivery_id=delivery_ids[0]),
        report("delivered", delivery_id=delivery_ids[0].upper()),
        bounce("soft", "4.2.2", delivery_id=delivery_ids[1]),
        bounce("hard", "5.1.1", delivery_id=delivery_ids[2]),
        bounce("blocked", "5.7.1", delivery_id=delivery_ids[3]),
        bounce("content", "5.6.0", delivery_id=delivery_ids[3]),
        report("opened", delivery_id=delivery_ids[0]),
    ]
    deliver(stack, client, sender, *reports)
    expected_outcomes = [
        "applied",
        "duplicate",
        "applied",
        "applied",
        "applied",
        "duplicate",
        "off",
    ]
    assert outcomes(client, sender) == expected_outcomes
    assert read_figures(stack, mailing_id) == (1, 1, 1, 1, 0, 0, 0)
    other_sender = new_sender(client)
    deliver(stack, client, other_sender, *reports)
    assert outcomes(client, other_sender) == ["duplicate"] * 6 + ["off"]
    assert read_figures(stack, mailing_id) == (1, 1, 1, 1, 0, 0, 0)
    record = data(client.get(f"/senders/{sender['id']}"))
    assert record["state"] == "working"
    assert record["outcomes_24h"] == {"applied": 4, "duplicate": 2, "off": 1}
    member = require_member(client, list_id, emails[2])
    assert (member["email_enabled"], member["email_off"]["reason"]) == (False, "bounced")
    assert require_member(client, list_id, emails[3])["email_enabled"] is True


def test_report_older_than_the_latest_action_of_the_person_is_stale(
    stack: Stack, client: httpx2.Client, sender: dict[str, Any], reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    hour_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    delivery_id = delivery_for(stack, list_id, reader.user_id)
    reports = [
        {"kind": "complained", "occurred_at": hour_ago, "delivery_id": delivery_id},
        {**bounce(delivery_id=delivery_id), "occurred_at": hour_ago},
        {"kind": "delivered", "occurred_at": hour_ago, "delivery_id": delivery_id},
    ]
    deliver(stack, client, sender, *reports)
    assert outcomes(client, sender) == ["stale"] * 3
    assert reader.read_status(list_id) == ("active", True)


def test_only_an_open_by_a_person_ends_soft_bounces(
    stack: Stack, client: httpx2.Client, sender: dict[str, Any], list_id: int
) -> None:
    email = new_address()
    data(add(client, list_id, email))
    user_id = require_member(client, list_id, email)["user_id"]
    first_delivery, second_delivery = (
        delivery_for(stack, list_id, user_id, mailing_id) for mailing_id in (1, 2)
    )
    deliver(
        stack,
        client,
        sender,
        bounce("soft", "4.2.2", delivery_id=first_delivery),
        report("opened", delivery_id=second_delivery, machine=True),
    )
    query = "SELECT ended_at IS NOT NULL FROM bounces WHERE list_id = %s"
    assert stack.query(query, list_id) == [(False,)]
    deliver(stack, client, sender, report("clicked", delivery_id=second_delivery))
    assert stack.query(query, list_id) == [(True,)]


def test_report_on_a_former_address_concerns_the_person_who_had_the_address(
    stack: Stack, client: httpx2.Client, sender: dict[str, Any], list_id: int
) -> None:
    former_email = new_address()
    current_email = new_address()
    user_id = add_person(client, list_id, former_email)
    change_address(stack.resources, former_email, current_email)
    deliver(stack, client, sender, report("delivered", email=former_email))
    assert [each["user_id"] for each in reports_of(client, sender)] == [user_id]


def test_bounce_concerns_only_members_whose_list_still_has_the_address(
    stack: Stack, client: httpx2.Client, sender: dict[str, Any], list_id: int
) -> None:
    other_list_id = int(new_list(client)["id"])
    former_email, current_email = new_address(), new_address()
    user_id = add_person(client, list_id, former_email)
    add_person(client, other_list_id, former_email)
    change_address(stack.resources, former_email, current_email)
    stack.query(
        "UPDATE former_addresses SET left_at = left_at - interval '5 days' WHERE user_id = %s",
        user_id,
    )
    set_address = "UPDATE subscriptions SET email = %s WHERE list_id = %s"
    stack.query(set_address, current_email, list_id)
    query = "SELECT list_id, email_enabled FROM subscriptions WHERE user_id = %s"
    for kind, status in (("hard", "5.1.1"), ("soft", "4.2.2"), ("blocked", "5.7.1")):
        body = body_of(bounce(kind, status, email=former_email)).decode()
        [effect] = data(client.post(f"/senders/{sender['id']}/try", json={"body": body}))
        assert (effect["outcome"], effect["list_id"]) == ("applied", other_list_id)
    deliver(stack, client, sender, bounce(email=former_email))
    assert set(stack.query(query, user_id)) == {(list_id, True), (other_list_id, False)}
    # The bounce is stored under the reported address.
    compute_digest = partial(compute_address_digest, stack.resources.keyring)
    digests = stack.query("SELECT list_id, address_hmac FROM bounces WHERE user_id = %s", user_id)
    stored = [(each_id, bytes(digest)) for each_id, digest in digests]  # type: ignore[call-overload]
    assert stored == [(other_list_id, compute_digest(former_email))]
    # No list has the former address any longer.
    stack.query(set_address, current_email, other_list_id)
    deliver(stack, client, sender, bounce(email=former_email, message_id="2"))
    assert outcomes(client, sender) == ["applied", "unmatched"]
    deliver(stack, client, sender, bounce(email=current_email, message_id="3"))
    assert set(stack.query(query, user_id)) == {(list_id, False), (other_list_id, False)}


# Each case contains reports about one mail, in the order in which they arrive, and whether the mail
# counts as softly bounced afterwards. A report consists of its kind and the minute of the event.
TAKEN_BACK_CASES = [
    ([("soft", 1)], True),
    ([("soft", 1), ("delivered", 2)], False),
    ([("delivered", 2), ("soft", 1)], False),
    ([("delivered", 1), ("soft", 2)], True),
    ([("soft", 2), ("delivered", 1)], True),
    ([("soft", 1), ("delivered", 2), ("soft", 1), ("delivered", 2)], False),
    ([("soft", 1), ("delivered", 2), ("soft", 3)], True),
    ([("soft", 3), ("delivered", 2), ("soft", 1)], True),
    ([("soft", 1), ("soft", 3), ("delivered", 2)], True),
    ([("soft", 1), ("delivered", 2), ("soft", 3), ("delivered", 4)], False),
    ([("delivered", 4), ("soft", 3), ("delivered", 2), ("soft", 1)], False),
]


def test_soft_bounce_that_a_delivery_takes_back_does_not_count(
    stack: Stack,
    client: httpx2.Client,
    delivery_client: httpx2.Client,
    sender: dict[str, Any],
    list_id: int,
) -> None:
    began_at = datetime.now(UTC) - timedelta(hours=1)
    emails = [new_address() for _ in TAKEN_BACK_CASES]
    data(add(client, list_id, *emails))
    user_ids = [require_member(client, list_id, email)["user_id"] for email in emails]

    def build(user_id: int, mailing_id: int, kind: str, minute: int) -> dict[str, Any]:
        occurred_at = (began_at + timedelta(minutes=minute)).isoformat()
        delivery_id = delivery_for(stack, list_id, user_id, mailing_id)
        if kind == "soft":
            return bounce("soft", "4.2.2", delivery_id=delivery_id) | {"occurred_at": occurred_at}
        return report(kind, delivery_id=delivery_id) | {"occurred_at": occurred_at}

    figures = "SELECT soft_bounced, delivered FROM mailings WHERE id = %s"
    expected = (
        sum(is_bounced for _, is_bounced in TAKEN_BACK_CASES),
        sum(("delivered" in dict(events)) for events, _ in TAKEN_BACK_CASES),
    )
    # In the first mailing, each report arrives in a request of its own. In the second mailing, all
    # reports arrive in the same request.
    mailing_ids = [export_roster(stack, delivery_client, list_id) for _ in range(2)]
    for place in range(max(len(events) for events, _ in TAKEN_BACK_CASES)):
        reports = [
            build(user_id, mailing_ids[0], *events[place])
            for user_id, (events, _) in zip(user_ids, TAKEN_BACK_CASES, strict=True)
            if place < len(events)
        ]
        deliver(stack, client, sender, *reports)
    assert stack.query(figures, mailing_ids[0]) == [expected]
    reports = [
        build(user_id, mailing_ids[1], *event)
        for user_id, (events, _) in zip(user_ids, TAKEN_BACK_CASES, strict=True)
        for event in events
    ]
    deliver(stack, client, sender, *reports)
    assert stack.query(figures, mailing_ids[1]) == [expected]
    deliver(stack, client, new_sender(client), *reports)
    assert stack.query(figures, mailing_ids[1]) == [expected]


def test_delivery_ends_an_earlier_soft_bounce_that_is_reported_later(
    stack: Stack, client: httpx2.Client, sender: dict[str, Any], list_id: int
) -> None:
    email = new_address()
    data(add(client, list_id, email))
    delivery_id = delivery_for(stack, list_id, require_member(client, list_id, email)["user_id"])
    soft_bounce = bounce("soft", "4.2.2", delivery_id=delivery_id)
    deliver(stack, client, sender, report("delivered", delivery_id=delivery_id))
    deliver(stack, client, sender, soft_bounce)
    query = "SELECT ended_at IS NOT NULL FROM bounces WHERE list_id = %s"
    assert stack.query(query, list_id) == [(True,)]


def test_late_reports_change_no_figures_but_still_opt_out(
    stack: Stack, client: httpx2.Client, sender: dict[str, Any], reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    export_time = datetime.now(UTC) - timedelta(days=40)
    delivery_id = delivery_for(stack, list_id, reader.user_id, 7, export_time)
    late_reports = [
        report("delivered", delivery_id=delivery_id),
        bounce("soft", "4.2.2", delivery_id=delivery_id),
    ]
    deliver(stack, client, sender, *late_reports)
    deliver(stack, client, sender, report("complained", delivery_id=delivery_id))
    assert outcomes(client, sender) == ["late", "late", "applied"]
    assert not stack.query("SELECT 1 FROM mailing_marks WHERE user_id = %s", reader.user_id)
    eventually(lambda: reader.read_status(list_id)[0] == "unsubscribed", what="the opt-out")


def test_report_about_a_list_that_the_sender_does_not_cover_is_unmatched(
    stack: Stack, client: httpx2.Client, other_owner: httpx2.Client, list_id: int
) -> None:
    foreign_list_id = new_list(other_owner)["id"]
    email = new_address()
    data(add(other_owner, foreign_list_id, email))
    user_id = require_member(other_owner, foreign_list_id, email)["user_id"]
    own_sender = new_sender(client)
    limited_sender = new_sender(client, list_ids=[list_id])
    second_list_id = new_list(client)["id"]
    data(add(client, second_list_id, email))
    foreign_delivery = delivery_for(stack, foreign_list_id, user_id)
    uncovered_delivery = delivery_for(stack, second_list_id, user_id)
    deliver(stack, client, own_sender, report("complained", delivery_id=foreign_delivery))
    deliver(
        stack,
        client,
        limited_sender,
        report("complained", delivery_id=uncovered_delivery),
        report("delivered", email=email),
    )
    assert outcomes(client, own_sender) == ["unmatched"]
    assert outcomes(client, limited_sender) == ["unmatched", "unmatched"]
    assert reports_of(client, limited_sender)[1]["recipient"] == "r…@e….com"
    assert not stack.query(
        "SELECT 1 FROM opt_outs WHERE list_id IN (%s, %s)", foreign_list_id, second_list_id
    )


def test_malformed_address_is_unmatched_and_not_shown(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    sender = new_sender(client, list_ids=[list_id])
    emails = (
        "\u0000a@b.\u0000c",
        "alice smith",
        "a@localhost",
        "@b.example",
        "Ada@News.Example.org",
    )
    deliver(stack, client, sender, *(report("complained", email=each) for each in emails))
    outcomes_and_recipients = [
        (each["outcome"], each["recipient"]) for each in reports_of(client, sender)
    ]
    assert outcomes_and_recipients == [("unmatched", None)] * 4 + [("applied", "a…@n….org")]


def test_sender_for_any_list_matches_only_by_delivery_id(
    stack: Stack, owner: Owner, other_owner: httpx2.Client, client: httpx2.Client
) -> None:
    foreign_list_id = new_list(other_owner)["id"]
    email = new_address()
    data(add(other_owner, foreign_list_id, email))
    user_id = require_member(other_owner, foreign_list_id, email)["user_id"]
    with stack.client(stack.create_key(owner.user_id, "sender", "delivery")) as key_client:  # type: ignore[arg-type]
        sender = new_sender(key_client, any_list=True)
    deliver(
        stack,
        client,
        sender,
        report("unsubscribed", email=email),
        report("unsubscribed", delivery_id=delivery_for(stack, foreign_list_id, user_id)),
    )
    assert outcomes(client, sender) == ["unmatched", "applied"]


def test_message_id_makes_a_report_without_a_delivery_id_count_once(
    stack: Stack, client: httpx2.Client, sender: dict[str, Any], list_id: int
) -> None:
    email = new_address()
    data(add(client, list_id, email))
    deliver(
        stack,
        client,
        sender,
        *(report("delivered", email=email, message_id=each) for each in ("a", "a", "b")),
        report("delivered", email=email),
        report("delivered", email=email),
    )
    assert outcomes(client, sender) == ["applied", "duplicate", "applied", "applied", "duplicate"]


def test_report_about_an_erased_person_is_unmatched(
    stack: Stack, client: httpx2.Client, sender: dict[str, Any], list_id: int
) -> None:
    email = new_address()
    data(add(client, list_id, email))
    user_id = require_member(client, list_id, email)["user_id"]
    delivery_id = delivery_for(stack, list_id, user_id)
    erase(stack.resources, email)
    deliver(stack, client, sender, report("complained", delivery_id=delivery_id))
    [shown_report] = reports_of(client, sender)
    assert (shown_report["outcome"], shown_report["user_id"], shown_report["recipient"]) == (
        "unmatched",
        None,
        None,
    )
    # A complaint from an unknown address becomes an opt-out from the lists that the sender covers.
    other_sender = new_sender(client)
    deliver(stack, client, other_sender, report("complained", email=email))
    assert outcomes(client, other_sender) == ["applied"]
    query = "SELECT source FROM address_opt_outs WHERE list_ids = ARRAY[%s::bigint]"
    assert stack.query(query, list_id) == [("sender-complaint",)]
    data(add(client, list_id, email))
    assert data(client.get(f"/lists/{list_id}"))["subscriber_count"] == 0


def test_time_in_the_future_becomes_the_time_of_arrival(
    stack: Stack, client: httpx2.Client, sender: dict[str, Any]
) -> None:
    now = datetime.now(UTC)
    times = [(now + timedelta(minutes=minutes)).isoformat() for minutes in (4, 6, 24 * 60)]
    deliver(
        stack,
        client,
        sender,
        *({"kind": "delivered", "email": new_address(), "occurred_at": each} for each in times),
        {"kind": "delivered", "email": new_address()},
    )
    # The time in a report may be up to five minutes in the future, because the clocks of servers
    # differ. Pressroom replaces a time that is more than five minutes in the future by the time at
    # which the report was received.
    kept_report, *corrected_reports = reports_of(client, sender)
    assert datetime.fromisoformat(kept_report["occurred_at"]) == now + timedelta(minutes=4)
    for corrected_report in corrected_reports:
        assert corrected_report["occurred_at"] == corrected_report["received_at"]


def test_locked_person_delays_no_reports_of_another_sender(
    stack: Stack, client: httpx2.Client, sender: dict[str, Any], reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    complaint = report("complained", delivery_id=delivery_for(stack, list_id, reader.user_id))
    other_sender = new_sender(client)
    with stack.resources.unit_of_work() as uow:
        lock = sqlalchemy.text("SELECT FROM users WHERE id = :id FOR UPDATE")
        uow.session.execute(lock, {"id": reader.user_id})
        assert data(post(client, sender, complaint)) == 1
        deliver(stack, client, other_sender, report("delivered", email=new_address()))
        assert outcomes(client, other_sender) == ["unmatched"]
        assert outcomes(client, sender) == []
    eventually(
        lambda: reader.read_status(list_id)[0] == "unsubscribed", what="the opt-out", within=30
    )
    settle(stack, sender)
    assert outcomes(client, sender) == ["applied"]


def test_trial_shows_the_effects_and_changes_nothing(
    stack: Stack,
    client: httpx2.Client,
    other_owner: httpx2.Client,
    reader: Reader,
    list_id: int,
) -> None:
    sender = new_sender(client)
    reader.joins(list_id)
    delivery_id = delivery_for(stack, list_id, reader.user_id)
    body = {
        "body": body_of(
            report("complained", delivery_id=delivery_id),
            bounce(delivery_id=delivery_id),
            report("complained", email="a@b.example"),
        ).decode()
    }
    path = f"/senders/{sender['id']}/try"
    effects = data(client.post(path, json=body))
    assert [(each["outcome"], each["user_id"], each["code"]) for each in effects] == [
        ("applied", reader.user_id, None),
        ("applied", reader.user_id, "hard"),
        ("applied", None, None),
    ]
    assert reader.read_status(list_id) == ("active", True)
    assert reports_of(client, sender) == []
    for table in ("opt_outs", "bounces"):
        assert not stack.query(f"SELECT 1 FROM {table} WHERE list_id = %s", list_id)
    assert not stack.query("SELECT 1 FROM address_opt_outs WHERE %s = ANY (list_ids)", list_id)
    problem(client.post(path, json={"body": "{"}), 422, "report.invalid")
    problem(other_owner.post(path, json=body), 404, "sender.not_found")


def test_no_report_resubscribes_a_person(
    stack: Stack, client: httpx2.Client, sender: dict[str, Any], reader: Reader, list_id: int
) -> None:
    reader.joins(list_id).leaves(list_id)
    delivery_id = delivery_for(stack, list_id, reader.user_id)
    kinds = ("delivered", "opened", "clicked", "complained", "unsubscribed")
    deliver(stack, client, sender, *(report(kind, delivery_id=delivery_id) for kind in kinds))
    assert reader.read_status(list_id)[0] == "unsubscribed"


def test_invalid_reports_store_nothing(
    stack: Stack, client: httpx2.Client, sender: dict[str, Any]
) -> None:
    valid_report = report("delivered", email=new_address())
    for invalid_fields, place in (
        ({"kind": "sent"}, "data.reports[1].kind"),
        ({"email": None}, "data.reports[1].delivery_id"),
        ({"occurred_at": "yesterday"}, "data.reports[1].occurred_at"),
        ({"kind": "bounced"}, "data.reports[1].bounce"),
        ({"machine": 1}, "data.reports[1].machine"),
    ):
        error = problem(
            post(client, sender, valid_report, {**valid_report, **invalid_fields}),
            422,
            "report.invalid",
        )
        assert error["errors"][0]["field"] == place
    error = problem(post(client, sender, *[{"kind": "sent"}] * 200), 422, "report.invalid")
    assert len(error["errors"]) == 100
    problem(post(client, sender, *[valid_report] * 1001), 422, "report.too_many")
    assert not stack.query("SELECT 1 FROM sender_bodies WHERE sender_id = %s", sender["id"])


def test_trace_id_in_a_report_is_rejected(
    stack: Stack, client: httpx2.Client, sender: dict[str, Any], reader: Reader, list_id: int
) -> None:
    trace_id = trace_for(stack, list_id, reader.user_id)
    for fields in ({"trace_id": trace_id}, {"delivery_id": trace_id}):
        reply = post(client, sender, report("delivered", email="a@example.com", **fields))
        error = problem(reply, 422, "report.trace_id_refused")
        assert trace_id not in str(error)
