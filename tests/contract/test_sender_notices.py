"""Tests of the notices about failing senders, and about mailings with bounces or complaints."""

from datetime import timedelta
from typing import Any

import httpx2
import pytest

from core.scopes import Scope
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from services.senders.intake import MAX_REFUSED_CALLS_PER_HOUR
from services.senders.silence import CHECK_SILENCE
from tests.support.http.replies import data, problem
from tests.support.imports.bulk import add
from tests.support.lists.subscribers import new_address, new_list, require_member
from tests.support.people.consoles import OwnerAtConsole, read_page, rows_of
from tests.support.senders.mailings import new_mailing
from tests.support.senders.own_senders import new_sender
from tests.support.senders.posting import (
    body_of,
    bounce,
    deliver,
    delivery_for,
    outcomes,
    reject_calls,
    report,
)
from tests.support.stack.maintenance import run_maintenance

FAILING_EVENT = "sender.failing"
RECOVERED_EVENT = "sender.recovered"
ALARM_EVENT = "mailing.alarm"
FAILING_SUBJECT = "A sender needs your attention"
RECOVERED_SUBJECT = "A sender works again"
ALARM_SUBJECT = "A mailing had many bounces or complaints"
OVERDUE_AGE = timedelta(hours=49)


def join_wrapped_address(address: str) -> str:
    """Remove the space that a table row may contain before the @ of an e-mail address."""
    return address.replace(" @", "@")


def list_events(client: httpx2.Client, *types: str) -> list[dict[str, Any]]:
    """Return the events of the given types, oldest first."""
    return list(data(client.get("/events", params={"type": list(types)}))["items"])


def mails_about(stack: Stack, owner: Owner, subject: str) -> list[str]:
    return [mail["text"] for mail in stack.mails(owner.email) if mail["subject"] == subject]


def read_state(client: httpx2.Client, sender: dict[str, Any]) -> tuple[str, list[str]]:
    record = data(client.get(f"/senders/{sender['id']}"))
    return record["state"], record["warnings"]


def test_owner_is_notified_when_a_sender_fails_and_when_it_recovers(
    stack: Stack, owner: Owner, client: httpx2.Client
) -> None:
    sender = new_sender(client)
    reject_calls(client, sender, count=MAX_REFUSED_CALLS_PER_HOUR - 1)
    assert read_state(client, sender) == ("waiting", [])
    reject_calls(client, sender, count=1)
    assert read_state(client, sender) == ("failing", ["calls_rejected"])
    [failing_event] = eventually(lambda: list_events(client, FAILING_EVENT), what="the event")
    assert failing_event["subject"] == {"kind": "sender", "id": sender["id"]}
    assert failing_event["data"] == {"state": "failing", "reason": "calls_rejected"}
    [text] = eventually(lambda: mails_about(stack, owner, FAILING_SUBJECT), what="the mail")
    assert f"sender {sender['id']} is failing" in text
    assert "rejected at least 20 calls" in text
    deliver(stack, client, sender, report("delivered", email=new_address()))
    assert read_state(client, sender) == ("working", [])
    [recovered_event] = eventually(lambda: list_events(client, RECOVERED_EVENT), what="the event")
    assert recovered_event["data"] == {"state": "working", "reason": None}
    eventually(lambda: mails_about(stack, owner, RECOVERED_SUBJECT), what="the mail")
    # The sender remains in the state ``working`` although more calls are rejected in the same hour.
    reject_calls(client, sender, count=5)
    assert read_state(client, sender) == ("working", [])


def test_rejected_calls_of_strangers_make_no_working_sender_fail(
    stack: Stack, owner: Owner, client: httpx2.Client
) -> None:
    sender = new_sender(client)
    accepted = MAX_REFUSED_CALLS_PER_HOUR + 3
    deliver(
        *(stack, client, sender),
        *(report("delivered", email=new_address()) for _ in range(accepted)),
    )
    reject_calls(client, sender, count=MAX_REFUSED_CALLS_PER_HOUR)
    reject_calls(client, sender, count=3)
    assert read_state(client, sender) == ("working", [])
    assert list_events(client, FAILING_EVENT) == []
    assert mails_about(stack, owner, FAILING_SUBJECT) == []
    # The sender fails as soon as more calls were rejected in this hour than reports accepted.
    reject_calls(client, sender, count=1)
    assert read_state(client, sender) == ("failing", ["calls_rejected"])
    assert len(eventually(lambda: list_events(client, FAILING_EVENT), what="the event")) == 1


def test_same_mail_about_a_sender_is_sent_once_a_day(
    stack: Stack, owner: Owner, client: httpx2.Client
) -> None:
    sender = new_sender(client)
    for hours in range(1, 4):
        reject_calls(client, sender, count=MAX_REFUSED_CALLS_PER_HOUR)
        deliver(stack, client, sender, report("delivered", email=new_address()))
        assert read_state(client, sender) == ("working", [])
        stack.query(
            "UPDATE sender_counts SET hour = hour - %s * interval '1 hour' WHERE sender_id = %s"
            " AND hour = date_trunc('hour', now())",
            hours,
            sender["id"],
        )
    eventually(
        lambda: len(list_events(client, FAILING_EVENT, RECOVERED_EVENT)) == 6, what="the events"
    )
    query = "SELECT kind, count(*) FROM account_mails WHERE email = %s GROUP BY kind ORDER BY kind"
    assert stack.query(query, owner.email) == [
        ("new_sender", 1),
        ("sender_failing", 1),
        ("sender_recovered", 1),
    ]


def test_paused_sender_does_not_fail(client: httpx2.Client) -> None:
    sender = new_sender(client)
    data(client.patch(f"/senders/{sender['id']}", json={"state": "paused"}))
    reject_calls(client, sender, count=MAX_REFUSED_CALLS_PER_HOUR)
    assert read_state(client, sender) == ("paused", [])
    assert list_events(client, FAILING_EVENT) == []


def test_sender_that_failed_before_a_pause_can_fail_again(client: httpx2.Client) -> None:
    sender = new_sender(client)
    reject_calls(client, sender, count=MAX_REFUSED_CALLS_PER_HOUR)
    for state in ("paused", "working"):
        data(client.patch(f"/senders/{sender['id']}", json={"state": state}))
    assert read_state(client, sender) == ("waiting", [])


@pytest.mark.parametrize(
    ("rows", "age", "fails"),
    [
        (1000, OVERDUE_AGE, True),
        (999, OVERDUE_AGE, False),
        (1000, timedelta(hours=47), False),
    ],
)
def test_sender_without_a_report_for_48_hours_after_a_large_mailing_fails(
    stack: Stack, client: httpx2.Client, list_id: int, *, rows: int, age: timedelta, fails: bool
) -> None:
    sender = new_sender(client)
    make_sender_old(stack, sender)
    new_mailing(stack, list_id, rows=rows, age=age)
    for _ in range(2):
        run_maintenance(stack, CHECK_SILENCE.name)
        expected = ("failing", ["no_reports"]) if fails else ("waiting", [])
        assert read_state(client, sender) == expected
    assert [each["data"]["reason"] for each in list_events(client, FAILING_EVENT)] == [
        "no_reports"
    ] * fails


def test_only_senders_that_should_have_reported_about_a_mailing_fail(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    other_list_id = int(new_list(client)["id"])
    silent_sender = new_sender(client, list_ids=[list_id])
    sender_of_other_list = new_sender(client, list_ids=[other_list_id])
    paused_sender = new_sender(client)
    data(client.patch(f"/senders/{paused_sender['id']}", json={"state": "paused"}))
    for sender in (silent_sender, sender_of_other_list, paused_sender):
        make_sender_old(stack, sender)
    new_sender_without_reports = new_sender(client)
    new_mailing(stack, list_id, rows=1000, age=OVERDUE_AGE)
    run_maintenance(stack, CHECK_SILENCE.name)
    senders = (silent_sender, sender_of_other_list, paused_sender, new_sender_without_reports)
    assert [read_state(client, sender)[0] for sender in senders] == [
        *("failing", "waiting", "paused", "waiting")
    ]


def test_sender_does_not_fail_while_another_sender_reports_about_the_list(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    silent_sender = new_sender(client)
    working_sender = new_sender(client, list_ids=[list_id])
    make_sender_old(stack, silent_sender)
    new_mailing(stack, list_id, rows=1000, age=OVERDUE_AGE)
    deliver(stack, client, working_sender, report("delivered", email=new_address()))
    run_maintenance(stack, CHECK_SILENCE.name)
    assert read_state(client, silent_sender) == ("waiting", [])


def test_sender_for_any_list_fails_only_if_it_reported_about_no_list_since_the_mailing(
    stack: Stack, owner: Owner, client: httpx2.Client, list_id: int
) -> None:
    key = stack.create_key(owner.user_id, Scope.SENDER, Scope.DELIVERY)
    with stack.client(key) as delivery_client:
        silent_sender, working_sender = (
            new_sender(delivery_client, any_list=True) for _ in range(2)
        )
    own_sender = new_sender(client)
    for sender in (silent_sender, working_sender, own_sender):
        make_sender_old(stack, sender)
    new_mailing(stack, list_id, rows=1000, age=OVERDUE_AGE)
    deliver(stack, client, working_sender, report("delivered", email=new_address()))
    run_maintenance(stack, CHECK_SILENCE.name)
    # ``working_sender`` may report about the lists of all owners. The report of ``working_sender``
    # may be about another owner's list, so this report doesn't keep ``own_sender`` from failing.
    states = [
        read_state(client, sender)[0] for sender in (silent_sender, working_sender, own_sender)
    ]
    assert states == ["failing", "working", "failing"]


def test_sender_does_not_fail_if_the_mailing_has_figures(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    sender = new_sender(client)
    make_sender_old(stack, sender)
    new_mailing(stack, list_id, rows=1000, age=OVERDUE_AGE, figures={"delivered": 1})
    run_maintenance(stack, CHECK_SILENCE.name)
    assert read_state(client, sender) == ("waiting", [])


def make_sender_old(stack: Stack, sender: dict[str, Any]) -> None:
    stack.query(
        "UPDATE senders SET created_at = now() - interval '10 days' WHERE id = %s", sender["id"]
    )


@pytest.mark.parametrize(
    ("kind", "rows", "figures", "alarms"),
    [
        ("bounced", 500, {"hard_bounced": 24}, True),
        ("bounced", 500, {"hard_bounced": 23}, False),
        ("bounced", 499, {"hard_bounced": 24}, False),
        # The mailing has already reached the bounce limit, so another bounce doesn't notify the
        # owner again.
        ("bounced", 500, {"hard_bounced": 25}, False),
        ("complained", 1000, {"complained": 2}, True),
        ("complained", 1001, {"complained": 2}, False),
        ("complained", 500, {"hard_bounced": 25, "complained": 1}, False),
    ],
)
def test_owner_is_notified_when_a_mailing_reaches_the_limits(
    stack: Stack,
    owner: Owner,
    client: httpx2.Client,
    list_id: int,
    *,
    kind: str,
    rows: int,
    figures: dict[str, int],
    alarms: bool,
) -> None:
    emails = [new_address() for _ in range(2)]
    data(add(client, list_id, *emails))
    sender = new_sender(client)
    mailing_id = new_mailing(stack, list_id, rows=rows, figures=figures)
    for email in emails[: 1 + alarms]:
        user_id = require_member(client, list_id, email)["user_id"]
        delivery_id = delivery_for(stack, list_id, user_id, mailing_id)
        bounce_report = bounce(delivery_id=delivery_id)
        deliver(
            stack,
            client,
            sender,
            bounce_report if kind == "bounced" else report(kind, delivery_id=delivery_id),
        )
    assert set(outcomes(client, sender)) == {"applied"}
    if not alarms:
        assert list_events(client, ALARM_EVENT) == []
        return
    # The first report already notified the owner, so the second report causes no further notice.
    [alarm] = eventually(lambda: list_events(client, ALARM_EVENT), what="the event")
    assert alarm["subject"] == {"kind": "sender", "id": sender["id"]}
    assert alarm["list_id"] == list_id
    facts = {"rows": rows, "hard_bounced": 0, "complained": 0, **figures}
    facts["hard_bounced" if kind == "bounced" else "complained"] += 1
    assert alarm["data"] == {"mailing_id": mailing_id, **facts}
    [text] = eventually(lambda: mails_about(stack, owner, ALARM_SUBJECT), what="the mail")
    assert f"mailing {mailing_id}" in text


def test_trial_of_a_body_notifies_nobody(
    stack: Stack, owner: Owner, client: httpx2.Client, list_id: int
) -> None:
    email = new_address()
    data(add(client, list_id, email))
    sender = new_sender(client)
    mailing_id = new_mailing(stack, list_id, rows=500, figures={"hard_bounced": 24})
    user_id = require_member(client, list_id, email)["user_id"]
    bounce_report = bounce(delivery_id=delivery_for(stack, list_id, user_id, mailing_id))
    body = body_of(bounce_report).decode()
    [effect] = data(client.post(f"/senders/{sender['id']}/try", json={"body": body}))
    assert effect["outcome"] == "applied"
    assert list_events(client, ALARM_EVENT) == []
    query = "SELECT 1 FROM account_mails WHERE email = %s AND kind = 'mailing_alarm'"
    assert stack.query(query, owner.email) == []


def test_events_about_senders_require_the_scope_subscription_read(
    stack: Stack, owner: Owner
) -> None:
    with stack.client(stack.create_key(owner.user_id, Scope.SENDER)) as sender_client:
        for kind in (FAILING_EVENT, RECOVERED_EVENT, ALARM_EVENT):
            reply = sender_client.get("/events", params={"type": kind})
            problem(reply, 403, "auth.insufficient_scope")
    with stack.client(stack.create_key(owner.user_id, Scope.SUBSCRIPTION_READ)) as reading_client:
        assert list_events(reading_client, FAILING_EVENT, RECOVERED_EVENT, ALARM_EVENT) == []


def test_console_shows_why_a_sender_is_failing(stack: Stack, console: OwnerAtConsole) -> None:
    sender = new_sender(console.api)
    reject_calls(console.api, sender, count=MAX_REFUSED_CALLS_PER_HOUR)
    stack.query(
        "UPDATE senders SET warnings = array_append(warnings, 'sns_signature_v1') WHERE id = %s",
        sender["id"],
    )
    [row] = rows_of(console.see("/console/developers/senders"))[1:]
    assert row[2] == "Failing See what failed"
    page = console.see(f"/console/developers/senders/{sender['id']}")
    assert "Failing" in page
    assert "rejected at least 20 calls" in page
    assert "signature version" in page


_INSERT_REPORT = """
INSERT INTO sender_reports (sender_id, received_at, occurred_at, kind, outcome, list_id, user_id)
VALUES (%s, now(), now(), 'bounced', 'applied', %s, %s)
"""


def test_console_shows_addresses_only_of_members_of_the_owner(
    stack: Stack, console: OwnerAtConsole, client: httpx2.Client
) -> None:
    sender_id = new_sender(console.api)["id"]
    path = f"/console/developers/senders/{sender_id}"
    emails = {}
    for api in (console.api, client):
        list_id = int(new_list(api)["id"])
        email = new_address()
        data(add(api, list_id, email))
        user_id = require_member(api, list_id, email)["user_id"]
        stack.query(_INSERT_REPORT, sender_id, list_id, user_id)
        emails[email] = f"/console/lists/{list_id}/members/{user_id}"
    (own_email, own_page), (other_email, other_page) = emails.items()
    text = console.see(path)
    assert [join_wrapped_address(row[1]) == own_email for row in rows_of(text)[1:]] == [False, True]
    assert own_page in text
    assert other_email not in text
    assert other_page not in text

    trial = body_of(bounce(email=own_email), bounce(email=other_email)).decode()
    text = read_page(console.send(f"{path}/try", body=trial))
    assert [join_wrapped_address(row[1]) == own_email for row in rows_of(text)[1:]] == [True, False]


def test_console_offers_an_example_of_a_body(console: OwnerAtConsole) -> None:
    path = f"/console/developers/senders/{new_sender(console.api)['id']}/try"
    outcome = rows_of(read_page(console.send(path)))[1][2]
    assert outcome == "No member found The report fits no member of your lists."
