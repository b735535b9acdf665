"""Faults of the credit ledger and of payments, with the alert that each fault must trigger."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from tests.support.alerts.trouble import Trouble
from tests.support.alerts.watched_site import Site
from tests.support.commands.running import run_json_command
from tests.support.credits import topups
from tests.support.credits.credits import grant
from tests.support.credits.payments import SandboxPayments
from tests.support.stack.maintenance import run_maintenance

# Changes a balance without firing database triggers. Only a superuser of Postgres can set
# ``session_replication_role``.
_CHANGE_BALANCE = (
    "SET session_replication_role = replica;"
    " UPDATE credit_accounts SET balance = balance + %s WHERE user_id = %s"
)


@contextmanager
def _balance_falsified(site: Site) -> Iterator[None]:
    grant(site.stack, site.owner.user_id, "10")
    site.stack.query(_CHANGE_BALANCE, 1, site.owner.user_id)
    try:
        run_maintenance(site.stack, "credits.verify")
        yield
    finally:
        site.stack.query(_CHANGE_BALANCE, -1, site.owner.user_id)
        run_maintenance(site.stack, "credits.verify")


@contextmanager
def _wrong_amount_paid(site: Site) -> Iterator[None]:
    """Pay a wrong amount for an order. When the block ends, an operator credits the order."""
    with site.client() as client, closing(SandboxPayments(site.stack.sandbox_url)) as payments:
        order_id = topups.create_order(client)["order_id"]
        payments.alter(order_id, amount=499)
        payments.pay(order_id)
        yield
    run_json_command(site.stack, "credits", "orders", "review", str(order_id), "--credit")


MONEY_TROUBLES = (
    Trouble("balance falsified", _balance_falsified, "PressroomLedgerFaults"),
    Trouble("wrong amount paid", _wrong_amount_paid, "PressroomOrdersInReview"),
)
