"""`pressroom credits`: what an operator gives, takes and proves, and what `verify` finds."""

import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal

import pytest

from devstack.harness.stack import Owner, Stack
from integrations.payments.port import Evidence
from models import OrderVia
from services.access.caller import Caller
from services.credits import ledger
from services.credits.settlement import settle_order
from tests.support.commands.running import fails_with, pressroom, printed
from tests.support.credits import till
from tests.support.credits.ledger import LEDGER_TABLES, falsify_tables, grant_entries, verify_ledger
from tests.support.credits.till import Terms


@pytest.fixture
def books(empty_stack: Stack) -> Iterator[Stack]:
    """A database whose ledger and orders may be falsified; what a test writes is gone after it."""
    yield empty_stack
    falsify_tables(empty_stack, f"TRUNCATE {LEDGER_TABLES}")


@pytest.fixture
def account(books: Stack) -> Owner:
    """A user without entries."""
    return books.new_owner()


@pytest.fixture
def holder(books: Stack, account: Owner) -> int:
    """A user with five entries."""
    grant_entries(books, account.user_id, 5)
    return account.user_id


def faults(books: Stack) -> list[tuple[int | None, str]]:
    return [(each.seq, each.fault) for each in verify_ledger(books, full=True).faults]


def test_credits_are_granted_adjusted_and_proven(books: Stack, account: Owner) -> None:
    granted = printed(books, "credits", "grant", account.email, "12.5", "--reason", "welcome")
    expected = {
        "user_id": account.user_id,
        "seq": 1,
        "action": "grant",
        "amount_credit": 12.5,
        "delta_credit": 12.5,
        "balance_after": 12.5,
        "source_type": "operator",
        "source_id": "welcome",
    }
    assert {name: granted[name] for name in expected} == expected
    less = printed(books, "credits", "adjust", account.email, "-2.0001")
    assert (less["action"], less["source_id"], less["seq"]) == ("adjust", "adjust", 2)
    assert (less["amount_credit"], less["delta_credit"]) == (2.0001, -2.0001)
    more = printed(books, "credits", "adjust", account.email, "0.0001", "--reason", "again")
    assert (more["delta_credit"], more["balance_after"]) == (0.0001, 10.5)
    assert printed(books, "credits", "verify") == []
    shown = pressroom(books, "credits", "verify")
    assert shown.returncode == 0
    read, verdict = shown.stdout.splitlines()
    assert read.startswith("Read: 0 entries of ")
    assert verdict == "All balances, debts, hashes and orders hold."
    assert "; all orders." in pressroom(books, "credits", "verify", "--full").stdout
    kept = "SELECT id FROM credit_entries WHERE user_id = %s ORDER BY seq DESC"
    ids = [each["id"] for each in (more, less, granted)]
    assert books.query(kept, account.user_id) == [(each,) for each in ids]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("user.not_found", ["grant", "nobody@example.com", "1"]),
        ("credits.amount", ["grant", "", "much"]),
        ("credits.amount", ["adjust", "", "-1.00001"]),
        ("credits.insufficient", ["adjust", "", "-0.0001"]),
        ("credits.source_id", ["grant", "", "1", "--reason", " "]),
    ],
)
def test_errors_end_with_1_and_change_nothing(
    stack: Stack, owner: Owner, code: str, words: list[str]
) -> None:
    fails_with(stack, code, "credits", *(word or owner.email for word in words))
    assert stack.query("SELECT 1 FROM credit_entries WHERE user_id = %s", owner.user_id) == []


def test_verify_ends_with_1_and_names_the_account_and_place(books: Stack, holder: int) -> None:
    assert printed(books, "credits", "verify") == []
    falsify_tables(books, "UPDATE credit_entries SET source_id = 'y' WHERE seq = 3")
    done = pressroom(books, "credits", "verify", "--full", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout) == [
        {
            "user_id": holder,
            "seq": 3,
            "fault": "the hash does not fit what it says",
            "order_id": None,
        }
    ]


@pytest.mark.parametrize(
    "change",
    [
        "action = 'adjust'",
        "amount = 2, delta = 2",
        "source_type = 'consume'",
        "source_id = 'y'",
        "order_id = 7",
        "currency = 'USD'",
        "rate_usd_to_credit = 100",
        "meta = '{}'",
        "created_at = created_at + interval '1 microsecond'",
        "hash = sha256('forged')",
        "user_id = user_id + 1",
    ],
)
def test_verify_finds_a_changed_entry(books: Stack, holder: int, change: str) -> None:
    falsify_tables(
        books, f"UPDATE credit_entries SET {change} WHERE user_id = {holder} AND seq = 3"
    )
    assert {place for place, _ in faults(books)} & {3, 4, None}


@pytest.mark.parametrize("seq", [1, 3, 5])
def test_verify_finds_a_deleted_entry(books: Stack, holder: int, seq: int) -> None:
    falsify_tables(books, f"DELETE FROM credit_entries WHERE seq = {seq}")
    found = faults(books)
    if seq < 5:
        assert (seq + 1, "an entry is missing before this one") in found
    assert (None, "entries are missing at the end") in found
    assert (None, "the balance is not the sum of the entries") in found


def test_verify_finds_a_swapped_pair(books: Stack, holder: int) -> None:
    falsify_tables(
        books,
        "UPDATE credit_entries SET seq = seq + 100 WHERE seq IN (2, 3)",
        "UPDATE credit_entries SET seq = 5 - (seq - 100) WHERE seq > 100",
    )
    assert {seq for seq, _ in faults(books)} == {2, 3, 4}


def test_verify_finds_a_forged_chain_that_the_account_does_not_end_in(
    books: Stack, holder: int
) -> None:
    last_but_one = "(SELECT hash FROM credit_entries WHERE seq = 4)"
    falsify_tables(
        books,
        "UPDATE credit_entries SET source_id = 'y' WHERE seq = 5",
        f"UPDATE credit_entries e SET hash = credit_entry_hash({last_but_one}, e) WHERE seq = 5",
    )
    assert faults(books) == [(None, "the account does not end in the last hash")]


def test_verify_finds_a_balance_without_entries_and_entries_without_account(
    books: Stack, holder: int
) -> None:
    other = books.new_owner().user_id
    ledger.read_account(books.resources.database, other)
    assert faults(books) == []
    falsify_tables(books, f"UPDATE credit_accounts SET balance = 1 WHERE user_id = {other}")
    assert (None, "the balance is not the sum of the entries") in faults(books)
    falsify_tables(books, "DELETE FROM credit_accounts")
    assert faults(books) == [(None, "there are entries and no account")]


def order_faults(books: Stack) -> set[tuple[int | None, str]]:
    return {(each.order_id, each.fault) for each in verify_ledger(books, full=True).faults}


def tell(books: Stack, terms: Terms, *news: Evidence) -> None:
    for evidence in news:
        with books.resources.unit_of_work() as uow:
            settle_order(uow, terms.order_id, evidence, OrderVia.WEBHOOK)


def order(books: Stack, user_id: int | None) -> Terms:
    return till.new_order(books, user_id, minor=500, credit_units=5_000_000)


def payment(terms: Terms) -> Evidence:
    return Evidence(
        order_id=terms.order_id,
        session_id=terms.session_id,
        payment_id=terms.payment_id,
        amount_minor=500,
        currency="USD",
        paid=True,
    )


@pytest.fixture
def sold(books: Stack, account: Owner) -> Terms:
    """Paid, spent, and then given back in part: there is a debt."""
    terms = order(books, account.user_id)
    tell(books, terms, payment(terms))
    database = books.resources.database
    caller = Caller(account.user_id, frozenset(), unrestricted=True)
    ledger.consume_credits(
        database, caller, amount=Decimal(450), source_id="x", meta=None, key=None
    )
    tell(books, terms, replace(payment(terms), refunded_minor=200))
    assert books.query("SELECT balance, debt FROM credit_accounts") == [(0, 150)]
    assert order_faults(books) == set()
    return terms


def test_orders_are_listed_and_shown_with_their_history(books: Stack, sold: Terms) -> None:
    anonymous = order(books, None)
    listed = printed(books, "credits", "orders", "list")
    assert [each["order_id"] for each in listed] == [anonymous.order_id, sold.order_id]
    [paid] = printed(books, "credits", "orders", "list", "--status", "paid")
    assert (paid["amount"], paid["currency"], paid["credit_amount"]) == ("5", "USD", "500")
    shown = printed(books, "credits", "orders", "show", str(sold.order_id))
    assert (shown["refunded_amount"], shown["credited"], shown["taken"]) == ("2.00", "500", "200")
    assert [line.split()[1] for line in shown["history"]] == ["created", "pending", "paid"]
    assert shown["payment_id"] == sold.payment_id
    fails_with(books, "order.not_found", "credits", "orders", "show", "12345")


def test_what_is_in_review_is_credited_or_refunded_once(books: Stack, account: Owner) -> None:
    first, second = order(books, account.user_id), order(books, None)
    for terms in (first, second):
        tell(books, terms, replace(payment(terms), amount_minor=499))
    listed = printed(books, "credits", "orders", "list", "--status", "review")
    assert {each["order_id"] for each in listed} == {first.order_id, second.order_id}
    shown = printed(books, "credits", "orders", "show", str(first.order_id))
    assert shown["mismatch"] == "amount: 499 instead of 500"
    review = ("credits", "orders", "review", str(first.order_id))
    fails_with(books, "order.resolution", *review)
    fails_with(books, "order.resolution", *review, "--credit", "--refunded")
    assert printed(books, *review, "--credit")["status"] == "paid"
    fails_with(books, "order.not_in_review", *review, "--refunded")
    assert books.query("SELECT balance FROM credit_accounts") == [(500,)]
    given_back = printed(books, "credits", "orders", "review", str(second.order_id), "--refunded")
    assert given_back["status"] == "refunded"
    assert order_faults(books) == set()


def test_a_reviewed_order_of_nobody_waits_for_its_claim(books: Stack) -> None:
    terms = order(books, None)
    tell(books, terms, replace(payment(terms), currency="EUR"))
    review = ("credits", "orders", "review", str(terms.order_id))
    assert printed(books, *review, "--credit")["status"] == "paid_unclaimed"
    tell(books, terms, replace(payment(terms), refunded_minor=500))
    assert order_faults(books) == set()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("UPDATE credit_accounts SET debt = 0", "the debt does not follow from the entries"),
        ("UPDATE payment_orders SET taken = 0", "what was taken is not what the payer has back"),
        ("UPDATE payment_orders SET credited = 0, taken = 0", "the order was not credited in full"),
        (
            "UPDATE payment_orders SET refunded_minor = 0",
            "what was taken is not what the payer has back",
        ),
        (
            "UPDATE payment_orders SET dispute = 'lost'",
            "the state of the disputes is not what their sums say",
        ),
        (
            "UPDATE payment_orders SET credit_amount = 600, credited = 600",
            "the order was not credited as its entries say",
        ),
        (
            "UPDATE payment_orders SET status = 'pending'",
            "an order that is not paid has a topup entry",
        ),
        (
            "UPDATE payment_orders SET status = 'refunded'",
            "the status is not the last of its history",
        ),
        ("UPDATE payment_orders SET paid_at = NULL", "the order is paid, and no payment is known"),
        ("UPDATE payment_orders SET user_id = NULL", "an order that is not paid has a topup entry"),
        ("UPDATE payment_orders SET user_id = 1", "an entry of the order is somebody else's"),
        ("DELETE FROM payment_orders", "entries name an order that there is not"),
        (
            "DELETE FROM payment_order_changes WHERE to_status = 'pending'",
            "the history of its states has a gap",
        ),
        (
            "UPDATE payment_order_changes SET to_status = 'expired' WHERE to_status = 'pending'",
            "the history of its states has a gap",
        ),
        (
            "UPDATE credit_entries SET order_id = NULL WHERE action = 'topup'",
            "a paid order has no topup entry",
        ),
        ("DELETE FROM credit_entries WHERE action = 'topup'", "a paid order has no topup entry"),
        (
            "UPDATE credit_entries SET amount = 100, delta = 100 WHERE action = 'topup'",
            "the order was not credited as its entries say",
        ),
    ],
)
def test_verify_names_what_was_changed_by_hand(
    books: Stack, sold: Terms, change: str, fault: str
) -> None:
    falsify_tables(books, change)
    found = order_faults(books)
    assert fault in {each for _, each in found}
    named = {order_id for order_id, _ in found if order_id is not None}
    assert named <= {sold.order_id}


def test_verify_ends_with_1_and_names_the_order(books: Stack, sold: Terms, account: Owner) -> None:
    falsify_tables(books, "UPDATE payment_orders SET taken = 100")
    done = pressroom(books, "credits", "verify", "--full", "--json")
    assert done.returncode == 1
    assert {
        "user_id": account.user_id,
        "seq": None,
        "fault": "what was taken is not what the payer has back",
        "order_id": sold.order_id,
    } in json.loads(done.stdout)


def test_a_dispute_is_proven_too(books: Stack, account: Owner) -> None:
    terms = order(books, account.user_id)
    opened = Evidence(payment_id=terms.payment_id, disputes_minor=300)
    tell(books, terms, payment(terms), opened)
    assert order_faults(books) == set()
    tell(books, terms, replace(opened, disputes_ended_minor=300))
    assert order_faults(books) == set()
    actions = [
        action for (action,) in books.query("SELECT action FROM credit_entries ORDER BY seq")
    ]
    assert actions == ["topup", "topup_refund", "adjust"]
    second = replace(opened, disputes_minor=500, disputes_ended_minor=300)
    tell(books, terms, second)
    assert order_faults(books) == set()
    lost = replace(second, disputes_ended_minor=500, disputes_lost_minor=200)
    tell(books, terms, lost)
    assert order_faults(books) == set()
    assert books.query("SELECT balance FROM credit_accounts") == [(300,)]
    falsify_tables(books, "UPDATE payment_orders SET disputes_lost_minor = 0")
    assert {fault for _, fault in order_faults(books)} == {
        "what was taken is not what the payer has back",
        "the state of the disputes is not what their sums say",
    }
