"""The credit ledger of a stack: grants credits, falsifies entries and verifies the ledger."""

from decimal import Decimal

from devstack.harness.stack import Stack
from services.credits import ledger, verify
from services.credits.verify import LedgerReport

LEDGER_TABLES = (
    "open_charges, credit_entries, credit_accounts, credit_checkpoints, payment_orders,"
    " payment_order_changes, payment_events, payment_order_checkpoints"
)


def grant_entries(stack: Stack, user_id: int, count: int) -> None:
    """Add this many entries of one credit each to the user's ledger."""
    for _ in range(count):
        ledger.grant_credits(stack.resources.database, user_id, Decimal(1), source_id="x")


def falsify_tables(stack: Stack, *statements: str) -> None:
    """Run statements without triggers, as only the owner of the database can."""
    stack.query("SET session_replication_role = replica;" + ";".join(statements))


def verify_ledger(stack: Stack, *, full: bool = False) -> LedgerReport:
    return verify.verify_ledger(stack.resources, full=full)
