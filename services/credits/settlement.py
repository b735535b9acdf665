"""The one way to change an order: lock it, add to its facts, walk to the status that follows from
them, and add the difference to the ledger.

Webhooks, the page to which a payer returns, the poller, claims and operators all use it. Settling
by the same evidence again does nothing.
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
    due_back,
    is_credited,
    next_status,
)
from services.feed.catalogue import FeedEventType, announce
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

# Facts only grow: paid, failed, expired, closed, the largest sum of refunds and of failed ones,
# and the largest sums of disputes, of those that ended and of those that were lost. A provider's
# messages may come in any sequence and any number of times: the facts are the same at the end,
# and the order's status and credits follow from the facts alone.


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
