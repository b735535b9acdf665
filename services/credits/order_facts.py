"""The facts of an order, from which its status and its credits follow."""

import math
from decimal import Decimal
from fractions import Fraction

from core import clock
from core.logging import get_logger
from core.money import PLACES
from integrations.payments.port import DisputeStatus, Evidence
from models import OrderStatus, PaymentOrder, Resolution

log = get_logger(__name__)
# In these no user has the credits yet, so an operator has time to review an odd payment.
REVIEWABLE = (
    OrderStatus.PENDING,
    OrderStatus.EXPIRED,
    OrderStatus.FAILED,
    OrderStatus.PAID_UNCLAIMED,
)
# An order in one of these was paid, so its owner got the credits.
CREDITED = (OrderStatus.PAID, OrderStatus.DISPUTED, OrderStatus.REFUNDED)


def add_evidence(order: PaymentOrder, evidence: Evidence) -> None:
    """Add a provider's evidence to an order's facts.

    Evidence of another amount, currency or checkout is not about this order's payment. If it says
    that a payer paid, an operator must review the order; otherwise it changes nothing.
    """
    pairs = (
        ("order", order.id, evidence.order_id),
        ("currency", order.currency, evidence.currency and evidence.currency.upper()),
        ("amount", order.amount_minor, evidence.amount_minor),
        ("checkout", order.session_id, evidence.session_id),
        ("payment", order.payment_id, evidence.payment_id),
    )
    differing = (
        f"{name}: {theirs} instead of {ours}"
        for name, ours, theirs in pairs
        if None not in (ours, theirs) and ours != theirs
    )
    if (difference := next(differing, None)) is not None:
        log.warning("order.evidence_differs", order_id=order.id, difference=difference)
        if evidence.paid and order.mismatch is None:
            order.mismatch = difference
        return
    order.session_id = order.session_id or evidence.session_id
    order.payment_id = order.payment_id or evidence.payment_id
    # A payment counts only if its amount and currency could be compared.
    if evidence.paid and evidence.amount_minor is not None and evidence.currency is not None:
        order.paid_at = order.paid_at or clock.now()
    if evidence.paid and order.status == OrderStatus.FAILED and order.mismatch is None:
        order.mismatch = "it was paid after it had failed"
    order.is_failed |= evidence.failed
    order.is_expired |= evidence.expired
    if evidence.closed:
        order.closed_at = order.closed_at or clock.now()
    order.refunded_minor = max(order.refunded_minor, evidence.refunded_minor or 0)
    if (evidence.refunds_failed_minor or 0) > order.refunds_failed_minor:
        log.warning("order.refund_failed", order_id=order.id)
        order.refunds_failed_minor = evidence.refunds_failed_minor or 0
    _add_disputes(order, evidence)


def _add_disputes(order: PaymentOrder, evidence: Evidence) -> None:
    """Let the sums of disputes grow: an older list, with smaller sums, changes nothing."""
    known = (order.disputes_minor, order.disputes_ended_minor, order.disputes_lost_minor)
    told = (evidence.disputes_minor, evidence.disputes_ended_minor, evidence.disputes_lost_minor)
    total, ended, lost = (max(old, new or 0) for old, new in zip(known, told, strict=True))
    if (total, ended, lost) == known:
        return
    order.disputes_minor, order.disputes_ended_minor, order.disputes_lost_minor = total, ended, lost
    ending = DisputeStatus.LOST if lost else DisputeStatus.WON
    order.dispute = DisputeStatus.OPEN if total > ended else ending
    order.disputed_minor = total - ended + lost


def next_status(order: PaymentOrder) -> OrderStatus | None:
    """Return the status to which the facts lead in one allowed step; ``None`` for no step."""
    s, is_disputed = OrderStatus, order.dispute == DisputeStatus.OPEN
    # Any message of the provider proves that there is a checkout, even before we stored its id.
    is_known = bool(order.session_id or order.paid_at or order.mismatch or order.is_expired)
    is_odd = order.mismatch is not None and order.resolution is None
    is_lost = order.lost_minor >= order.amount_minor
    is_kept = order.refunds_failed_minor > 0 and order.resolution != Resolution.REFUNDED
    paid = s.PAID_UNCLAIMED if order.user_id is None else s.PAID
    # The first rule that holds in the order's status counts.
    rules: tuple[tuple[tuple[OrderStatus, ...], bool, OrderStatus], ...] = (
        (REVIEWABLE, is_odd, s.REVIEW),
        ((s.CREATED,), is_known, s.PENDING),
        ((s.PENDING, s.EXPIRED), order.paid_at is not None, paid),
        ((s.CREATED, s.PENDING), order.is_failed, s.FAILED),
        ((s.PENDING,), order.is_expired, s.EXPIRED),
        ((s.PAID_UNCLAIMED,), order.user_id is not None, s.PAID),
        ((s.PAID_UNCLAIMED, s.PAID, s.DISPUTED), is_lost, s.REFUNDED),
        ((s.PAID_UNCLAIMED, s.PAID), is_disputed, s.DISPUTED),
        # A lost dispute over a part of the payment is a partial refund; the rest stays paid.
        ((s.DISPUTED,), not is_disputed, s.PAID),
        # A refund failed, so that the payer's money is still ours.
        ((s.REFUNDED,), is_kept and not is_lost, paid),
        ((s.REVIEW,), order.resolution == Resolution.CREDIT, paid),
        ((s.REVIEW,), order.resolution == Resolution.REFUNDED, s.REFUNDED),
    )
    return next((to for statuses, holds, to in rules if holds and order.status in statuses), None)


def is_credited(order: PaymentOrder) -> bool:
    """Return whether the order's credits are in its owner's ledger."""
    is_refunded = order.resolution == Resolution.REFUNDED
    return order.user_id is not None and order.status in CREDITED and not is_refunded


def due_back(order: PaymentOrder) -> Decimal:
    """Return the credits for the money that the payer got back, rounded up; all for all of it.

    An open dispute counts as lost until it is won, since the provider takes the money first.
    """
    back = order.gone_minor
    if back == order.amount_minor:
        return order.credit_amount
    share = Fraction(order.credit_amount) * back / order.amount_minor
    return Decimal(math.ceil(share * 10**PLACES)).scaleb(-PLACES)
