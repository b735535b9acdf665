"""Tests of the checkpoints at which the next verification of credits and orders begins."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from pydantic import SecretStr

from core.settings import Settings
from devstack.harness.stack import Stack
from integrations.payments.port import Evidence
from models import OrderVia
from services.credits import verify
from services.credits.settlement import settle_order
from services.credits.verify import LedgerReport
from storage.resources import Resources
from tests.support.credits import stripe_events
from tests.support.credits.ledger import LEDGER_TABLES, falsify_tables, grant_entries, verify_ledger
from tests.support.stack.load import repeating


@pytest.fixture
def falsifiable_stack(empty_stack: Stack) -> Iterator[Stack]:
    """A stack whose credit ledger is emptied after each test, because tests falsify the ledger."""
    yield empty_stack
    falsify_tables(empty_stack, f"TRUNCATE {LEDGER_TABLES}")


@pytest.fixture
def verified_user_id(falsifiable_stack: Stack) -> int:
    """The id of a user who has five verified entries in the credit ledger."""
    user_id = falsifiable_stack.create_owner().user_id
    grant_entries(falsifiable_stack, user_id, 5)
    assert verify_ledger(falsifiable_stack).faults == []
    return user_id


def find_faults(falsifiable_stack: Stack, *, full: bool = False) -> list[tuple[int | None, str]]:
    return [(each.seq, each.fault) for each in verify_ledger(falsifiable_stack, full=full).faults]


def summarise_report(report: LedgerReport) -> tuple[int, int, int]:
    return report.accounts, report.resumed, report.entries


def test_credit_ledger_verification_reads_only_entries_since_the_last_checkpoint(
    falsifiable_stack: Stack, verified_user_id: int
) -> None:
    assert summarise_report(verify_ledger(falsifiable_stack)) == (1, 1, 0)
    grant_entries(falsifiable_stack, verified_user_id, 2)
    other_user_id = falsifiable_stack.create_owner().user_id
    grant_entries(falsifiable_stack, other_user_id, 3)
    assert summarise_report(verify_ledger(falsifiable_stack)) == (2, 1, 5)
    assert summarise_report(verify_ledger(falsifiable_stack)) == (2, 2, 0)
    assert summarise_report(verify_ledger(falsifiable_stack, full=True)) == (2, 0, 10)


def test_ledger_fault_after_a_checkpoint_is_reported_by_every_verification(
    falsifiable_stack: Stack, verified_user_id: int
) -> None:
    grant_entries(falsifiable_stack, verified_user_id, 2)
    falsify_tables(falsifiable_stack, "UPDATE credit_entries SET source_id = 'y' WHERE seq = 7")
    for _ in range(2):
        assert find_faults(falsifiable_stack) == [(7, "the hash does not match the entry")]


@pytest.mark.parametrize(
    "change", ["balance = balance + 1", "debt = 1", "last_seq = 6", "last_hash = sha256('x')"]
)
def test_account_changed_without_a_ledger_entry_is_reported(
    falsifiable_stack: Stack, verified_user_id: int, change: str
) -> None:
    falsify_tables(falsifiable_stack, f"UPDATE credit_accounts SET {change}")
    assert find_faults(falsifiable_stack)


def test_change_before_a_ledger_checkpoint_is_reported_by_full_and_later_verifications(
    falsifiable_stack: Stack, verified_user_id: int
) -> None:
    falsify_tables(falsifiable_stack, "UPDATE credit_entries SET source_id = 'y' WHERE seq = 3")
    assert find_faults(falsifiable_stack) == []
    expected = [(3, "the hash does not match the entry")]
    assert find_faults(falsifiable_stack, full=True) == expected
    assert find_faults(falsifiable_stack) == expected


def test_truncated_ledger_is_detected_by_its_checkpoint(
    falsifiable_stack: Stack, verified_user_id: int
) -> None:
    grant_entries(falsifiable_stack, verified_user_id, 2)
    assert verify_ledger(falsifiable_stack).faults == []
    falsify_tables(
        falsifiable_stack,
        "DELETE FROM credit_entries WHERE seq > 4",
        "UPDATE credit_accounts SET balance = 4, last_seq = 4,"
        " last_hash = (SELECT hash FROM credit_entries WHERE seq = 4)",
    )
    expected = [(None, "the entry at the checkpoint was changed")]
    assert find_faults(falsifiable_stack, full=True) == expected
    assert find_faults(falsifiable_stack) == expected
    # Without the checkpoint, the verification can't detect that ledger entries were deleted,
    # because the remaining entries are consistent.
    falsify_tables(falsifiable_stack, "TRUNCATE credit_checkpoints")
    assert find_faults(falsifiable_stack) == []


def test_rewritten_hash_chain_is_detected_by_its_checkpoint(
    falsifiable_stack: Stack, verified_user_id: int
) -> None:
    previous_hash = "(SELECT hash FROM credit_entries WHERE seq = 4)"
    falsify_tables(
        falsifiable_stack,
        "UPDATE credit_entries SET source_id = 'y' WHERE seq = 5",
        f"UPDATE credit_entries e SET hash = credit_entry_hash({previous_hash}, e) WHERE seq = 5",
        "UPDATE credit_accounts SET last_hash = (SELECT hash FROM credit_entries WHERE seq = 5)",
    )
    assert (None, "the entry at the checkpoint was changed") in find_faults(falsifiable_stack)


@pytest.mark.parametrize(
    "assignment",
    [
        "seq = 6",
        "hash = sha256('x')",
        "balance = balance + 1",
        "debt = debt + 1",
        "user_id = {other}",
        "signature = signature || 'x'",
    ],
)
def test_forged_ledger_checkpoint_hides_no_fault(
    falsifiable_stack: Stack, verified_user_id: int, assignment: str
) -> None:
    other_user_id = falsifiable_stack.create_owner().user_id
    grant_entries(falsifiable_stack, other_user_id, 1)
    falsify_tables(
        falsifiable_stack,
        f"UPDATE credit_checkpoints SET {assignment.format(other=other_user_id)}",
        "UPDATE credit_entries SET source_id = 'y' WHERE seq = 3",
    )
    for _ in range(2):
        assert (3, "the hash does not match the entry") in find_faults(falsifiable_stack)


def test_restored_old_checkpoint_only_makes_ledger_verification_read_more(
    falsifiable_stack: Stack, verified_user_id: int
) -> None:
    [old_checkpoint] = falsifiable_stack.query(
        "SELECT seq, hash, balance, signature FROM credit_checkpoints"
    )
    grant_entries(falsifiable_stack, verified_user_id, 3)
    assert summarise_report(verify_ledger(falsifiable_stack)) == (1, 1, 3)
    falsifiable_stack.query(
        "UPDATE credit_checkpoints SET seq = %s, hash = %s, balance = %s, signature = %s",
        *old_checkpoint,
    )
    assert summarise_report(verify_ledger(falsifiable_stack)) == (1, 1, 3)


def build_resources_with_keys(falsifiable_stack: Stack, keys: str) -> Resources:
    values = {**dict(falsifiable_stack.settings()), "secret_keys": SecretStr(keys)}
    return replace(falsifiable_stack.resources, settings=Settings.model_construct(**values))


def test_ledger_checkpoint_is_ignored_once_its_signing_key_is_removed(
    falsifiable_stack: Stack, verified_user_id: int
) -> None:
    key = f"next:{'n' * 43}"
    rotated_resources = build_resources_with_keys(
        falsifiable_stack, f"{key},{falsifiable_stack.environment['PRESSROOM_SECRET_KEYS']}"
    )
    assert summarise_report(verify.verify_ledger(rotated_resources, full=False)) == (1, 1, 0)
    resources_without_key = build_resources_with_keys(falsifiable_stack, key)
    report = verify.verify_ledger(resources_without_key, full=False)
    assert (report.faults, summarise_report(report)) == ([], (1, 0, 5))
    # The first verification without the old key stored a checkpoint that is signed with the new
    # key. A second verification starts at this checkpoint, so it reads no ledger entry.
    assert summarise_report(verify.verify_ledger(resources_without_key, full=False)) == (1, 1, 0)


def test_credits_can_be_charged_during_ledger_verification(
    falsifiable_stack: Stack, verified_user_id: int
) -> None:
    with repeating(*[lambda: grant_entries(falsifiable_stack, verified_user_id, 1)] * 3):
        reports = [verify_ledger(falsifiable_stack) for _ in range(20)]
    assert [report.faults for report in reports] == [[]] * 20
    assert any(report.entries for report in reports)
    last = verify_ledger(falsifiable_stack)
    [(entries,)] = falsifiable_stack.query("SELECT count(*) FROM credit_entries")
    assert last.faults == []
    assert 5 + sum(report.entries for report in [*reports, last]) == entries


def create_paid_order(falsifiable_stack: Stack) -> int:
    terms = stripe_events.new_order(
        falsifiable_stack,
        falsifiable_stack.create_owner().user_id,
        minor=500,
        credit_units=5_000_000,
    )
    evidence = Evidence(order_id=terms.order_id, amount_minor=500, currency="USD", paid=True)
    with falsifiable_stack.resources.unit_of_work() as uow:
        settle_order(uow, terms.order_id, evidence, OrderVia.WEBHOOK)
    return terms.order_id


def age_changes(falsifiable_stack: Stack) -> None:
    falsify_tables(
        falsifiable_stack,
        "UPDATE payment_order_changes SET created_at = created_at - interval '2 hours'",
    )


def test_verified_payment_orders_older_than_an_hour_are_skipped_until_a_full_check(
    falsifiable_stack: Stack,
) -> None:
    old_order_id = create_paid_order(falsifiable_stack)
    age_changes(falsifiable_stack)
    create_paid_order(falsifiable_stack)
    assert verify_ledger(falsifiable_stack).orders is None
    # The second verification skips the order whose last change is two hours old, and verifies the
    # order that was just paid.
    assert verify_ledger(falsifiable_stack).orders == 1
    falsify_tables(
        falsifiable_stack, f"UPDATE payment_orders SET credited = 0 WHERE id = {old_order_id}"
    )
    assert verify_ledger(falsifiable_stack).faults == []
    assert {each.order_id for each in verify_ledger(falsifiable_stack, full=True).faults} == {
        old_order_id
    }
    assert {each.order_id for each in verify_ledger(falsifiable_stack).faults} == {old_order_id}


def test_old_payment_order_with_a_new_credit_entry_is_verified_again(
    falsifiable_stack: Stack,
) -> None:
    old_order_id = create_paid_order(falsifiable_stack)
    age_changes(falsifiable_stack)
    create_paid_order(falsifiable_stack)
    verify_ledger(falsifiable_stack)
    query = "SELECT credit_take(user_id, 1, 'refund', id, 100, 'USD') IS NULL FROM payment_orders"
    falsifiable_stack.query(f"{query} WHERE id = %s", old_order_id)
    assert {each.order_id for each in verify_ledger(falsifiable_stack).faults} == {old_order_id}


def test_new_payment_order_with_wrong_credited_amount_is_reported(falsifiable_stack: Stack) -> None:
    create_paid_order(falsifiable_stack)
    age_changes(falsifiable_stack)
    new_order_id = create_paid_order(falsifiable_stack)
    verify_ledger(falsifiable_stack)
    falsify_tables(
        falsifiable_stack, f"UPDATE payment_orders SET credited = 0 WHERE id = {new_order_id}"
    )
    assert {each.order_id for each in verify_ledger(falsifiable_stack).faults} == {new_order_id}


def test_forged_payment_order_checkpoint_hides_no_fault(falsifiable_stack: Stack) -> None:
    old_order_id = create_paid_order(falsifiable_stack)
    age_changes(falsifiable_stack)
    create_paid_order(falsifiable_stack)
    verify_ledger(falsifiable_stack)
    falsify_tables(
        falsifiable_stack,
        "UPDATE payment_order_checkpoints SET change_id = change_id + 1000",
        f"UPDATE payment_orders SET credited = 0 WHERE id = {old_order_id}",
    )
    report = verify_ledger(falsifiable_stack)
    assert report.orders is None
    assert old_order_id in {each.order_id for each in report.faults}
