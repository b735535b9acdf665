"""Reads Stripe's objects as evidence about a payment.

Sources: docs.stripe.com/api and docs.stripe.com/payments/checkout/fulfill-orders. Objects come from
answers and from webhooks, whose API version is that of the endpoint; what is read here has been the
same in every version since 2022.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from integrations.payments.port import DisputeStatus, Evidence

# Other shops may use the same account at Stripe, and number their orders as we do.
APPLICATION = "pressroom"

Fields = Mapping[str, Any]

# A bank's mere inquiry (warning_…) takes no money, nor does what was settled before it became one.
_DISPUTES = {
    "needs_response": DisputeStatus.OPEN,
    "under_review": DisputeStatus.OPEN,
    "won": DisputeStatus.WON,
    "lost": DisputeStatus.LOST,
}

# The money of a refund in one of these stays with us. Any other one may be on its way to the payer.
_FAILED_REFUNDS = {"failed", "canceled"}


def order_metadata(order_id: int) -> dict[str, str]:
    """The metadata by which an order's objects are known again."""
    return {"application": APPLICATION, "order_id": str(order_id)}


def order_of(fields: Fields) -> int | None:
    metadata = fields.get("metadata") or {}
    number = metadata.get("order_id") or ""
    if metadata.get("application") != APPLICATION or not number.isascii() or not number.isdigit():
        return None
    return int(number)


def session_evidence(session: Fields, *, failed: bool = False) -> Evidence | None:
    """A checkout by itself: paid, expired or neither. None for one that isn't ours."""
    if (order_id := order_of(session)) is None:
        return None
    return Evidence(
        order_id=order_id,
        session_id=session["id"],
        payment_id=identifier(session.get("payment_intent")),
        amount_minor=session.get("amount_total"),
        currency=_currency(session),
        paid=session.get("payment_status") == "paid",
        failed=failed,
        # A session with a payment under way is complete; an expired one has none, and gets none.
        expired=session.get("status") == "expired",
        closed=session.get("status") == "expired",
    )


def has_fallen_through(session: Fields) -> bool:
    """Whether a payment that was promised won't come; a declined card alone ends no checkout."""
    match session:
        case {
            "status": "complete",
            "payment_status": "unpaid",
            "payment_intent": {"status": "requires_payment_method" | "canceled"},
        }:
            return True
    return False


def charge_evidence(charge: Fields) -> Evidence | None:
    """Money that came, and what of it went back. None for a charge that isn't ours."""
    order_id = order_of(charge)
    if order_id is None or charge.get("status") != "succeeded":
        return None
    return Evidence(
        order_id=order_id,
        payment_id=identifier(charge.get("payment_intent")),
        amount_minor=charge.get("amount"),
        currency=_currency(charge),
        paid=True,
        refunded_minor=charge.get("amount_refunded") or None,
    )


def failed_refund_evidence(refund: Fields) -> Evidence | None:
    """A refund that failed or was cancelled, by itself. It names the payment alone."""
    payment_id = identifier(refund.get("payment_intent"))
    if refund.get("status") not in _FAILED_REFUNDS or payment_id is None:
        return None
    return Evidence(payment_id=payment_id, refunds_failed_minor=refund["amount"])


def refunds_evidence(payment_id: str, refunds: Iterable[Fields]) -> Evidence:
    """All refunds of a payment together."""
    total = failed = 0
    for refund in refunds:
        total += refund["amount"]
        failed += refund["amount"] if refund["status"] in _FAILED_REFUNDS else 0
    return Evidence(payment_id=payment_id, refunded_minor=total, refunds_failed_minor=failed)


def dispute_evidence(dispute: Fields) -> Evidence | None:
    """A dispute by itself. It names the payment, and not the amount paid."""
    payment_id = identifier(dispute.get("payment_intent"))
    if dispute.get("status") not in _DISPUTES or payment_id is None:
        return None
    return with_disputes(Evidence(payment_id=payment_id), [dispute])


def with_disputes(evidence: Evidence, disputes: Iterable[Fields]) -> Evidence:
    """The evidence with the sums of these disputes of its payment."""
    total = ended = lost = 0
    for dispute in disputes:
        if state := _DISPUTES.get(dispute["status"]):
            total += dispute["amount"]
            ended += dispute["amount"] if state is not DisputeStatus.OPEN else 0
            lost += dispute["amount"] if state is DisputeStatus.LOST else 0
    return replace(
        evidence, disputes_minor=total, disputes_ended_minor=ended, disputes_lost_minor=lost
    )


def identifier(value: object) -> str | None:
    """The id of an object that Stripe gave in full or as its id alone."""
    if isinstance(value, Mapping):
        value = value.get("id")
    return value if isinstance(value, str) else None


def _currency(fields: Fields) -> str | None:
    currency = fields.get("currency")
    return currency.upper() if isinstance(currency, str) else None


READERS: dict[str, Callable[[Fields], Evidence | None]] = {
    "checkout.session.completed": session_evidence,
    "checkout.session.async_payment_succeeded": session_evidence,
    "checkout.session.async_payment_failed": partial(session_evidence, failed=True),
    "checkout.session.expired": session_evidence,
    "charge.refunded": charge_evidence,
    # Endpoints of older API versions get the last one instead of the first.
    "refund.failed": failed_refund_evidence,
    "refund.updated": failed_refund_evidence,
    "charge.refund.updated": failed_refund_evidence,
    "charge.dispute.created": dispute_evidence,
    "charge.dispute.updated": dispute_evidence,
    "charge.dispute.funds_withdrawn": dispute_evidence,
    "charge.dispute.funds_reinstated": dispute_evidence,
    "charge.dispute.closed": dispute_evidence,
}
