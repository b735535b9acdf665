"""Tests of `pressroom credits`, with which operators grant, adjust and verify credits."""

import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal

import pytest

from core.ids import AccountId, PersonId
from devstack.harness.stack import Owner, Stack
from integrations.payments.port import Evidence
from services.access.caller import Caller
from services.credits import ledger
from tests.support.commands.running import pressroom, require_command_error, run_json_command
from tests.support.credits.ledger import (
    LEDGER_TABLES,
    falsify_tables,
    grant_entries,
    verify_ledger,
)
from tests.support.credits.settled_orders import build_payment_evidence, new_order, settle
from tests.support.credits.stripe_events import OrderTerms


@pytest.fixture
def ledger_stack(empty_stack: Stack) -> Iterator[Stack]:
    """A test stack whose credit ledger and orders are deleted after every test."""
    yield empty_stack
    falsify_tables(empty_stack, f"TRUNCATE {LEDGER_TABLES}")


@pytest.fixture
def user_without_entries(ledger_stack: Stack) -> Owner:
    """A new user who has no entries in the credit ledger."""
    return ledger_stack.create_owner()


@pytest.fixture
def id_of_user_with_entries(ledger_stack: Stack, user_without_entries: Owner) -> int:
    """The id of a user who has five entries in the credit ledger."""
    grant_entries(ledger_stack, user_without_entries.user_id, 5)
    return user_without_entries.user_id


def list_faults(ledger_stack: Stack) -> list[tuple[int | None, str]]:
    return [(each.seq, each.fault) for each in verify_ledger(ledger_stack, full=True).faults]


def test_cli_grants_and_adjusts_and_verifies_credits(
    ledger_stack: Stack, user_without_entries: Owner
) -> None:
    granted = run_json_command(
        ledger_stack, "credits", "grant", user_without_entries.email, "12.5", "--reason", "welcome"
    )
    expected = {
        "user_id": user_without_entries.user_id,
        "seq": 1,
        "action": "grant",
        "amount_credit": 12.5,
        "delta_credit": 12.5,
        "balance_after": 12.5,
        "source_type": "operator",
        "source_id": "welcome",
    }
    assert {name: granted[name] for name in expected} == expected
    debit = run_json_command(
        ledger_stack, "credits", "adjust", user_without_entries.email, "-2.0001"
    )
    assert (debit["action"], debit["source_id"], debit["seq"]) == ("adjust", "adjust", 2)
    assert (debit["amount_credit"], debit["delta_credit"]) == (2.0001, -2.0001)
    credit = run_json_command(
        ledger_stack, "credits", "adjust", user_without_entries.email, "0.0001", "--reason", "again"
    )
    assert (credit["delta_credit"], credit["balance_after"]) == (0.0001, 10.5)
    assert run_json_command(ledger_stack, "credits", "verify") == []
    verification = pressroom(ledger_stack, "credits", "verify")
    assert verification.returncode == 0
    progress_line, result_line = verification.stdout.splitlines()
    assert progress_line.startswith("Checked 0 entries of ")
    assert result_line == "All balances, debts, hashes and orders are correct."
    assert " and all orders." in pressroom(ledger_stack, "credits", "verify", "--full").stdout
    select_entry_ids = "SELECT id FROM credit_entries WHERE user_id = %s ORDER BY seq DESC"
    entry_ids = [each["id"] for each in (credit, debit, granted)]
    assert ledger_stack.query(select_entry_ids, user_without_entries.user_id) == [
        (each,) for each in entry_ids
    ]


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        ("user.not_found", ["grant", "nobody@example.com", "1"]),
        ("credits.amount", ["grant", "", "much"]),
        ("credits.amount", ["adjust", "", "-1.00001"]),
        ("credits.insufficient", ["adjust", "", "-0.0001"]),
        ("credits.source_id", ["grant", "", "1", "--reason", " "]),
    ],
)
def test_cli_credits_command_with_an_error_exits_with_1_and_changes_nothing(
    stack: Stack, owner: Owner, code: str, arguments: list[str]
) -> None:
    require_command_error(
        stack, code, "credits", *(argument or owner.email for argument in arguments)
    )
    assert stack.query("SELECT 1 FROM credit_entries WHERE user_id = %s", owner.user_id) == []


def test_ledger_verification_exits_with_1_and_names_account_and_entry(
    ledger_stack: Stack, id_of_user_with_entries: int
) -> None:
    assert run_json_command(ledger_stack, "credits", "verify") == []
    falsify_tables(ledger_stack, "UPDATE credit_entries SET source_id = 'y' WHERE seq = 3")
    process = pressroom(ledger_stack, "credits", "verify", "--full", "--json")
    assert process.returncode == 1
    assert json.loads(process.stdout) == [
        {
            "user_id": id_of_user_with_entries,
            "seq": 3,
            "fault": "the hash does not match the entry",
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
def test_ledger_verification_detects_a_changed_entry(
    ledger_stack: Stack, id_of_user_with_entries: int, change: str
) -> None:
    falsify_tables(
        ledger_stack,
        f"UPDATE credit_entries SET {change} WHERE user_id = {id_of_user_with_entries} AND seq = 3",
    )
    assert {seq for seq, _ in list_faults(ledger_stack)} & {3, 4, None}


@pytest.mark.parametrize("seq", [1, 3, 5])
def test_ledger_verification_detects_a_deleted_entry(
    ledger_stack: Stack, id_of_user_with_entries: int, seq: int
) -> None:
    falsify_tables(ledger_stack, f"DELETE FROM credit_entries WHERE seq = {seq}")
    ledger_faults = list_faults(ledger_stack)
    if seq < 5:
        assert (seq + 1, "the previous entry is missing") in ledger_faults
    assert (None, "the last entries are missing") in ledger_faults
    assert (None, "the balance does not match the sum of the entries") in ledger_faults


def test_ledger_verification_detects_swapped_entries(
    ledger_stack: Stack, id_of_user_with_entries: int
) -> None:
    falsify_tables(
        ledger_stack,
        "UPDATE credit_entries SET seq = seq + 100 WHERE seq IN (2, 3)",
        "UPDATE credit_entries SET seq = 5 - (seq - 100) WHERE seq > 100",
    )
    assert {seq for seq, _ in list_faults(ledger_stack)} == {2, 3, 4}


def test_ledger_verification_detects_a_forged_chain_that_differs_from_the_account_hash(
    ledger_stack: Stack, id_of_user_with_entries: int
) -> None:
    previous_hash = "(SELECT hash FROM credit_entries WHERE seq = 4)"
    falsify_tables(
        ledger_stack,
        "UPDATE credit_entries SET source_id = 'y' WHERE seq = 5",
        f"UPDATE credit_entries e SET hash = credit_entry_hash({previous_hash}, e) WHERE seq = 5",
    )
    assert list_faults(ledger_stack) == [
        (None, "the account does not match the hash of the last entry")
    ]


def test_ledger_verification_detects_a_balance_without_entries_or_a_missing_account(
    ledger_stack: Stack, id_of_user_with_entries: int
) -> None:
    other_user_id = ledger_stack.create_owner().user_id
    ledger.read_account(ledger_stack.resources.database, AccountId(other_user_id))
    assert list_faults(ledger_stack) == []
    falsify_tables(
        ledger_stack, f"UPDATE credit_accounts SET balance = 1 WHERE user_id = {other_user_id}"
    )
    assert (None, "the balance does not match the sum of the entries") in list_faults(ledger_stack)
    falsify_tables(ledger_stack, "DELETE FROM credit_accounts")
    assert list_faults(ledger_stack) == [(None, "the entries have no account")]


def list_order_faults(ledger_stack: Stack) -> set[tuple[int | None, str]]:
    return {(each.order_id, each.fault) for each in verify_ledger(ledger_stack, full=True).faults}


@pytest.fixture
def refunded_order(ledger_stack: Stack, user_without_entries: Owner) -> OrderTerms:
    """An order that was partly refunded after the buyer had spent most of its credits."""
    terms = new_order(ledger_stack, user_without_entries.user_id)
    settle(ledger_stack, terms, build_payment_evidence(terms))
    database = ledger_stack.resources.database
    caller = Caller(
        AccountId(user_without_entries.user_id),
        PersonId(user_without_entries.user_id),
        frozenset(),
        unrestricted=True,
    )
    ledger.consume_credits(
        database, caller, amount=Decimal(450), source_id="x", meta=None, key=None
    )
    settle(ledger_stack, terms, replace(build_payment_evidence(terms), refunded_minor=200))
    assert ledger_stack.query("SELECT balance, debt FROM credit_accounts") == [(0, 150)]
    assert list_order_faults(ledger_stack) == set()
    return terms


def test_cli_lists_orders_and_shows_an_order_with_its_history(
    ledger_stack: Stack, refunded_order: OrderTerms
) -> None:
    anonymous_order = new_order(ledger_stack, None)
    orders = run_json_command(ledger_stack, "credits", "orders", "list")
    order_ids = [each["order_id"] for each in orders]
    assert order_ids == [anonymous_order.order_id, refunded_order.order_id]
    [order] = run_json_command(ledger_stack, "credits", "orders", "list", "--status", "paid")
    assert (order["amount"], order["currency"], order["credit_amount"]) == ("5", "USD", "500")
    order = run_json_command(
        ledger_stack, "credits", "orders", "show", str(refunded_order.order_id)
    )
    assert (order["refunded_amount"], order["credited"], order["taken"]) == ("2.00", "500", "200")
    assert [line.split()[1] for line in order["history"]] == ["created", "pending", "paid"]
    assert order["payment_id"] == refunded_order.payment_id
    require_command_error(ledger_stack, "order.not_found", "credits", "orders", "show", "12345")


def test_cli_credits_or_refunds_an_order_in_review_only_once(
    ledger_stack: Stack, user_without_entries: Owner
) -> None:
    first_order = new_order(ledger_stack, user_without_entries.user_id)
    second_order = new_order(ledger_stack, None)
    for terms in (first_order, second_order):
        settle(ledger_stack, terms, replace(build_payment_evidence(terms), amount_minor=499))
    reviewed_orders = run_json_command(
        ledger_stack, "credits", "orders", "list", "--status", "review"
    )
    reviewed_ids = {each["order_id"] for each in reviewed_orders}
    assert reviewed_ids == {first_order.order_id, second_order.order_id}
    order = run_json_command(ledger_stack, "credits", "orders", "show", str(first_order.order_id))
    assert order["mismatch"] == "amount is 4.99 USD instead of 5.00 USD"
    review = ("credits", "orders", "review", str(first_order.order_id))
    require_command_error(ledger_stack, "order.resolution", *review)
    require_command_error(ledger_stack, "order.resolution", *review, "--credit", "--refunded")
    assert run_json_command(ledger_stack, *review, "--credit")["status"] == "paid"
    require_command_error(ledger_stack, "order.not_in_review", *review, "--refunded")
    assert ledger_stack.query("SELECT balance FROM credit_accounts") == [(500,)]
    refund = run_json_command(
        ledger_stack, "credits", "orders", "review", str(second_order.order_id), "--refunded"
    )
    assert refund["status"] == "refunded"
    assert list_order_faults(ledger_stack) == set()


def test_reviewed_anonymous_order_waits_for_its_claim_and_can_be_refunded(
    ledger_stack: Stack,
) -> None:
    terms = new_order(ledger_stack, None)
    settle(ledger_stack, terms, replace(build_payment_evidence(terms), currency="EUR"))
    review = ("credits", "orders", "review", str(terms.order_id))
    assert run_json_command(ledger_stack, *review, "--credit")["status"] == "paid_unclaimed"
    settle(ledger_stack, terms, replace(build_payment_evidence(terms), refunded_minor=500))
    assert list_order_faults(ledger_stack) == set()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("UPDATE credit_accounts SET debt = 0", "the debt does not match the entries"),
        ("UPDATE payment_orders SET taken = 0", "the reclaimed amount does not match the refund"),
        ("UPDATE payment_orders SET credited = 0, taken = 0", "the order was not fully credited"),
        (
            "UPDATE payment_orders SET refunded_minor = 0",
            "the reclaimed amount does not match the refund",
        ),
        (
            "UPDATE payment_orders SET dispute = 'lost'",
            "the dispute state does not match the disputed amounts",
        ),
        (
            "UPDATE payment_orders SET credit_amount = 600, credited = 600",
            "the credited amount does not match the entries",
        ),
        (
            "UPDATE payment_orders SET status = 'pending'",
            "an unpaid order has a topup entry",
        ),
        (
            "UPDATE payment_orders SET status = 'refunded'",
            "the status does not match the last change",
        ),
        ("UPDATE payment_orders SET paid_at = NULL", "the order is paid but has no payment time"),
        ("UPDATE payment_orders SET user_id = NULL", "an unpaid order has a topup entry"),
        ("UPDATE payment_orders SET user_id = 1", "an entry of the order belongs to another user"),
        ("DELETE FROM payment_orders", "the order of the entries does not exist"),
        (
            "DELETE FROM payment_order_changes WHERE to_status = 'pending'",
            "the status history has a gap",
        ),
        (
            "UPDATE payment_order_changes SET to_status = 'expired' WHERE to_status = 'pending'",
            "the status history has a gap",
        ),
        (
            "UPDATE credit_entries SET order_id = NULL WHERE action = 'topup'",
            "a paid order has no topup entry",
        ),
        ("DELETE FROM credit_entries WHERE action = 'topup'", "a paid order has no topup entry"),
        (
            "UPDATE credit_entries SET amount = 100, delta = 100 WHERE action = 'topup'",
            "the credited amount does not match the entries",
        ),
    ],
)
def test_ledger_verification_names_every_manual_change_to_orders_and_entries(
    ledger_stack: Stack, refunded_order: OrderTerms, change: str, fault: str
) -> None:
    falsify_tables(ledger_stack, change)
    ledger_faults = list_order_faults(ledger_stack)
    assert fault in {each for _, each in ledger_faults}
    order_ids = {order_id for order_id, _ in ledger_faults if order_id is not None}
    assert order_ids <= {refunded_order.order_id}


def test_ledger_verification_exits_with_1_and_names_the_order(
    ledger_stack: Stack, refunded_order: OrderTerms, user_without_entries: Owner
) -> None:
    falsify_tables(ledger_stack, "UPDATE payment_orders SET taken = 100")
    process = pressroom(ledger_stack, "credits", "verify", "--full", "--json")
    assert process.returncode == 1
    assert {
        "user_id": user_without_entries.user_id,
        "seq": None,
        "fault": "the reclaimed amount does not match the refund",
        "order_id": refunded_order.order_id,
    } in json.loads(process.stdout)


def test_ledger_verification_covers_disputed_orders(
    ledger_stack: Stack, user_without_entries: Owner
) -> None:
    terms = new_order(ledger_stack, user_without_entries.user_id)
    first_dispute = Evidence(payment_id=terms.payment_id, disputes_minor=300)
    settle(ledger_stack, terms, build_payment_evidence(terms), first_dispute)
    assert list_order_faults(ledger_stack) == set()
    settle(ledger_stack, terms, replace(first_dispute, disputes_ended_minor=300))
    assert list_order_faults(ledger_stack) == set()
    actions = [
        action for (action,) in ledger_stack.query("SELECT action FROM credit_entries ORDER BY seq")
    ]
    assert actions == ["topup", "topup_refund", "adjust"]
    second_dispute = replace(first_dispute, disputes_minor=500, disputes_ended_minor=300)
    settle(ledger_stack, terms, second_dispute)
    assert list_order_faults(ledger_stack) == set()
    lost_dispute = replace(second_dispute, disputes_ended_minor=500, disputes_lost_minor=200)
    settle(ledger_stack, terms, lost_dispute)
    assert list_order_faults(ledger_stack) == set()
    assert ledger_stack.query("SELECT balance FROM credit_accounts") == [(300,)]
    falsify_tables(ledger_stack, "UPDATE payment_orders SET disputes_lost_minor = 0")
    assert {fault for _, fault in list_order_faults(ledger_stack)} == {
        "the reclaimed amount does not match the refund",
        "the dispute state does not match the disputed amounts",
    }
