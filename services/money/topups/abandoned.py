"""Unpaid orders that strangers made: anyone can make one, so they don't stay."""

from datetime import datetime, timedelta

from sqlalchemy import delete, func, select

from models import OrderStatus, PaymentEvent, PaymentOrder, PaymentOrderChange
from storage.unit_of_work import UnitOfWork

# The database holds us to this time, and to all else that makes an order an abandoned one.
ABANDONED_ORDER_RETENTION = timedelta(days=90)
_UNPAID = (OrderStatus.CREATED, OrderStatus.PENDING, OrderStatus.FAILED, OrderStatus.EXPIRED)


def purge(uow: UnitOfWork, now: datetime, *, limit: int) -> int:
    """Delete such orders with their history, ``limit`` at most; how many they were."""
    order = PaymentOrder
    found = (
        select(order.id)
        .where(
            order.status.in_(_UNPAID),
            order.created_at < now - ABANDONED_ORDER_RETENTION,
            # While the provider may still say that it was paid, it is asked.
            order.next_check_at.is_(None),
            order.user_id.is_(None),
            order.paid_at.is_(None),
            order.mismatch.is_(None),
            order.dispute.is_(None),
            order.refunded_minor == 0,
            # Or one such order would keep all others here.
            func.is_abandoned_order(order.id),
        )
        .order_by(order.created_at)
        .limit(limit)
        # One that is claimed or settled in this moment stays.
        .with_for_update(skip_locked=True)
    )
    ids = list(uow.session.scalars(found))
    for history in (PaymentEvent, PaymentOrderChange):
        uow.session.execute(delete(history).where(history.order_id.in_(ids)))
    uow.session.execute(delete(order).where(order.id.in_(ids)))
    return len(ids)
