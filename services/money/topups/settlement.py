"""The one way an order changes: lock it, add to what is known, walk to the state that follows, and
tell the ledger the difference.

A webhook, the page that a payer returns to, the poller, a claim and an operator all come through
here. Told the same again, it does nothing.
"""

from datetime import datetime, timedelta
from decimal import Decimal

from sqlalchemy import select, text
from sqlalchemy.exc import DataError

from core import clock
from core.logging import get_logger
from core.refusals.money import ORDER_NOT_FOUND
from integrations.payments.port import DisputeStatus, Evidence, PaymentChannel
from models import OrderStatus, OrderVia, PaymentOrder
from services.money.topups import facts
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

MIN_CHECK_INTERVAL = timedelta(seconds=30)
_MAX_CHECK_INTERVAL = timedelta(days=1)
# The slowest ways to pay take some days; later than that only a webhook brings news.
_MAX_PAYMENT_DELAY = timedelta(days=14)


def settle(uow: UnitOfWork, order_id: int, evidence: Evidence, via: OrderVia) -> PaymentOrder:
    """What the provider said about an order, and all that follows, in the caller's transaction."""
    order = lock(uow, order_id)
    facts.add_evidence(order, evidence)
    apply_facts(uow, order, via)
    return order


def lock(uow: UnitOfWork, order_id: int) -> PaymentOrder:
    """The order, which nobody else changes until the transaction ends; ``order.not_found``."""
    order = uow.session.get(PaymentOrder, order_id, with_for_update=True, populate_existing=True)
    if order is None:
        raise ORDER_NOT_FOUND()
    return order


def apply_facts(uow: UnitOfWork, order: PaymentOrder, via: OrderVia) -> None:
    """Bring a locked order's state and its ledger entries to what its facts say."""
    try:
        with uow.session.begin_nested():
            _walk(uow, order, via)
            _reconcile(uow, order)
    except DataError:
        # The account can't hold that many credits: nothing moves, and an operator looks.
        uow.session.refresh(order)
        may_wait = order.status in {OrderStatus.CREATED, *facts.REVIEWABLE}
        if not may_wait or order.mismatch is not None:
            raise
        order.mismatch = "the account can't hold so many credits"
        _walk(uow, order, via)
    order.next_check_at = next_check(order, clock.now())
    uow.session.flush()


def find(uow: UnitOfWork, channel: PaymentChannel, evidence: Evidence) -> int | None:
    """The order that evidence is about, by the most certain of the names it gives."""
    names = (
        (PaymentOrder.id, evidence.order_id),
        (PaymentOrder.session_id, evidence.session_id),
        (PaymentOrder.payment_id, evidence.payment_id),
    )
    for column, name in names:
        if name is not None:
            query = select(PaymentOrder.id).where(PaymentOrder.channel == channel, column == name)
            found = uow.session.scalar(query.order_by(PaymentOrder.created_at).limit(1))
            if found is not None:
                return found
    return None


def next_check(order: PaymentOrder, now: datetime) -> datetime | None:
    """When the poller asks the provider about it; the older, the less often."""
    match order.status:
        case OrderStatus.CREATED:
            return max(order.expires_at, now + MIN_CHECK_INTERVAL)
        case OrderStatus.PENDING | OrderStatus.EXPIRED:
            return _next_unpaid_check(order, now)
    return None


def _next_unpaid_check(order: PaymentOrder, now: datetime) -> datetime | None:
    age = now - order.created_at
    if age > _MAX_PAYMENT_DELAY and order.status == OrderStatus.EXPIRED:
        return None
    then = now + min(max(age / 4, MIN_CHECK_INTERVAL), _MAX_CHECK_INTERVAL)
    if order.status == OrderStatus.PENDING and now < order.expires_at:
        return min(then, order.expires_at)
    return then


def _walk(uow: UnitOfWork, order: PaymentOrder, via: OrderVia) -> None:
    while (status := facts.next_status(order)) is not None:
        log.info("order.changed", order_id=order.id, before=order.status, after=status, via=via)
        order.status, order.changed_via = status, via
        # One statement a step: the database checks each and writes its history.
        uow.session.flush()


def _reconcile(uow: UnitOfWork, order: PaymentOrder) -> None:
    """Make the ledger say what the order says, by what is missing."""
    if not facts.is_credited(order):
        return
    if not order.credited:
        _give(uow, order, "topup", order.credit_amount, "payment")
        order.credited = order.credit_amount
    due = facts.due_back(order)
    if due > order.taken:
        source = "refund" if order.dispute in (None, DisputeStatus.WON) else "dispute"
        _take(uow, order, due - order.taken, source)
    elif due < order.taken:
        _give(uow, order, "adjust", order.taken - due, "dispute")
    order.taken = due
    uow.session.flush()


def _give(uow: UnitOfWork, order: PaymentOrder, action: str, amount: Decimal, source: str) -> None:
    values = _values(order) | {"action": action, "amount": amount, "source": source}
    uow.session.execute(_GIVE, values)


def _take(uow: UnitOfWork, order: PaymentOrder, amount: Decimal, source: str) -> None:
    uow.session.execute(_TAKE, _values(order) | {"amount": amount, "source": source})


def _values(order: PaymentOrder) -> dict[str, object]:
    return {
        "user_id": order.user_id,
        "order_id": order.id,
        "rate": order.credits_per_usd,
        "currency": order.currency,
    }


_GIVE = text("SELECT credit_give(:user_id, :action, :amount, :source, :order_id, :rate, :currency)")
_TAKE = text("SELECT credit_take(:user_id, :amount, :source, :order_id, :rate, :currency)")
