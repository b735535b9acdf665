"""A ledger with entries that a test falsifies, and its verification."""

from decimal import Decimal

from devstack.harness.stack import Stack
from services.credits import ledger, verify
from services.credits.verify import LedgerReport

TABLES = (
    "open_charges, credit_entries, credit_accounts, credit_checkpoints, payment_orders,"
    " payment_order_changes, payment_events, payment_order_checkpoints"
)


def give(stack: Stack, user_id: int, times: int) -> None:
    """Grant one credit to a user, `times` times."""
    for _ in range(times):
        ledger.grant_credits(stack.resources.database, user_id, Decimal(1), source_id="x")


def falsify(stack: Stack, *statements: str) -> None:
    """Run statements that no trigger checks. Only the owner of the database can do this."""
    stack.query("SET session_replication_role = replica;" + ";".join(statements))


def check(stack: Stack, *, full: bool = False) -> LedgerReport:
    return verify.verify_ledger(stack.resources, full=full)
