"""Collects facts about a payment order, and derives the order's status from the facts.

The messages of a payment provider can arrive in any order. Facts that a provider has reported are
therefore never removed. If a provider reports several totals, the largest one applies.
"""

import math
from decimal import Decimal
from fractions import Fraction

from core import clock
from core.logging import get_logger
from core.money import PLACES, format_money, minor_digits
from integrations.payments.port import DisputeStatus, Evidence
from models import OrderStatus, PaymentOrder, Resolution

log = get_logger(__name__)

# An order with one of these statuses can change to ``REVIEW``. An order whose owner has received
# credits can't change to ``REVIEW``.
REVIEWABLE = (
    OrderStatus.PENDING,
    OrderStatus.EXPIRED,
    OrderStatus.FAILED,
    OrderStatus.PAID_UNCLAIMED,
)
# The statuses of orders whose owner has received credits.
CREDITED = (OrderStatus.PAID, OrderStatus.DISPUTED, OrderStatus.REFUNDED)


def add_evidence(order: PaymentOrder, evidence: Evidence) -> None:
    """Update the stored facts about an order with the facts from a payment provider.

    Evidence is ignored if its amount, currency, checkout or payment differs from the order. An
    operator must then review the order if the evidence is about a payment.
    """
    pairs = (
        ("order", order.id, evidence.order_id),
        ("currency", order.currency, evidence.currency and evidence.currency.upper()),
        ("amount", order.amount_minor, evidence.amount_minor),
        ("checkout", order.session_id, evidence.session_id),
        ("payment", order.payment_id, evidence.payment_id),
    )
    differences = (
        _describe_difference(order.currency, name, actual, expected)
        for name, expected, actual in pairs
        if None not in (expected, actual) and expected != actual
    )
    if (difference := next(differences, None)) is not None:
        log.warning("order.evidence_differs", order_id=order.id, difference=difference)
        if evidence.paid and order.mismatch is None:
            order.mismatch = difference
        return
    order.session_id = order.session_id or evidence.session_id
    order.payment_id = order.payment_id or evidence.payment_id
    # Ignore a payment without an amount or a currency, because it can't be compared with the order.
    if evidence.paid and evidence.amount_minor is not None and evidence.currency is not None:
        order.paid_at = order.paid_at or clock.now()
    if evidence.paid and order.status == OrderStatus.FAILED and order.mismatch is None:
        order.mismatch = "the order was paid after it had failed"
    order.is_failed |= evidence.failed
    order.is_expired |= evidence.expired
    if evidence.closed:
        order.closed_at = order.closed_at or clock.now()
    order.refunded_minor = max(order.refunded_minor, evidence.refunded_minor or 0)
    if (evidence.refunds_failed_minor or 0) > order.refunds_failed_minor:
        log.warning("order.refund_failed", order_id=order.id)
        order.refunds_failed_minor = evidence.refunds_failed_minor or 0
    _add_disputes(order, evidence)


def _describe_difference(
    currency: str, name: str, actual: int | str | None, expected: int | str | None
) -> str:
    if name == "amount" and actual is not None and expected is not None:
        scale = -minor_digits(currency)
        actual = format_money(Decimal(actual).scaleb(scale), currency)
        expected = format_money(Decimal(expected).scaleb(scale), currency)
    return f"{name} is {actual} instead of {expected}"


def _add_disputes(order: PaymentOrder, evidence: Evidence) -> None:
    known = (order.disputes_minor, order.disputes_ended_minor, order.disputes_lost_minor)
    reported = (
        evidence.disputes_minor,
        evidence.disputes_ended_minor,
        evidence.disputes_lost_minor,
    )
    total, ended, lost = (max(old, new or 0) for old, new in zip(known, reported, strict=True))
    if (total, ended, lost) == known:
        return
    order.disputes_minor = total
    order.disputes_ended_minor = ended
    order.disputes_lost_minor = lost
    ending = DisputeStatus.LOST if lost else DisputeStatus.WON
    order.dispute = DisputeStatus.OPEN if total > ended else ending
    order.disputed_minor = total - ended + lost


def next_status(order: PaymentOrder) -> OrderStatus | None:
    is_disputed = order.dispute == DisputeStatus.OPEN
    # A message from the payment provider proves that the payment page exists, even if the page's id
    # isn't stored yet.
    has_checkout = bool(order.session_id or order.paid_at or order.mismatch or order.is_expired)
    needs_review = order.mismatch is not None and order.resolution is None
    is_fully_lost = order.lost_minor >= order.amount_minor
    has_failed_refund = order.refunds_failed_minor > 0 and order.resolution != Resolution.REFUNDED
    paid = OrderStatus.PAID_UNCLAIMED if order.user_id is None else OrderStatus.PAID
    # The first matching rule determines the next status of the order.
    rules: tuple[tuple[tuple[OrderStatus, ...], bool, OrderStatus], ...] = (
        (REVIEWABLE, needs_review, OrderStatus.REVIEW),
        ((OrderStatus.CREATED,), has_checkout, OrderStatus.PENDING),
        ((OrderStatus.PENDING, OrderStatus.EXPIRED), order.paid_at is not None, paid),
        ((OrderStatus.CREATED, OrderStatus.PENDING), order.is_failed, OrderStatus.FAILED),
        ((OrderStatus.PENDING,), order.is_expired, OrderStatus.EXPIRED),
        ((OrderStatus.PAID_UNCLAIMED,), order.user_id is not None, OrderStatus.PAID),
        (
            (OrderStatus.PAID_UNCLAIMED, OrderStatus.PAID, OrderStatus.DISPUTED),
            is_fully_lost,
            OrderStatus.REFUNDED,
        ),
        ((OrderStatus.PAID_UNCLAIMED, OrderStatus.PAID), is_disputed, OrderStatus.DISPUTED),
        # After a dispute in which the payer hasn't won back the whole amount, the order counts as
        # paid.
        ((OrderStatus.DISPUTED,), not is_disputed, OrderStatus.PAID),
        # After a failed refund, the order counts as paid, because the payer did not get the money
        # back.
        ((OrderStatus.REFUNDED,), has_failed_refund and not is_fully_lost, paid),
        ((OrderStatus.REVIEW,), order.resolution == Resolution.CREDIT, paid),
        ((OrderStatus.REVIEW,), order.resolution == Resolution.REFUNDED, OrderStatus.REFUNDED),
    )
    return next(
        (to for statuses, applies, to in rules if applies and order.status in statuses), None
    )


def is_credited(order: PaymentOrder) -> bool:
    is_refunded = order.resolution == Resolution.REFUNDED
    return order.user_id is not None and order.status in CREDITED and not is_refunded


def credits_due_back(order: PaymentOrder) -> Decimal:
    """Return how many of an order's credits to withdraw after refunds or disputes, rounded up.

    An amount in an open dispute counts as refunded, because the provider withholds the money.
    """
    refunded_minor = order.gone_minor
    if refunded_minor == order.amount_minor:
        return order.credit_amount
    share = Fraction(order.credit_amount) * refunded_minor / order.amount_minor
    return Decimal(math.ceil(share * 10**PLACES)).scaleb(-PLACES)
