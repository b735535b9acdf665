"""Settles orders by updating the order and the ledger when there is evidence about a payment.

Settling adds a provider's evidence to the facts of an order, which determine the order's status and
ledger entries. Settling an order twice with the same evidence has no effect. Webhooks, the poller,
claims and operators change orders only through this module.
"""

from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial

from sqlalchemy import select, text
from sqlalchemy.exc import DataError

from core import clock
from core.counters.work_metrics import ORDERS, MoneyDirection, count_credits, count_money
from core.errors.money import ORDER_NOT_FOUND, ORDER_NOT_IN_REVIEW
from core.logging import get_logger
from integrations.payments.port import DisputeStatus, Evidence, PaymentChannel
from models import CreditAction, OrderStatus, OrderVia, PaymentOrder, Resolution
from services.credits.order_facts import (
    REVIEWABLE,
    add_evidence,
    credits_due_back,
    is_credited,
    next_status,
)
from services.feed.catalogue import FeedEventType, announce_event
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

_MIN_CHECK_INTERVAL = timedelta(seconds=30)
# The ages at which the poller checks a pending order. The first check of an order comes early,
# because the payer may be waiting.
_EARLY_CHECKS = (timedelta(minutes=1), timedelta(minutes=5), timedelta(minutes=20))
# How long the poller waits for a webhook about an expired payment page before it closes the page.
_CLOSING_DELAY = timedelta(minutes=1)
# How long after an order's expiry the poller checks whether the order was paid late. The slowest
# payment methods take several days. After the last check of an expired order, only a webhook can
# report a payment.
_LATE_CHECKS = (timedelta(hours=1), timedelta(days=1), timedelta(days=3), timedelta(days=14))

# Maps the new status of an order to the feed event for its owner.
_EVENT_TYPES = {
    OrderStatus.PAID: FeedEventType.ORDER_PAID,
    OrderStatus.REFUNDED: FeedEventType.ORDER_REFUNDED,
    OrderStatus.DISPUTED: FeedEventType.ORDER_DISPUTED,
    OrderStatus.REVIEW: FeedEventType.ORDER_REVIEW,
}


def settle_order(uow: UnitOfWork, order_id: int, evidence: Evidence, via: OrderVia) -> PaymentOrder:
    """Settle an order in the caller's transaction."""
    order = lock_order(uow, order_id)
    add_evidence(order, evidence)
    apply_facts(uow, order, via)
    return order


def lock_order(uow: UnitOfWork, order_id: int) -> PaymentOrder:
    order = uow.session.get(PaymentOrder, order_id, with_for_update=True, populate_existing=True)
    if order is None:
        raise ORDER_NOT_FOUND()
    return order


def apply_facts(uow: UnitOfWork, order: PaymentOrder, via: OrderVia) -> None:
    """Update a locked order's status and ledger entries to match its payments and refunds."""
    try:
        with uow.session.begin_nested():
            _update_status(uow, order, via)
            _update_ledger(uow, order)
    except DataError:
        # An operator must review the order if its credits would exceed the maximum balance.
        uow.session.refresh(order)
        is_reviewable = order.status in {OrderStatus.CREATED, *REVIEWABLE}
        if not is_reviewable or order.mismatch is not None:
            raise
        order.mismatch = "the account's balance would be too large"
        _update_status(uow, order, via)
    order.next_check_at = next_check(order, clock.now())
    uow.session.flush()


def resolve_order(uow: UnitOfWork, order_id: int, resolution: Resolution) -> PaymentOrder:
    """Apply an operator's decision about an order whose payment doesn't match the order.

    ``resolution`` either gives the owner all credits of the order, or marks the order as refunded.
    """
    order = lock_order(uow, order_id)
    if order.status != OrderStatus.REVIEW:
        raise ORDER_NOT_IN_REVIEW(order_id=order_id, status=order.status)
    order.resolution = resolution
    if resolution is Resolution.CREDIT:
        order.paid_at = order.paid_at or clock.now()
    apply_facts(uow, order, OrderVia.OPERATOR)
    return order


def find_order_id(uow: UnitOfWork, channel: PaymentChannel, evidence: Evidence) -> int | None:
    """Return the id of the order to which evidence belongs, or ``None`` if no order matches.

    The order is looked up by the order id, then by the checkout id, then by the payment id.
    """
    table = PaymentOrder
    for column, value in (
        (table.id, evidence.order_id),
        (table.session_id, evidence.session_id),
        (table.payment_id, evidence.payment_id),
    ):
        if value is not None:
            query = select(table.id).where(table.channel == channel, column == value)
            order_id = uow.session.scalar(query.order_by(table.created_at).limit(1))
            if order_id is not None:
                return order_id
    return None


def next_check(order: PaymentOrder, now: datetime) -> datetime | None:
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


def _update_status(uow: UnitOfWork, order: PaymentOrder, via: OrderVia) -> None:
    while (status := next_status(order)) is not None:
        before = order.status
        log.info("order.changed", order_id=order.id, before=before, after=status, via=via)
        order.status = status
        order.changed_via = via
        # Write every intermediate status of the order, because the database checks and records each
        # change.
        uow.session.flush()
        uow.after_commit(ORDERS.labels(status).inc)
        if order.user_id is not None and status in _EVENT_TYPES:
            announce_event(uow, order.user_id, _EVENT_TYPES[status], order.id, before=before)


_GIVE = text(
    "SELECT credit_give(:user_id, :action, :amount, :source, CAST(:order_id AS text), NULL,"
    " :order_id, :rate, :currency)"
)
_TAKE = text("SELECT credit_take(:user_id, :amount, :source, :order_id, :rate, :currency)")


def _update_ledger(uow: UnitOfWork, order: PaymentOrder) -> None:
    if not is_credited(order):
        return
    if not order.credited:
        _give_credits(uow, order, "topup", order.credit_amount, "payment")
        order.credited = order.credit_amount
        paid = order.amount
        uow.after_commit(partial(count_money, MoneyDirection.IN, order.currency, paid))
    due = credits_due_back(order)
    if due > order.taken:
        source = "refund" if order.dispute in (None, DisputeStatus.WON) else "dispute"
        values = {**_entry_values(order), "amount": due - order.taken, "source": source}
        uow.session.execute(_TAKE, values)
        uow.after_commit(partial(count_credits, CreditAction.TOPUP_REFUND, due - order.taken))
        # Convert the withdrawn credits to money, because the metric counts money.
        refund = (due - order.taken) * order.amount / order.credit_amount
        uow.after_commit(partial(count_money, MoneyDirection.OUT, order.currency, refund))
    elif due < order.taken:
        source = "refund_failed" if order.refunds_failed_minor else "dispute"
        _give_credits(uow, order, "adjust", order.taken - due, source)
    order.taken = due
    uow.session.flush()


def _give_credits(
    uow: UnitOfWork, order: PaymentOrder, action: str, amount: Decimal, source: str
) -> None:
    values = {**_entry_values(order), "action": action, "amount": amount, "source": source}
    uow.session.execute(_GIVE, values)
    uow.after_commit(partial(count_credits, action, amount))


def _entry_values(order: PaymentOrder) -> dict[str, object]:
    return {
        "user_id": order.user_id,
        "order_id": order.id,
        "rate": order.credits_per_usd,
        "currency": order.currency,
    }
