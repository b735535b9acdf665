"""Tests of the confirmation mail, the welcome mail and the reminder of an unconfirmed sign-up."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import httpx2
import pytest

from core.ids import AccountId
from devstack.harness.stack import Owner, Stack
from services.subscriptions import deny_lists
from services.subscriptions.members import mails
from tests.support.http.replies import data
from tests.support.lists.people_on_lists import Subscriber, subscribe_pending
from tests.support.lists.subscribers import (
    await_mails,
    confirm,
    new_address,
    new_list,
    read_confirmation_token,
    require_member,
)
from tests.support.mail.forbidden import ForbiddenMailer
from tests.support.people.erasure import erase
from tests.support.probe.job_states import claim_lease
from tests.support.stack.maintenance import run_maintenance

TITLE = "Tea & <Toast>"


@pytest.fixture
def confirming_list_id(client: httpx2.Client) -> int:
    """The id of a mailing list on which people must confirm their subscriptions."""
    return int(new_list(client, title=TITLE, confirm_required=True)["id"])


def read_status(client: httpx2.Client, confirming_list_id: int, email: str) -> str:
    return str(require_member(client, confirming_list_id, email)["status"])


def test_confirmation_mail_has_text_and_html_and_activates_the_subscription(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, confirming_list_id: int
) -> None:
    email = new_address()
    sign_up(stranger, confirming_list_id, email)
    assert read_status(client, confirming_list_id, email) == "pending"
    [mail] = await_mails(stack, email)
    assert mail["subject"] == f"Confirm your subscription to “{TITLE}”"
    assert f"“{TITLE}”" in mail["text"]
    # In the mail, the confirmation link comes before the explanation why the person got this mail.
    for body in (mail["html"], mail["text"]):
        assert body.index(f"token={read_confirmation_token(mail)}") < body.index(
            "Someone signed up"
        )
    assert "Tea &amp; &lt;Toast&gt;" in mail["html"]
    assert "<Toast>" not in mail["html"]
    assert not [name for name in mail["headers"] if name.lower().startswith("list-")]
    assert confirm(stranger, mail).status_code == 303
    assert read_status(client, confirming_list_id, email) == "active"


def test_welcome_mail_contains_one_click_unsubscribe(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, confirming_list_id: int
) -> None:
    email = new_address()
    sign_up(stranger, confirming_list_id, email)
    confirm(stranger, *await_mails(stack, email))
    welcome_mail = next(
        mail for mail in await_mails(stack, email, 2) if "You are" in mail["subject"]
    )
    assert welcome_mail["subject"] == f"You are subscribed to “{TITLE}”"
    headers = {name.lower(): value for name, value in dict(welcome_mail["headers"]).items()}
    assert headers["list-unsubscribe-post"] == "List-Unsubscribe=One-Click"
    [url] = re.findall(r"^<(\S+)>$", headers["list-unsubscribe"])
    assert url in welcome_mail["text"].split()
    trace_id = httpx2.URL(url).params["trace_id"]
    path = f"/subscriptions/{confirming_list_id}/delete"
    form = {"List-Unsubscribe": "One-Click"}
    assert data(stranger.post(path, params={"trace_id": trace_id}, data=form)) == 1
    assert require_member(client, confirming_list_id, email)["email_enabled"] is False


def test_repeated_sign_ups_send_at_most_one_confirmation_mail_per_ten_minutes(
    stack: Stack, stranger: httpx2.Client, confirming_list_id: int
) -> None:
    email = new_address()
    for _ in range(5):
        sign_up(stranger, confirming_list_id, email)
    await_mails(stack, email)
    stack.query(
        "UPDATE subscriptions SET confirmation_asked_at = now() - interval '11 minutes' "
        "WHERE list_id = %s",
        confirming_list_id,
    )
    sign_up(stranger, confirming_list_id, email)
    await_mails(stack, email, 2)


def test_confirmation_mail_job_belongs_to_the_list_owner(
    stack: Stack, owner: Owner, stranger: httpx2.Client, confirming_list_id: int
) -> None:
    sign_up(stranger, confirming_list_id, new_address())
    select_owners = (
        "SELECT on_behalf_of FROM jobs JOIN subscriptions s ON s.id = subject_id"
        " WHERE list_id = %s AND kind = 'subscription.mail_confirmation'"
    )
    assert stack.query(select_owners, confirming_list_id) == [(owner.user_id,)]


def test_confirmation_link_of_a_removed_person_does_not_work(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, confirming_list_id: int
) -> None:
    email = new_address()
    sign_up(stranger, confirming_list_id, email)
    [mail] = await_mails(stack, email)
    user_id = require_member(client, confirming_list_id, email)["user_id"]
    assert data(client.delete(f"/subscriptions/{confirming_list_id}/members/{user_id}")) == 1
    assert confirm(stranger, mail).status_code == 409
    assert read_status(client, confirming_list_id, email) == "removed"


_MAKE_REMINDERS_DUE = """
    UPDATE subscriptions SET remind_at = now(), updated_at = updated_at
    WHERE email = ANY(%s) AND remind_at IS NOT NULL RETURNING id
"""
_SELECT_REMINDER_JOBS = """
    SELECT j.id FROM jobs AS j JOIN subscriptions AS s ON s.id = j.subject_id
    WHERE j.kind = 'subscription.mail_reminder' AND s.list_id = ANY(%s)
"""
_SELECT_REMINDER_TIMES = """
    SELECT remind_at, remind_at - confirmation_asked_at FROM subscriptions
    WHERE email = %s ORDER BY remind_at
"""


def sign_up(stranger: httpx2.Client, confirming_list_id: int, email: str, **headers: str) -> None:
    reply = stranger.post(
        f"/subscriptions/{confirming_list_id}", json={"email": email}, headers=headers
    )
    assert data(reply) == 1


def remind(stack: Stack, *addresses: str) -> None:
    stack.query(_MAKE_REMINDERS_DUE, list(addresses))
    run_maintenance(stack, "maintenance.remind")


def test_pending_person_is_reminded_only_once_in_their_language(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    mailing_list = new_list(client, title="Tee", confirm_required=True)
    email = new_address()
    sign_up(stranger, mailing_list["id"], email, **{"Accept-Language": "de"})
    [confirmation_mail] = await_mails(stack, email)
    [(_, reminder_delay)] = stack.query(_SELECT_REMINDER_TIMES, email)
    assert reminder_delay == timedelta(hours=24)
    # The reminder isn't due yet, so the maintenance task must not send it.
    run_maintenance(stack, "maintenance.remind")
    assert stack.query(_SELECT_REMINDER_JOBS, [mailing_list["id"]]) == []
    member_before = require_member(client, mailing_list["id"], email)
    remind(stack, email)
    reminder, _ = await_mails(stack, email, 2)
    assert reminder["subject"] == "Erinnerung: Bestätigen Sie Ihre Anmeldung zu “Tee”"
    for body in (reminder["text"], reminder["html"]):
        assert "Wir schicken keine weitere Erinnerung." in body
        assert "/report?" in body
    assert read_confirmation_token(reminder) != read_confirmation_token(confirmation_mail)
    assert require_member(client, mailing_list["id"], email) == member_before
    # A new sign-up with the same address causes no second reminder.
    stack.query(
        "UPDATE subscriptions SET confirmation_asked_at = now() - interval '1 hour'"
        " WHERE email = %s",
        email,
    )
    sign_up(stranger, mailing_list["id"], email)
    await_mails(stack, email, 3)
    assert stack.query(_SELECT_REMINDER_TIMES, email) == [(None, None)]
    assert confirm(stranger, reminder).status_code == 303
    assert read_status(client, mailing_list["id"], email) == "active"


def test_address_gets_at_most_one_reminder_per_day_across_lists(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    list_ids = [new_list(client, confirm_required=True)["id"] for _ in range(3)]
    local_part = new_address().partition("@")[0]
    # Pressroom assumes that both addresses belong to one mailbox, because they differ only in
    # ``+tea``.
    addresses = [f"{local_part}@example.com", f"{local_part}+tea@example.com"]
    for number, list_id in enumerate(list_ids):
        sign_up(stranger, list_id, addresses[number % 2])
    await_mails(stack, addresses[0], 2)
    remind(stack, *addresses)
    assert len(stack.query(_SELECT_REMINDER_JOBS, list_ids)) == 1
    postponed_reminders = [
        row for each in addresses for row in stack.query(_SELECT_REMINDER_TIMES, each) if row[0]
    ]
    [(is_later,)] = stack.query(
        "SELECT %s > now() + interval '23 hours'", postponed_reminders[0][0]
    )
    assert (len(postponed_reminders), is_later) == (2, True)
    # After a day, Pressroom sends the same mailbox a reminder of another unconfirmed sign-up.
    stack.query("UPDATE mail_counts SET ends_at = now() - interval '1 second'")
    remind(stack, *addresses)
    assert len(stack.query(_SELECT_REMINDER_JOBS, list_ids)) == 2
    # No reminder is sent after the link in the confirmation mail has expired.
    stack.query(
        "UPDATE subscriptions SET confirmation_asked_at = now() - interval '6 days 1 hour'"
        " WHERE email = ANY(%s)",
        addresses,
    )
    remind(stack, *addresses)
    assert len(stack.query(_SELECT_REMINDER_JOBS, list_ids)) == 2
    assert not [
        row for each in addresses for row in stack.query(_SELECT_REMINDER_TIMES, each) if row[0]
    ]


def test_person_who_confirmed_or_declined_or_is_on_the_deny_list_gets_no_reminder(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    final_acts: dict[str, Callable[[Subscriber], object]] = {
        "says nothing": lambda _: None,
        "is denied": lambda person: client.patch(
            "/deny-list", json={"add_addresses": [person.email]}
        ),
        "is archived": lambda person: client.delete(f"/lists/{person.list_id}"),
        "is erased": lambda person: erase(stack.resources, person.email),
        "confirms": lambda person: confirm(stranger, *await_mails(stack, person.email)),
    }
    # After each of the actions in this dictionary, the test signs the person's address up again.
    reversible_acts: dict[str, Callable[[Subscriber], object]] = {
        "leaves": lambda person: stranger.post(person.unsubscribe_url, data={"action": "leave"}),
        "is removed": lambda person: client.delete(
            f"/subscriptions/{person.list_id}/members/{person.user_id}"
        ),
        "reports": lambda person: stranger.post("/report", params={"trace_id": person.trace_id}),
    }
    subscribers: dict[str, Subscriber] = {}
    for name, act in (final_acts | reversible_acts).items():
        list_id = new_list(client, confirm_required=True)["id"]
        subscribers[name] = person = subscribe_pending(stack, list_id)
        act(person)
        if name in reversible_acts:
            assert person.read_status()[0] != "pending"
            sign_up(stranger, list_id, person.email)
            assert person.read_status()[0] == "pending"
    list_ids = [each.list_id for each in subscribers.values()]
    # Make all reminders due, so that a wrong reminder would be sent.
    stack.query("UPDATE subscriptions SET remind_at = now() WHERE list_id = ANY(%s)", list_ids)
    run_maintenance(stack, "maintenance.remind")
    reminded_names = {
        name
        for name, person in subscribers.items()
        if stack.query(_SELECT_REMINDER_JOBS, [person.list_id])
    }
    assert reminded_names == {"says nothing"}


def test_concurrent_hosts_enqueue_one_reminder_and_a_later_denial_cancels_the_mail(
    stack_without_workers: Stack, client_without_workers: httpx2.Client
) -> None:
    list_id = new_list(client_without_workers, confirm_required=True)["id"]
    email = new_address()
    with stack_without_workers.client() as stranger:
        sign_up(stranger, list_id, email)
    stack_without_workers.query(_MAKE_REMINDERS_DUE, [email])
    with ThreadPoolExecutor(4) as pool:
        reminder_counts = pool.map(
            lambda _: mails.enqueue_due_reminders(stack_without_workers.resources), range(4)
        )
        assert sum(reminder_counts) == 1
    [(job_id,)] = stack_without_workers.query(_SELECT_REMINDER_JOBS, [list_id])
    [(owner_id,)] = stack_without_workers.query("SELECT user_id FROM lists WHERE id = %s", list_id)
    with stack_without_workers.resources.unit_of_work() as uow:
        deny_lists.change_entries(uow, AccountId(int(str(owner_id))), add=[email], remove=[])
    lease = claim_lease(stack_without_workers.resources, int(str(job_id)))
    assert lease is not None
    mails.send_reminder(stack_without_workers.resources, lease, ForbiddenMailer())
    assert stack_without_workers.query("SELECT result FROM jobs WHERE id = %s", job_id) == [
        ({"sent": False},)
    ]
