"""Tests that strangers can make Pressroom send only a few mails.

A confirmation mail also hides links and phone numbers in the list's title.
"""

import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from html import unescape
from typing import Any

import httpx2
import pytest

from core.ids import random_hash_id
from devstack import LOOPBACK
from devstack.harness.free_ports import free_port
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack, plain_client
from services.accounts.account_mails import MailKind
from tests.support.commands.running import pressroom
from tests.support.http.replies import data
from tests.support.people.visiting import Visitor, new_account

# The maximum numbers of mails per day. The mail limits apply per day, so that no mail count
# is reset while a test runs.
MAX_MAILS_PER_MAILBOX = 3
MAX_MAILS_PER_DOMAIN = 5
MAX_MAILS_PER_LIST = 7
MAX_MAILS_PER_SOURCE = 9
CONCURRENT_CALLS = 4
CONFIRM_SUBJECT = "Confirm your subscription to “A list”"
REMINDER_SUBJECT = "Reminder: confirm your subscription to “A list”"
FINISH_SUBJECT = "Finish creating your account"
RESET_SUBJECT = "Choose a new password"
PHISHING_TITLE = (
    "Your PayPal account is locked. Verify at https://evil.example/login or evil.example, "
    "write to help@evil.example or call +1 800 555 0199 \u202enow"
)
# The text that mails show instead of PHISHING_TITLE.
MASKED_TITLE = "“Your PayPal account is locked. Verify at … or … write to…”"


@dataclass(frozen=True)
class Mailing:
    """Two API processes with low limits, behind a proxy that reports the callers' IP addresses."""

    stack: Stack
    ports: Sequence[int]

    def stranger(self, process: int, network: str | None = None) -> httpx2.Client:
        headers = {"X-Forwarded-For": f"{network or new_network()}.{1 + secrets.randbelow(250)}"}
        url = f"http://{LOOPBACK}:{self.ports[process]}"
        return plain_client(base_url=url, headers=headers)

    def new_list(self) -> int:
        """Create a list with a new owner. Subscribers must confirm their subscription by mail."""
        with self.stack.client(self.stack.create_owner().key) as client:
            body = {"title": "A list", "slug": random_hash_id(), "confirm_required": True}
            return int(data(client.post("/lists", json=body))["id"])

    def subscribe(
        self, subscriptions: Sequence[tuple[int, str]], network: str | None = None
    ) -> None:
        """Subscribe addresses to lists without a login, by concurrent calls to both API processes.

        Args:
            subscriptions: pairs of a list's id and an address.
            network: the network of all callers, or ``None`` for a new network per call.
        """

        def subscribe_one(number: int) -> tuple[int, Any]:
            list_id, email = subscriptions[number]
            with self.stranger(number % len(self.ports), network) as client:
                reply = client.post(f"/subscriptions/{list_id}", json={"email": email})
                return reply.status_code, reply.json()["data"]

        with ThreadPoolExecutor(CONCURRENT_CALLS) as pool:
            answers = list(pool.map(subscribe_one, range(len(subscriptions))))
        # The response doesn't reveal that a limit is reached.
        assert answers == [(200, 1)] * len(subscriptions)

    def settle(self) -> None:
        """Wait until all queued mails have been sent."""
        waiting = "SELECT 1 FROM jobs WHERE queue = 'mail' AND finished_at IS NULL"
        eventually(lambda: not self.stack.query(waiting), within=60, what="the last mail")

    def subjects(self, *addresses: str) -> list[str]:
        self.settle()
        return [mail["subject"] for each in addresses for mail in self.stack.mails(each)]

    def statuses(self, *addresses: str) -> set[object]:
        query = "SELECT status FROM subscriptions WHERE email = ANY(%s)"
        rows = self.stack.query(query, list(addresses))
        assert len(rows) == len(addresses)
        return {status for (status,) in rows}


def new_network() -> str:
    return f"10.{secrets.randbelow(256)}.{secrets.randbelow(256)}"


def new_domain() -> str:
    return f"{secrets.token_hex(6)}.example.com"


@pytest.fixture(scope="module")
def limited_mailing(make_stack: Callable[[str], Stack]) -> Iterator[Mailing]:
    """A test stack with two API processes, a mail worker, and low daily mail limits."""
    stack = make_stack("unasked")
    stack.environment |= {
        "PRESSROOM_TRUSTED_PROXIES": LOOPBACK,
        "PRESSROOM_MAIL_LIMIT_MAILBOX": f"{MAX_MAILS_PER_MAILBOX}/day",
        "PRESSROOM_MAIL_LIMIT_DOMAIN": f"{MAX_MAILS_PER_DOMAIN}/day;1000/month",
        "PRESSROOM_MAIL_LIMIT_LIST": f"{MAX_MAILS_PER_LIST}/day",
        "PRESSROOM_MAIL_LIMIT_SOURCE": f"{MAX_MAILS_PER_SOURCE}/day",
    }
    stack.start_sandbox()
    second_port = free_port()
    stack.start_api()
    stack.start_api(second_port)
    stack.start_worker("mail", concurrency=4)
    yield Mailing(stack, (stack.api_port, second_port))
    stack.stop()


def test_confirmation_mail_hides_links_and_phone_numbers_in_list_titles(
    limited_mailing: Mailing,
) -> None:
    list_id = limited_mailing.new_list()
    email = f"victim@{new_domain()}"
    # Set the title by SQL, because the API would reject it.
    limited_mailing.stack.query(
        "UPDATE lists SET title = %s WHERE id = %s", PHISHING_TITLE, list_id
    )
    limited_mailing.subscribe([(list_id, email)])
    [subject] = limited_mailing.subjects(email)
    [mail] = limited_mailing.stack.mails(email)
    links = {word for word in mail["text"].split() if "://" in word}
    for text in (subject, mail["text"], unescape(mail["html"])):
        assert MASKED_TITLE in text
        assert text == subject or "o…@example.com" in text.replace("\u200c", "")
        # Ignore Pressroom's links and the recipient's address, because their random characters may
        # also contain "555".
        foreign_text = re.sub("|".join(map(re.escape, (*links, email))), "", text)
        for forbidden in ("evil", "555", "\u202e"):
            assert forbidden not in foreign_text
    base = limited_mailing.stack.api_url
    assert all(link.startswith((f"{base}/confirm?", f"{base}/report?")) for link in links)
    assert len(links) == 2


def test_aliases_of_one_mailbox_share_one_mail_limit(limited_mailing: Mailing) -> None:
    name = secrets.token_hex(5)
    aliases = [f"{name}+{number}@gmail.com" for number in range(10)]
    aliases += [f"{name[:4]}.{name[4:]}@gmail.com", f"{name}@googlemail.com"]
    list_id = limited_mailing.new_list()
    limited_mailing.subscribe([(list_id, each) for each in aliases])
    assert limited_mailing.subjects(*aliases) == [CONFIRM_SUBJECT] * MAX_MAILS_PER_MAILBOX
    # Even the aliases that got no confirmation mail have a pending subscription. If an alias that
    # got no confirmation mail is signed up again on the next day, Pressroom sends the mail.
    assert limited_mailing.statuses(*aliases) == {"pending"}
    [alias_without_mail, *_] = [each for each in aliases if not limited_mailing.stack.mails(each)]
    limited_mailing.stack.query("UPDATE mail_counts SET ends_at = now() - interval '1 second'")
    limited_mailing.subscribe([(list_id, alias_without_mail)])
    assert limited_mailing.subjects(alias_without_mail) == [CONFIRM_SUBJECT]


def test_mails_to_one_domain_are_limited_across_lists(limited_mailing: Mailing) -> None:
    domain = new_domain()
    subscriptions = [
        (limited_mailing.new_list(), f"reader{number}@{domain}") for number in range(20)
    ]
    limited_mailing.subscribe(subscriptions)
    addresses = [email for _, email in subscriptions]
    assert limited_mailing.subjects(*addresses) == [CONFIRM_SUBJECT] * MAX_MAILS_PER_DOMAIN
    assert limited_mailing.statuses(*addresses) == {"pending"}


def test_confirmation_mails_are_limited_per_list(limited_mailing: Mailing) -> None:
    list_id = limited_mailing.new_list()
    addresses = [f"reader@{new_domain()}" for _ in range(20)]
    limited_mailing.subscribe([(list_id, each) for each in addresses])
    assert limited_mailing.subjects(*addresses) == [CONFIRM_SUBJECT] * MAX_MAILS_PER_LIST


def test_mails_requested_from_one_network_are_limited_across_lists_and_forms(
    limited_mailing: Mailing,
) -> None:
    network = new_network()
    subscriptions = [(limited_mailing.new_list(), f"reader@{new_domain()}") for _ in range(20)]
    limited_mailing.subscribe(subscriptions, network)
    addresses = [email for _, email in subscriptions]
    assert limited_mailing.subjects(*addresses) == [CONFIRM_SUBJECT] * MAX_MAILS_PER_SOURCE
    with limited_mailing.stranger(0, network) as client:
        email = f"reader@{new_domain()}"
        Visitor(limited_mailing.stack, client).fill_in("/register", email=email)
    assert limited_mailing.subjects(email) == []


def test_signup_page_counts_towards_the_mail_limit_per_list(limited_mailing: Mailing) -> None:
    network = new_network()
    list_id = limited_mailing.new_list()
    addresses = [f"reader@{new_domain()}" for _ in range(MAX_MAILS_PER_LIST + 2)]
    with limited_mailing.stranger(0, network) as client:
        # The path of a sign-up page may contain the list's id instead of its slug.
        replies = [client.post(f"/s/{list_id}", data={"email": each}) for each in addresses]
    assert {(each.status_code, each.headers["location"]) for each in replies} == {
        (303, replies[0].headers["location"])
    }
    assert limited_mailing.subjects(*addresses) == [CONFIRM_SUBJECT] * MAX_MAILS_PER_LIST


def test_preference_requests_are_limited_per_mailbox(limited_mailing: Mailing) -> None:
    list_id = limited_mailing.new_list()
    domain = new_domain()
    aliases = [f"victim+{number}@{domain}" for number in range(MAX_MAILS_PER_MAILBOX + 3)]
    limited_mailing.stack.query(
        "WITH created AS ("
        " INSERT INTO users (id, email) SELECT (random() * 1e15)::bigint, unnest(%s)"
        " RETURNING id, email"
        ") INSERT INTO subscriptions (list_id, user_id, status, email, source)"
        " SELECT %s, id, 'active', email, 'import' FROM created",
        aliases,
        list_id,
    )
    answers = set()
    for number, email in enumerate((*aliases, *aliases)):
        with limited_mailing.stranger(number % 2) as client:
            query = {"list": list_id}
            reply = client.post("/preferences/ask", params=query, data={"email": email})
            answers.add((reply.status_code, reply.headers["location"]))
    # All responses are equal, so that nobody learns that a limit was reached.
    [(status, location)] = answers
    assert status == 303
    assert location.endswith("&sent=yes")
    assert (
        limited_mailing.subjects(*aliases) == ["Manage your subscriptions"] * MAX_MAILS_PER_MAILBOX
    )


def test_mail_stopped_by_one_limit_does_not_count_towards_the_others(
    limited_mailing: Mailing,
) -> None:
    domain = new_domain()
    list_id = limited_mailing.new_list()
    limited_mailing.subscribe([(list_id, f"victim+{number}@{domain}") for number in range(20)])
    other_addresses = [
        f"other{number}@{domain}" for number in range(MAX_MAILS_PER_DOMAIN - MAX_MAILS_PER_MAILBOX)
    ]
    limited_mailing.subscribe([(list_id, each) for each in other_addresses])
    assert limited_mailing.subjects(*other_addresses) == [CONFIRM_SUBJECT] * len(other_addresses)


@pytest.mark.parametrize("path", ["/register", "/password/forgotten"])
def test_registration_and_reset_mails_are_limited_per_mailbox(
    limited_mailing: Mailing, path: str
) -> None:
    domain = new_domain()
    aliases = [f"victim+{number}@{domain}" for number in range(8)]
    if path != "/register":
        # Add users, because Pressroom sends mails for a new password only to known addresses.
        limited_mailing.stack.query(
            "INSERT INTO users (id, email) SELECT (random() * 1e15)::bigint, unnest(%s)", aliases
        )
    for number, email in enumerate(aliases):
        with limited_mailing.stranger(number % 2) as client:
            reply = Visitor(limited_mailing.stack, client).fill_in(path, email=email)
            assert (reply.status_code, reply.headers["location"]) == (303, "?sent=yes")
    assert limited_mailing.subjects(*aliases) == [FINISH_SUBJECT] * MAX_MAILS_PER_MAILBOX


def test_confirmation_mails_by_strangers_do_not_block_password_reset(
    limited_mailing: Mailing,
) -> None:
    email = new_account(limited_mailing.stack)
    name, _, domain = email.partition("@")
    lists = [limited_mailing.new_list() for _ in range(MAX_MAILS_PER_MAILBOX)]
    limited_mailing.subscribe([(each, f"{name}+{each}@{domain}") for each in lists])
    with limited_mailing.stranger(0) as client:
        Visitor(limited_mailing.stack, client).fill_in("/password/forgotten", email=email)
    assert limited_mailing.subjects(email) == [RESET_SUBJECT]


def test_mail_retried_after_451_is_delivered_only_once(limited_mailing: Mailing) -> None:
    # The sandbox responds with 451 to the first two attempts to deliver a mail to an address that
    # starts with "later".
    email = f"later+{secrets.token_hex(4)}@{new_domain()}"
    with limited_mailing.stranger(0) as client:
        Visitor(limited_mailing.stack, client).fill_in("/register", email=email)
    assert limited_mailing.subjects(email) == [FINISH_SUBJECT]
    kind = MailKind.REGISTER.value
    counted = "SELECT admitted_at IS NOT NULL FROM account_mails WHERE kind = %s AND email = %s"
    assert limited_mailing.stack.query(counted, kind, email) == [(True,)]


def test_report_link_unsubscribes_reader_although_mail_limits_are_reached(
    limited_mailing: Mailing,
) -> None:
    list_id = limited_mailing.new_list()
    email = f"reader@{new_domain()}"
    limited_mailing.subscribe([(list_id, email)])
    limited_mailing.settle()
    # Pretend that all mail limits are reached.
    limited_mailing.stack.query("UPDATE mail_counts SET mails = 1000000")
    [mail] = limited_mailing.stack.mails(email)
    [link] = [word for word in mail["text"].split() if "/report?" in word]
    with limited_mailing.stranger(1) as client:
        assert client.post(httpx2.URL(link).raw_path.decode()).status_code == 303
    assert limited_mailing.statuses(email) == {"unsubscribed"}


def test_mail_counters_contain_no_addresses(limited_mailing: Mailing) -> None:
    email = f"reader.{secrets.token_hex(6)}@{new_domain()}"
    limited_mailing.subscribe([(limited_mailing.new_list(), email)])
    rows = str(limited_mailing.stack.query("SELECT encode(digest, 'escape') FROM mail_counts"))
    assert rows != "[]"
    for word in email.split("@"):
        assert word not in rows


def test_reminders_count_towards_the_same_limits_as_confirmation_mails(
    limited_mailing: Mailing,
) -> None:
    list_id = limited_mailing.new_list()
    network = new_network()
    addresses = [f"reader@{new_domain()}" for _ in range(MAX_MAILS_PER_LIST)]
    limited_mailing.subscribe([(list_id, each) for each in addresses], network)
    assert limited_mailing.subjects(*addresses) == [CONFIRM_SUBJECT] * MAX_MAILS_PER_LIST
    due = "UPDATE subscriptions SET remind_at = now() WHERE list_id = %s"
    limited_mailing.stack.query(due, list_id)
    # At first, Pressroom sends no reminders, because the list has reached its mail limit. After the
    # first maintenance run, the test lets all mail counts expire. The test then signs up addresses
    # from the same network for other lists, until the network's mail limit permits only two more
    # mails. The second maintenance run therefore sends two reminders.
    assert pressroom(limited_mailing.stack, "maintenance", "maintenance.remind").returncode == 0
    assert limited_mailing.subjects(*addresses) == [CONFIRM_SUBJECT] * MAX_MAILS_PER_LIST
    limited_mailing.stack.query("UPDATE mail_counts SET ends_at = now() - interval '1 second'")
    other_addresses = [f"reader@{new_domain()}" for _ in range(MAX_MAILS_PER_SOURCE - 2)]
    limited_mailing.subscribe(
        [(limited_mailing.new_list(), each) for each in other_addresses], network
    )
    limited_mailing.stack.query(due, list_id)
    assert pressroom(limited_mailing.stack, "maintenance", "maintenance.remind").returncode == 0
    subjects = limited_mailing.subjects(*addresses)
    assert sorted(subjects) == [CONFIRM_SUBJECT] * MAX_MAILS_PER_LIST + [REMINDER_SUBJECT] * 2
