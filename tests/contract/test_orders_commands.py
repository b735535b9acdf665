"""`pressroom credits orders`, and what `verify` finds when somebody changes money by hand."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal

import pytest

from integrations.payments.port import Evidence
from models import OrderVia
from services.credits import ledger, verify
from services.credits.settlement import settle
from tests.commands import fails_with, pressroom, printed
from tests.faults import till
from tests.faults.till import Terms
from tests.stack import Owner, Stack


@pytest.fixture(scope="module")
def books(make_stack: Callable[[str], Stack]) -> Stack:
    """A database whose orders may be falsified."""
    return make_stack("orderbooks")


@pytest.fixture
def holder(books: Stack) -> Iterator[Owner]:
    yield books.new_owner()
    falsify(
        books,
        "TRUNCATE open_charges, credit_entries, credit_accounts, payment_orders,"
        " payment_order_changes, payment_events, payment_order_checkpoints, credit_checkpoints",
    )


def falsify(books: Stack, *statements: str) -> None:
    """What only somebody with the database's own rights can do: past every trigger."""
    books.query("SET session_replication_role = replica;" + ";".join(statements))


def faults(books: Stack) -> set[tuple[int | None, str]]:
    found = verify.verify(books.resources, full=True).faults
    return {(each.order_id, each.fault) for each in found}


def tell(books: Stack, terms: Terms, *news: Evidence) -> None:
    for evidence in news:
        with books.resources.unit_of_work() as uow:
            settle(uow, terms.order_id, evidence, OrderVia.WEBHOOK)


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
def sold(books: Stack, holder: Owner) -> Terms:
    """Paid, spent, and then given back in part: there is a debt."""
    terms = order(books, holder.user_id)
    tell(books, terms, payment(terms))
    database = books.resources.database
    ledger.consume(
        database, holder.user_id, amount=Decimal(450), source_id="x", meta=None, key=None
    )
    tell(books, terms, replace(payment(terms), refunded_minor=200))
    assert books.query("SELECT balance, debt FROM credit_accounts") == [(0, 150)]
    assert faults(books) == set()
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


def test_what_is_in_review_is_credited_or_refunded_once(books: Stack, holder: Owner) -> None:
    first, second = order(books, holder.user_id), order(books, None)
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
    assert faults(books) == set()


def test_a_reviewed_order_of_nobody_waits_for_its_claim(books: Stack, holder: Owner) -> None:
    assert holder
    terms = order(books, None)
    tell(books, terms, replace(payment(terms), currency="EUR"))
    review = ("credits", "orders", "review", str(terms.order_id))
    assert printed(books, *review, "--credit")["status"] == "paid_unclaimed"
    tell(books, terms, replace(payment(terms), refunded_minor=500))
    assert faults(books) == set()


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
    falsify(books, change)
    found = faults(books)
    assert fault in {each for _, each in found}
    named = {order_id for order_id, _ in found if order_id is not None}
    assert named <= {sold.order_id}


def test_verify_ends_with_1_and_names_the_order(books: Stack, sold: Terms, holder: Owner) -> None:
    falsify(books, "UPDATE payment_orders SET taken = 100")
    done = pressroom(books, "credits", "verify", "--full", "--json")
    assert done.returncode == 1
    assert {
        "user_id": holder.user_id,
        "seq": None,
        "fault": "what was taken is not what the payer has back",
        "order_id": sold.order_id,
    } in json.loads(done.stdout)


def test_a_dispute_is_proven_too(books: Stack, holder: Owner) -> None:
    terms = order(books, holder.user_id)
    opened = Evidence(payment_id=terms.payment_id, disputes_minor=300)
    tell(books, terms, payment(terms), opened)
    assert faults(books) == set()
    tell(books, terms, replace(opened, disputes_ended_minor=300))
    assert faults(books) == set()
    actions = [
        action for (action,) in books.query("SELECT action FROM credit_entries ORDER BY seq")
    ]
    assert actions == ["topup", "topup_refund", "adjust"]
    second = replace(opened, disputes_minor=500, disputes_ended_minor=300)
    tell(books, terms, second)
    assert faults(books) == set()
    lost = replace(second, disputes_ended_minor=500, disputes_lost_minor=200)
    tell(books, terms, lost)
    assert faults(books) == set()
    assert books.query("SELECT balance FROM credit_accounts") == [(300,)]
    falsify(books, "UPDATE payment_orders SET disputes_lost_minor = 0")
    assert {fault for _, fault in faults(books)} == {
        "what was taken is not what the payer has back",
        "the state of the disputes is not what their sums say",
    }
