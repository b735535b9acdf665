"""Mails of a list to those who sign up, and one reminder of a sign-up that nobody confirmed."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import httpx2
import pytest

from devstack.harness.stack import Owner, Stack
from services.subscriptions import deny_lists
from services.subscriptions.members import mails
from tests.support.http.replies import data
from tests.support.lists.people_on_lists import Subscriber, subscribe_pending
from tests.support.lists.subscribers import (
    confirm,
    known_member,
    mailed,
    new_address,
    new_list,
    token_of,
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


def status(client: httpx2.Client, confirming_list_id: int, email: str) -> str:
    return str(known_member(client, confirming_list_id, email)["status"])


def test_confirmation_mail_has_text_and_html_and_activates_the_subscription(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, confirming_list_id: int
) -> None:
    email = new_address()
    ask(stranger, confirming_list_id, email)
    assert status(client, confirming_list_id, email) == "pending"
    [mail] = mailed(stack, email)
    assert mail["subject"] == f"Confirm your subscription to “{TITLE}”"
    assert f"“{TITLE}”" in mail["text"]
    # The button comes before all that explains it.
    for written in (mail["html"], mail["text"]):
        assert written.index(f"token={token_of(mail)}") < written.index("Someone signed up")
    assert "Tea &amp; &lt;Toast&gt;" in mail["html"]
    assert "<Toast>" not in mail["html"]
    assert not [name for name in mail["headers"] if name.lower().startswith("list-")]
    assert confirm(stranger, mail).status_code == 303
    assert status(client, confirming_list_id, email) == "active"


def test_welcome_mail_contains_one_click_unsubscribe(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, confirming_list_id: int
) -> None:
    email = new_address()
    ask(stranger, confirming_list_id, email)
    confirm(stranger, *mailed(stack, email))
    welcome = next(mail for mail in mailed(stack, email, 2) if "You are" in mail["subject"])
    assert welcome["subject"] == f"You are subscribed to “{TITLE}”"
    headers = {name.lower(): value for name, value in dict(welcome["headers"]).items()}
    assert headers["list-unsubscribe-post"] == "List-Unsubscribe=One-Click"
    [url] = re.findall(r"^<(\S+)>$", headers["list-unsubscribe"])
    assert url in welcome["text"].split()
    trace_id = httpx2.URL(url).params["trace_id"]
    path = f"/subscriptions/{confirming_list_id}/delete"
    form = {"List-Unsubscribe": "One-Click"}
    assert data(stranger.post(path, params={"trace_id": trace_id}, data=form)) == 1
    assert known_member(client, confirming_list_id, email)["email_enabled"] is False


def test_repeated_sign_ups_send_at_most_one_confirmation_mail_per_ten_minutes(
    stack: Stack, stranger: httpx2.Client, confirming_list_id: int
) -> None:
    email = new_address()
    for _ in range(5):
        ask(stranger, confirming_list_id, email)
    mailed(stack, email)
    stack.query(
        "UPDATE subscriptions SET confirmation_asked_at = now() - interval '11 minutes' "
        "WHERE list_id = %s",
        confirming_list_id,
    )
    ask(stranger, confirming_list_id, email)
    mailed(stack, email, 2)


def test_confirmation_mail_job_belongs_to_the_list_owner(
    stack: Stack, owner: Owner, stranger: httpx2.Client, confirming_list_id: int
) -> None:
    ask(stranger, confirming_list_id, new_address())
    jobs = (
        "SELECT on_behalf_of FROM jobs JOIN subscriptions s ON s.id = subject_id"
        " WHERE list_id = %s AND kind = 'subscription.mail_confirmation'"
    )
    assert stack.query(jobs, confirming_list_id) == [(owner.user_id,)]


def test_confirmation_link_of_a_removed_person_does_not_work(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, confirming_list_id: int
) -> None:
    email = new_address()
    ask(stranger, confirming_list_id, email)
    [mail] = mailed(stack, email)
    user_id = known_member(client, confirming_list_id, email)["user_id"]
    assert data(client.delete(f"/subscriptions/{confirming_list_id}/members/{user_id}")) == 1
    assert confirm(stranger, mail).status_code == 409
    assert status(client, confirming_list_id, email) == "removed"


_DUE = """
    UPDATE subscriptions SET remind_at = now(), updated_at = updated_at
    WHERE email = ANY(%s) AND remind_at IS NOT NULL RETURNING id
"""
_ORDERED = """
    SELECT j.id FROM jobs AS j JOIN subscriptions AS s ON s.id = j.subject_id
    WHERE j.kind = 'subscription.mail_reminder' AND s.list_id = ANY(%s)
"""
_TIMES = """
    SELECT remind_at, remind_at - confirmation_asked_at FROM subscriptions
    WHERE email = %s ORDER BY remind_at
"""


def ask(stranger: httpx2.Client, confirming_list_id: int, email: str, **headers: str) -> None:
    reply = stranger.post(
        f"/subscriptions/{confirming_list_id}", json={"email": email}, headers=headers
    )
    assert data(reply) == 1


def remind(stack: Stack, *addresses: str) -> None:
    stack.query(_DUE, list(addresses))
    run_maintenance(stack, "maintenance.remind")


def test_pending_person_is_reminded_only_once_in_their_language(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    made = new_list(client, title="Tee", confirm_required=True)
    email = new_address()
    ask(stranger, made["id"], email, **{"Accept-Language": "de"})
    [first] = mailed(stack, email)
    [(_, after)] = stack.query(_TIMES, email)
    assert after == timedelta(hours=24)
    # Not before its time.
    run_maintenance(stack, "maintenance.remind")
    assert stack.query(_ORDERED, [made["id"]]) == []
    before = known_member(client, made["id"], email)
    remind(stack, email)
    reminder, _ = mailed(stack, email, 2)
    assert reminder["subject"] == "Erinnerung: Bestätigen Sie Ihre Anmeldung zu “Tee”"
    for written in (reminder["text"], reminder["html"]):
        assert "Wir schicken keine weitere Erinnerung." in written
        assert "/report?" in written
    assert token_of(reminder) != token_of(first)
    assert known_member(client, made["id"], email) == before
    # Nor a second time, whoever asks for the address again.
    stack.query(
        "UPDATE subscriptions SET confirmation_asked_at = now() - interval '1 hour'"
        " WHERE email = %s",
        email,
    )
    ask(stranger, made["id"], email)
    mailed(stack, email, 3)
    assert stack.query(_TIMES, email) == [(None, None)]
    assert confirm(stranger, reminder).status_code == 303
    assert status(client, made["id"], email) == "active"


def test_address_gets_at_most_one_reminder_per_day_across_lists(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    lists = [new_list(client, confirm_required=True)["id"] for _ in range(3)]
    name = new_address().partition("@")[0]
    # Two spellings of one mailbox.
    addresses = [f"{name}@example.com", f"{name}+tea@example.com"]
    for number, list_id in enumerate(lists):
        ask(stranger, list_id, addresses[number % 2])
    mailed(stack, addresses[0], 2)
    remind(stack, *addresses)
    assert len(stack.query(_ORDERED, lists)) == 1
    put_off = [row for each in addresses for row in stack.query(_TIMES, each) if row[0]]
    [(is_later,)] = stack.query("SELECT %s > now() + interval '23 hours'", put_off[0][0])
    assert (len(put_off), is_later) == (2, True)
    # The next day, the next list.
    stack.query("UPDATE mail_counts SET ends_at = now() - interval '1 second'")
    remind(stack, *addresses)
    assert len(stack.query(_ORDERED, lists)) == 2
    # Until the first mail's link has ended.
    stack.query(
        "UPDATE subscriptions SET confirmation_asked_at = now() - interval '6 days 1 hour'"
        " WHERE email = ANY(%s)",
        addresses,
    )
    remind(stack, *addresses)
    assert len(stack.query(_ORDERED, lists)) == 2
    assert not [row for each in addresses for row in stack.query(_TIMES, each) if row[0]]


def test_person_who_confirmed_or_declined_or_is_on_the_deny_list_gets_no_reminder(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    final: dict[str, Callable[[Subscriber], object]] = {
        "says nothing": lambda _: None,
        "is denied": lambda of: client.patch("/deny-list", json={"add_addresses": [of.email]}),
        "is archived": lambda of: client.delete(f"/lists/{of.list_id}"),
        "is erased": lambda of: erase(stack.resources, of.email),
        "confirms": lambda of: confirm(stranger, *mailed(stack, of.email)),
    }
    # After these somebody asks for the address again.
    passing: dict[str, Callable[[Subscriber], object]] = {
        "leaves": lambda of: stranger.post(of.unsubscribe_url, data={"action": "leave"}),
        "is removed": lambda of: client.delete(f"/subscriptions/{of.list_id}/members/{of.user_id}"),
        "reports": lambda of: stranger.post("/report", params={"trace_id": of.trace_id}),
    }
    waiting: dict[str, Subscriber] = {}
    for name, act in (final | passing).items():
        list_id = new_list(client, confirm_required=True)["id"]
        waiting[name] = of = subscribe_pending(stack, list_id)
        act(of)
        if name in passing:
            assert of.stands()[0] != "pending"
            ask(stranger, list_id, of.email)
            assert of.stands()[0] == "pending"
    ids = [each.list_id for each in waiting.values()]
    # If the product errs, all are to be reminded.
    stack.query("UPDATE subscriptions SET remind_at = now() WHERE list_id = ANY(%s)", ids)
    run_maintenance(stack, "maintenance.remind")
    reminded = {name for name, of in waiting.items() if stack.query(_ORDERED, [of.list_id])}
    assert reminded == {"says nothing"}


def test_concurrent_hosts_enqueue_one_reminder_and_a_later_denial_cancels_the_mail(
    stack_without_workers: Stack, client_without_workers: httpx2.Client
) -> None:
    list_id = new_list(client_without_workers, confirm_required=True)["id"]
    email = new_address()
    with stack_without_workers.client() as stranger:
        ask(stranger, list_id, email)
    stack_without_workers.query(_DUE, [email])
    with ThreadPoolExecutor(4) as pool:
        ordered = pool.map(
            lambda _: mails.enqueue_due_reminders(stack_without_workers.resources), range(4)
        )
        assert sum(ordered) == 1
    [(job_id,)] = stack_without_workers.query(_ORDERED, [list_id])
    [(owner_id,)] = stack_without_workers.query("SELECT user_id FROM lists WHERE id = %s", list_id)
    with stack_without_workers.resources.unit_of_work() as uow:
        deny_lists.change_entries(uow, int(str(owner_id)), add=[email], remove=[])
    lease = claim_lease(stack_without_workers.resources, int(str(job_id)))
    assert lease is not None
    mails.send_reminder(stack_without_workers.resources, lease, ForbiddenMailer())
    assert stack_without_workers.query("SELECT result FROM jobs WHERE id = %s", job_id) == [
        ({"sent": False},)
    ]
