"""Helpers that grant credits to a user, falsify the credit ledger, and verify the ledger."""

from decimal import Decimal

from core.ids import AccountId
from devstack.harness.stack import Stack
from services.credits import ledger, verify
from services.credits.verify import LedgerReport

LEDGER_TABLES = (
    "open_charges, credit_entries, credit_accounts, credit_checkpoints, payment_orders,"
    " payment_order_changes, payment_events, payment_order_checkpoints"
)


def grant_entries(stack: Stack, user_id: int, count: int) -> None:
    for _ in range(count):
        ledger.grant_credits(
            stack.resources.database, AccountId(user_id), Decimal(1), source_id="x"
        )


def falsify_tables(stack: Stack, *statements: str) -> None:
    """Run SQL statements with all triggers disabled, because triggers protect the credit ledger."""
    stack.query("SET session_replication_role = replica;" + ";".join(statements))


def verify_ledger(stack: Stack, *, full: bool = False) -> LedgerReport:
    return verify.verify_ledger(stack.resources, full=full)
