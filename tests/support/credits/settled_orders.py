"""Orders of credits that a test settles without asking a payment provider."""

from devstack.harness.stack import Stack
from integrations.payments.port import Evidence
from models import OrderVia
from services.credits.settlement import settle_order
from tests.support.credits import stripe_events
from tests.support.credits.stripe_events import OrderTerms


def new_order(stack: Stack, user_id: int | None) -> OrderTerms:
    """Create a payment order for 500 credits that cost 5 dollars."""
    return stripe_events.new_order(stack, user_id, minor=500, credit_units=5_000_000)


def build_payment_evidence(terms: OrderTerms) -> Evidence:
    """Return evidence that the customer paid the order in full."""
    return Evidence(
        order_id=terms.order_id,
        session_id=terms.session_id,
        payment_id=terms.payment_id,
        amount_minor=500,
        currency="USD",
        paid=True,
    )


def settle(stack: Stack, terms: OrderTerms, *evidence: Evidence) -> None:
    for each in evidence:
        with stack.resources.unit_of_work() as uow:
            settle_order(uow, terms.order_id, each, OrderVia.WEBHOOK)
