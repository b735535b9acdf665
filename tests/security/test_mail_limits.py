"""A stranger can have few mails of ours sent to other people, with no words of their own."""

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

# By the day, so that no test sees the end of a window.
MAX_TO_MAILBOX, MAX_TO_DOMAIN, MAX_OF_LIST, MAX_OF_SOURCE = 3, 5, 7, 9
AT_ONCE = 4
CONFIRM, REMINDER, FINISH, RESET = (
    "Confirm your subscription to “A list”",
    "Reminder: confirm your subscription to “A list”",
    "Finish creating your account",
    "Choose a new password",
)
PHISHING = (
    "Your PayPal account is locked. Verify at https://evil.example/login or evil.example, "
    "write to help@evil.example or call +1 800 555 0199 \u202enow"
)
# A title that leads away, as mails have it.
SHOWN = "“Your PayPal account is locked. Verify at … or … write to…”"


@dataclass(frozen=True)
class Mailing:
    """Two API processes with low limits, behind a proxy that says where their callers are."""

    stack: Stack
    ports: Sequence[int]

    def stranger(self, process: int, network: str | None = None) -> httpx2.Client:
        headers = {"X-Forwarded-For": f"{network or new_network()}.{1 + secrets.randbelow(250)}"}
        url = f"http://{LOOPBACK}:{self.ports[process]}"
        return plain_client(base_url=url, headers=headers)

    def new_list(self) -> int:
        """A list of a new owner's that asks for confirmation."""
        with self.stack.client(self.stack.create_owner().key) as client:
            body = {"title": "A list", "slug": random_hash_id(), "confirm_required": True}
            return int(data(client.post("/lists", json=body))["id"])

    def ask(self, asked: Sequence[tuple[int, str]], network: str | None = None) -> None:
        """Strangers subscribe addresses to lists, through both processes at once."""

        def one(number: int) -> tuple[int, Any]:
            list_id, email = asked[number]
            with self.stranger(number % len(self.ports), network) as client:
                reply = client.post(f"/subscriptions/{list_id}", json={"email": email})
                return reply.status_code, reply.json()["data"]

        with ThreadPoolExecutor(AT_ONCE) as pool:
            answers = list(pool.map(one, range(len(asked))))
        # Nobody hears that a limit was reached.
        assert answers == [(200, 1)] * len(asked)

    def settle(self) -> None:
        """Wait until all mails that were ordered have been sent."""
        waiting = "SELECT 1 FROM jobs WHERE queue = 'mail' AND finished_at IS NULL"
        eventually(lambda: not self.stack.query(waiting), within=60, what="the last mail")

    def subjects(self, *addresses: str) -> list[str]:
        self.settle()
        return [mail["subject"] for each in addresses for mail in self.stack.mails(each)]

    def statuses(self, *addresses: str) -> set[object]:
        rows = "SELECT status FROM subscriptions WHERE email = ANY(%s)"
        found = self.stack.query(rows, list(addresses))
        assert len(found) == len(addresses)
        return {status for (status,) in found}


def new_network() -> str:
    return f"10.{secrets.randbelow(256)}.{secrets.randbelow(256)}"


def new_domain() -> str:
    return f"{secrets.token_hex(6)}.example.com"


@pytest.fixture(scope="module")
def limited_mailing(make_stack: Callable[[str], Stack]) -> Iterator[Mailing]:
    """A test stack with two API processes, a mail worker, and low limits of mails per day."""
    stack = make_stack("unasked")
    stack.environment |= {
        "PRESSROOM_TRUSTED_PROXIES": LOOPBACK,
        "PRESSROOM_MAIL_LIMIT_MAILBOX": f"{MAX_TO_MAILBOX}/day",
        "PRESSROOM_MAIL_LIMIT_DOMAIN": f"{MAX_TO_DOMAIN}/day;1000/month",
        "PRESSROOM_MAIL_LIMIT_LIST": f"{MAX_OF_LIST}/day",
        "PRESSROOM_MAIL_LIMIT_SOURCE": f"{MAX_OF_SOURCE}/day",
    }
    stack.start_sandbox()
    other = free_port()
    stack.start_api()
    stack.start_api(other)
    stack.start_worker("mail", concurrency=4)
    yield Mailing(stack, (stack.api_port, other))
    stack.stop()


def test_confirmation_mail_hides_links_and_phone_numbers_in_list_titles(
    limited_mailing: Mailing,
) -> None:
    list_id, email = limited_mailing.new_list(), f"victim@{new_domain()}"
    # Past the rules of titles.
    limited_mailing.stack.query("UPDATE lists SET title = %s WHERE id = %s", PHISHING, list_id)
    limited_mailing.ask([(list_id, email)])
    [subject] = limited_mailing.subjects(email)
    [mail] = limited_mailing.stack.mails(email)
    links = {word for word in mail["text"].split() if "://" in word}
    for text in (subject, mail["text"], unescape(mail["html"])):
        assert SHOWN in text
        assert text == subject or "o…@example.com" in text.replace("\u200c", "")
        # The tokens of our links and the address are random, and may have any three digits.
        theirs = re.sub("|".join(map(re.escape, (*links, email))), "", text)
        for forbidden in ("evil", "555", "\u202e"):
            assert forbidden not in theirs
    base = limited_mailing.stack.api_url
    assert all(link.startswith((f"{base}/confirm?", f"{base}/report?")) for link in links)
    assert len(links) == 2


def test_aliases_of_one_mailbox_share_one_mail_limit(limited_mailing: Mailing) -> None:
    name = secrets.token_hex(5)
    forms = [f"{name}+{number}@gmail.com" for number in range(10)]
    forms += [f"{name[:4]}.{name[4:]}@gmail.com", f"{name}@googlemail.com"]
    list_id = limited_mailing.new_list()
    limited_mailing.ask([(list_id, each) for each in forms])
    assert limited_mailing.subjects(*forms) == [CONFIRM] * MAX_TO_MAILBOX
    # All wait, and a later request has the mail sent.
    assert limited_mailing.statuses(*forms) == {"pending"}
    [missed, *_] = [each for each in forms if not limited_mailing.stack.mails(each)]
    limited_mailing.stack.query("UPDATE mail_counts SET ends_at = now() - interval '1 second'")
    limited_mailing.ask([(list_id, missed)])
    assert limited_mailing.subjects(missed) == [CONFIRM]


def test_mails_to_one_domain_are_limited_across_lists(limited_mailing: Mailing) -> None:
    domain = new_domain()
    asked = [(limited_mailing.new_list(), f"reader{number}@{domain}") for number in range(20)]
    limited_mailing.ask(asked)
    addresses = [email for _, email in asked]
    assert limited_mailing.subjects(*addresses) == [CONFIRM] * MAX_TO_DOMAIN
    assert limited_mailing.statuses(*addresses) == {"pending"}


def test_confirmation_mails_are_limited_per_list(limited_mailing: Mailing) -> None:
    list_id = limited_mailing.new_list()
    addresses = [f"reader@{new_domain()}" for _ in range(20)]
    limited_mailing.ask([(list_id, each) for each in addresses])
    assert limited_mailing.subjects(*addresses) == [CONFIRM] * MAX_OF_LIST


def test_mails_requested_from_one_network_are_limited_across_lists_and_forms(
    limited_mailing: Mailing,
) -> None:
    network = new_network()
    asked = [(limited_mailing.new_list(), f"reader@{new_domain()}") for _ in range(20)]
    limited_mailing.ask(asked, network)
    addresses = [email for _, email in asked]
    assert limited_mailing.subjects(*addresses) == [CONFIRM] * MAX_OF_SOURCE
    with limited_mailing.stranger(0, network) as client:
        email = f"reader@{new_domain()}"
        Visitor(limited_mailing.stack, client).fill_in("/register", email=email)
    assert limited_mailing.subjects(email) == []


def test_signup_page_counts_towards_the_mail_limit_per_list(limited_mailing: Mailing) -> None:
    network, list_id = new_network(), limited_mailing.new_list()
    addresses = [f"reader@{new_domain()}" for _ in range(MAX_OF_LIST + 2)]
    with limited_mailing.stranger(0, network) as client:
        # A page of a list is found by its id too.
        replies = [client.post(f"/s/{list_id}", data={"email": each}) for each in addresses]
    assert {(each.status_code, each.headers["location"]) for each in replies} == {
        (303, replies[0].headers["location"])
    }
    assert limited_mailing.subjects(*addresses) == [CONFIRM] * MAX_OF_LIST


def test_preference_requests_are_limited_per_mailbox(limited_mailing: Mailing) -> None:
    list_id, domain = limited_mailing.new_list(), new_domain()
    forms = [f"victim+{number}@{domain}" for number in range(MAX_TO_MAILBOX + 3)]
    limited_mailing.stack.query(
        "WITH made AS ("
        " INSERT INTO users (id, email) SELECT (random() * 1e15)::bigint, unnest(%s)"
        " RETURNING id, email"
        ") INSERT INTO subscriptions (list_id, user_id, status, email, source)"
        " SELECT %s, id, 'active', email, 'import' FROM made",
        forms,
        list_id,
    )
    answers = set()
    for number, email in enumerate((*forms, *forms)):
        with limited_mailing.stranger(number % 2) as client:
            query = {"list": list_id}
            reply = client.post("/preferences/ask", params=query, data={"email": email})
            answers.add((reply.status_code, reply.headers["location"]))
    # All responses are equal, so that nobody learns that a limit was reached.
    [(status, location)] = answers
    assert status == 303
    assert location.endswith("&sent=yes")
    assert limited_mailing.subjects(*forms) == ["Manage your subscriptions"] * MAX_TO_MAILBOX


def test_mail_stopped_by_one_limit_does_not_count_towards_the_others(
    limited_mailing: Mailing,
) -> None:
    domain, list_id = new_domain(), limited_mailing.new_list()
    limited_mailing.ask([(list_id, f"victim+{number}@{domain}") for number in range(20)])
    others = [f"other{number}@{domain}" for number in range(MAX_TO_DOMAIN - MAX_TO_MAILBOX)]
    limited_mailing.ask([(list_id, each) for each in others])
    assert limited_mailing.subjects(*others) == [CONFIRM] * len(others)


@pytest.mark.parametrize("path", ["/register", "/password/forgotten"])
def test_registration_and_reset_mails_are_limited_per_mailbox(
    limited_mailing: Mailing, path: str
) -> None:
    domain = new_domain()
    forms = [f"victim+{number}@{domain}" for number in range(8)]
    if path != "/register":
        # Mail goes only to people who are known already: by a list, say.
        limited_mailing.stack.query(
            "INSERT INTO users (id, email) SELECT (random() * 1e15)::bigint, unnest(%s)", forms
        )
    for number, email in enumerate(forms):
        with limited_mailing.stranger(number % 2) as client:
            reply = Visitor(limited_mailing.stack, client).fill_in(path, email=email)
            assert (reply.status_code, reply.headers["location"]) == (303, "?sent=yes")
    assert limited_mailing.subjects(*forms) == [FINISH] * MAX_TO_MAILBOX


def test_confirmation_mails_by_strangers_do_not_block_password_reset(
    limited_mailing: Mailing,
) -> None:
    email = new_account(limited_mailing.stack)
    name, _, domain = email.partition("@")
    lists = [limited_mailing.new_list() for _ in range(MAX_TO_MAILBOX)]
    limited_mailing.ask([(each, f"{name}+{each}@{domain}") for each in lists])
    with limited_mailing.stranger(0) as client:
        Visitor(limited_mailing.stack, client).fill_in("/password/forgotten", email=email)
    assert limited_mailing.subjects(email) == [RESET]


def test_mail_retried_after_451_is_delivered_only_once(limited_mailing: Mailing) -> None:
    # The sandbox says 451 to the first two attempts for such an address.
    email = f"later+{secrets.token_hex(4)}@{new_domain()}"
    with limited_mailing.stranger(0) as client:
        Visitor(limited_mailing.stack, client).fill_in("/register", email=email)
    assert limited_mailing.subjects(email) == [FINISH]
    kind = MailKind.REGISTER.value
    counted = "SELECT admitted_at IS NOT NULL FROM account_mails WHERE kind = %s AND email = %s"
    assert limited_mailing.stack.query(counted, kind, email) == [(True,)]


def test_report_link_unsubscribes_reader_although_mail_limits_are_reached(
    limited_mailing: Mailing,
) -> None:
    list_id, email = limited_mailing.new_list(), f"reader@{new_domain()}"
    limited_mailing.ask([(list_id, email)])
    limited_mailing.settle()
    # As if every limit had been reached.
    limited_mailing.stack.query("UPDATE mail_counts SET mails = 1000000")
    [mail] = limited_mailing.stack.mails(email)
    [link] = [word for word in mail["text"].split() if "/report?" in word]
    with limited_mailing.stranger(1) as client:
        assert client.post(httpx2.URL(link).raw_path.decode()).status_code == 303
    assert limited_mailing.statuses(email) == {"unsubscribed"}


def test_mail_counters_contain_no_addresses(limited_mailing: Mailing) -> None:
    email = f"reader.{secrets.token_hex(6)}@{new_domain()}"
    limited_mailing.ask([(limited_mailing.new_list(), email)])
    rows = str(limited_mailing.stack.query("SELECT encode(digest, 'escape') FROM mail_counts"))
    assert rows != "[]"
    for word in email.split("@"):
        assert word not in rows


def test_reminders_count_towards_the_same_limits_as_confirmation_mails(
    limited_mailing: Mailing,
) -> None:
    list_id, network = limited_mailing.new_list(), new_network()
    addresses = [f"reader@{new_domain()}" for _ in range(MAX_OF_LIST)]
    limited_mailing.ask([(list_id, each) for each in addresses], network)
    assert limited_mailing.subjects(*addresses) == [CONFIRM] * MAX_OF_LIST
    due = "UPDATE subscriptions SET remind_at = now() WHERE list_id = %s"
    limited_mailing.stack.query(due, list_id)
    # The list has had its mails of the day; then their network has but some.
    assert pressroom(limited_mailing.stack, "maintenance", "maintenance.remind").returncode == 0
    assert limited_mailing.subjects(*addresses) == [CONFIRM] * MAX_OF_LIST
    limited_mailing.stack.query("UPDATE mail_counts SET ends_at = now() - interval '1 second'")
    others = [f"reader@{new_domain()}" for _ in range(MAX_OF_SOURCE - 2)]
    limited_mailing.ask([(limited_mailing.new_list(), each) for each in others], network)
    limited_mailing.stack.query(due, list_id)
    assert pressroom(limited_mailing.stack, "maintenance", "maintenance.remind").returncode == 0
    found = limited_mailing.subjects(*addresses)
    assert sorted(found) == [CONFIRM] * MAX_OF_LIST + [REMINDER] * 2
