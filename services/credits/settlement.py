"""The one way to change an order: lock it, add to its facts, walk to the status that follows from
them, and add the difference to the ledger.

Webhooks, the page to which a payer returns, the poller, claims and operators all use it. Settling
by the same evidence again does nothing.
"""

import math
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial

from sqlalchemy import select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DataError

from core import clock
from core.counters.work_metrics import ORDERS, MoneyDirection, count_credits, count_money
from core.errors.money import ORDER_NOT_FOUND, ORDER_NOT_IN_REVIEW
from core.logging import get_logger
from core.money import PLACES
from integrations.payments.port import DisputeStatus, Evidence, PaymentChannel, Payments
from integrations.payments.registry import PaymentChannels
from models import CreditAction, OrderStatus, OrderVia, PaymentEvent, PaymentOrder, Resolution
from services.feed.catalogue import FeedEventType, announce
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# Facts only grow: paid, failed, expired, closed, the largest sum of refunds and of failed ones,
# and the largest sums of disputes, of those that ended and of those that were lost. A provider's
# messages may come in any sequence and any number of times: the facts are the same at the end,
# and the order's status and credits follow from the facts alone.

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


_MIN_CHECK_INTERVAL = timedelta(seconds=30)
# When the poller asks about an order without a webhook, since it was made: its payer is there.
_EARLY_CHECKS = (timedelta(minutes=1), timedelta(minutes=5), timedelta(minutes=20))
# The provider closes the page by itself and says so. It is asked only if that does not come.
_CLOSING_DELAY = timedelta(minutes=1)
# Since the end of an order whose payment may still come: the slowest ways to pay take some days.
# After that only a webhook brings news.
_LATE_CHECKS = (timedelta(hours=1), timedelta(days=1), timedelta(days=3), timedelta(days=14))

# For an order that has an owner. An order without credentials is announced once it is claimed.
_ANNOUNCED = {
    OrderStatus.PAID: FeedEventType.ORDER_PAID,
    OrderStatus.REFUNDED: FeedEventType.ORDER_REFUNDED,
    OrderStatus.DISPUTED: FeedEventType.ORDER_DISPUTED,
    OrderStatus.REVIEW: FeedEventType.ORDER_REVIEW,
}


def settle(uow: UnitOfWork, order_id: int, evidence: Evidence, via: OrderVia) -> PaymentOrder:
    """Add evidence to an order and do all that follows from it, in the caller's transaction."""
    order = lock(uow, order_id)
    add_evidence(order, evidence)
    apply_facts(uow, order, via)
    return order


def lock(uow: UnitOfWork, order_id: int) -> PaymentOrder:
    """Lock the order until the transaction ends, and return it; raises ``order.not_found``."""
    order = uow.session.get(PaymentOrder, order_id, with_for_update=True, populate_existing=True)
    if order is None:
        raise ORDER_NOT_FOUND()
    return order


def apply_facts(uow: UnitOfWork, order: PaymentOrder, via: OrderVia) -> None:
    """Bring a locked order's status and its ledger entries in line with its facts."""
    try:
        with uow.session.begin_nested():
            _walk(uow, order, via)
            _reconcile(uow, order)
    except DataError:
        # The account can't hold so many credits: the order waits for an operator's review.
        uow.session.refresh(order)
        may_wait = order.status in {OrderStatus.CREATED, *REVIEWABLE}
        if not may_wait or order.mismatch is not None:
            raise
        order.mismatch = "the account can't hold so many credits"
        _walk(uow, order, via)
    order.next_check_at = next_check(order, clock.now())
    uow.session.flush()


def resolve(uow: UnitOfWork, order_id: int, resolution: Resolution) -> PaymentOrder:
    """Apply an operator's decision on an order whose payment did not match it.

    The order is credited as it was made, or counts as refunded. Raises ``order.not_found``,
    ``order.not_in_review``.
    """
    order = lock(uow, order_id)
    if order.status != OrderStatus.REVIEW:
        raise ORDER_NOT_IN_REVIEW(order_id=order_id, status=order.status)
    order.resolution = resolution
    if resolution is Resolution.CREDIT:
        order.paid_at = order.paid_at or clock.now()
    apply_facts(uow, order, OrderVia.OPERATOR)
    return order


def find(uow: UnitOfWork, channel: PaymentChannel, evidence: Evidence) -> int | None:
    """Find the order of some evidence, by the most certain of the ids in the evidence."""
    row, found = PaymentOrder, None
    for column, name in (
        (row.id, evidence.order_id),
        (row.session_id, evidence.session_id),
        (row.payment_id, evidence.payment_id),
    ):
        if name is not None and found is None:
            query = select(row.id).where(row.channel == channel, column == name)
            found = uow.session.scalar(query.order_by(row.created_at).limit(1))
    return found


def next_check(order: PaymentOrder, now: datetime) -> datetime | None:
    """Return when the poller next asks about an order; ``None`` once nobody can pay it any more."""
    soon = now + _MIN_CHECK_INTERVAL
    if order.status == OrderStatus.CREATED:
        return max(order.expires_at, soon)
    if order.status == OrderStatus.PENDING:
        checks = [order.created_at + age for age in _EARLY_CHECKS]
        checks.append(order.expires_at + _CLOSING_DELAY)
        return min((check for check in checks if check > now), default=soon)
    if order.status == OrderStatus.EXPIRED and order.closed_at is None and not order.is_failed:
        late = [order.expires_at + delay for delay in _LATE_CHECKS]
        return next((check for check in late if check > now), None)
    return None


def _walk(uow: UnitOfWork, order: PaymentOrder, via: OrderVia) -> None:
    while (status := next_status(order)) is not None:
        before = order.status
        log.info("order.changed", order_id=order.id, before=before, after=status, via=via)
        order.status, order.changed_via = status, via
        # Each step is a statement of its own: the database checks it and records it.
        uow.session.flush()
        uow.after_commit(ORDERS.labels(status).inc)
        if order.user_id is not None and status in _ANNOUNCED:
            announce(uow, order.user_id, _ANNOUNCED[status], order.id, before=before)


def _reconcile(uow: UnitOfWork, order: PaymentOrder) -> None:
    """Add the entries that the ledger lacks for this order."""
    if not is_credited(order):
        return
    if not order.credited:
        _give(uow, order, "topup", order.credit_amount, "payment")
        order.credited = order.credit_amount
        paid = order.amount
        uow.after_commit(partial(count_money, MoneyDirection.IN, order.currency, paid))
    due = due_back(order)
    if due > order.taken:
        source = "refund" if order.dispute in (None, DisputeStatus.WON) else "dispute"
        taken = {"amount": due - order.taken, "source": source}
        uow.session.execute(_TAKE, _values(order) | taken)
        uow.after_commit(partial(count_credits, CreditAction.TOPUP_REFUND, due - order.taken))
        # The payment for these credits.
        back = (due - order.taken) * order.amount / order.credit_amount
        uow.after_commit(partial(count_money, MoneyDirection.OUT, order.currency, back))
    elif due < order.taken:
        source = "refund_failed" if order.refunds_failed_minor else "dispute"
        _give(uow, order, "adjust", order.taken - due, source)
    order.taken = due
    uow.session.flush()


def _give(uow: UnitOfWork, order: PaymentOrder, action: str, amount: Decimal, source: str) -> None:
    given = {"action": action, "amount": amount, "source": source}
    uow.session.execute(_GIVE, _values(order) | given)
    uow.after_commit(partial(count_credits, action, amount))


def _values(order: PaymentOrder) -> dict[str, object]:
    return {
        "user_id": order.user_id,
        "order_id": order.id,
        "rate": order.credits_per_usd,
        "currency": order.currency,
    }


_GIVE = text(
    "SELECT credit_give(:user_id, :action, :amount, :source, CAST(:order_id AS text), NULL,"
    " :order_id, :rate, :currency)"
)
_TAKE = text("SELECT credit_take(:user_id, :amount, :source, :order_id, :rate, :currency)")


def receive(resources: Resources, channels: PaymentChannels, body: bytes, signature: str) -> None:
    """Settle an order by a webhook; at return its effect is committed, unless it has none.

    Raises what ``Payments.event`` does, and ``TransientError`` if the provider should send it
    again.
    """
    payments, event = channels.event(body, signature)
    evidence = event.evidence
    if evidence is None:
        return
    order_id = _order_of(resources, payments, evidence)
    if order_id is None:
        log.warning("webhook.of_no_order", channel=payments.channel, event_id=event.id)
        return
    if evidence.refunded_minor or evidence.refunds_failed_minor:
        evidence = _with_all_refunds(resources, payments, evidence, order_id)
    if evidence.disputes_minor and evidence.payment_id is not None:
        # The event tells of one dispute, and its payment may have several.
        evidence = payments.disputes(evidence.payment_id)
    facts = asdict(evidence).items()
    record = insert(PaymentEvent).values(
        channel=payments.channel,
        event_id=event.id,
        type=event.type,
        order_id=order_id,
        facts={name: value for name, value in facts if value not in (None, False)},
        happened_at=event.created_at,
    )
    record = record.on_conflict_do_nothing(index_elements=["channel", "event_id"])
    with resources.unit_of_work() as uow:
        # Lock the order before inserting a row that refers to it, so that its webhooks take turns.
        lock(uow, order_id)
        # An event that was recorded before returns no row.
        if uow.session.scalar(record.returning(PaymentEvent.id)) is not None:
            settle(uow, order_id, evidence, OrderVia.WEBHOOK)


def _order_of(resources: Resources, payments: Payments, evidence: Evidence) -> int | None:
    with resources.unit_of_work() as uow:
        found = find(uow, payments.channel, evidence)
    if found is not None or evidence.order_id is not None or evidence.payment_id is None:
        return found
    # A dispute or refund may come before its payment: only the provider knows its order then.
    named = payments.order_of(evidence.payment_id)
    with resources.unit_of_work() as uow:
        return find(uow, payments.channel, Evidence(order_id=named))


def _with_all_refunds(
    resources: Resources, payments: Payments, evidence: Evidence, order_id: int
) -> Evidence:
    """Complete evidence about refunds of an order of which one has failed, or may have.

    The provider's sum shrinks when a refund fails. The news of that may be lost, and a smaller sum
    may also be an older one. Where two sums differ, only all refunds together tell how much went
    back; those and the ones that failed only grow.
    """
    with resources.unit_of_work() as uow:
        order = uow.session.get_one(PaymentOrder, order_id)
    payment_id = evidence.payment_id or order.payment_id
    is_another_sum = order.refunded_minor not in (0, evidence.refunded_minor)
    has_failed = evidence.refunds_failed_minor or order.refunds_failed_minor
    if payment_id is None or not (is_another_sum or has_failed):
        return evidence
    whole = payments.refunds(payment_id)
    failed = whole.refunds_failed_minor
    return replace(evidence, refunded_minor=whole.refunded_minor, refunds_failed_minor=failed)
