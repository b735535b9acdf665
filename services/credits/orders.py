"""Reads orders."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, delete, func, select

from core.errors.money import ORDER_NOT_FOUND
from models import OrderStatus, PaymentEvent, PaymentOrder, PaymentOrderChange
from services import paging
from services.paging import PageOfRows, PageRequest
from storage.unit_of_work import UnitOfWork


def get(uow: UnitOfWork, user_id: int, order_id: int) -> PaymentOrder:
    """Return the user's own order; raises ``order.not_found``."""
    order = get_any(uow, order_id)
    if order.user_id != user_id:
        raise ORDER_NOT_FOUND()
    return order


def list_of(
    uow: UnitOfWork, user_id: int, wanted: PageRequest, *, status: OrderStatus | None
) -> PageOfRows[PaymentOrder]:
    """Return the user's orders, newest first; raises ``cursor.invalid``."""
    return list_all(uow, wanted, PaymentOrder.user_id == user_id, status=status)


def get_any(uow: UnitOfWork, order_id: int) -> PaymentOrder:
    """Return any user's order, or nobody's, for an operator; raises ``order.not_found``."""
    order = uow.session.get(PaymentOrder, order_id)
    if order is None:
        raise ORDER_NOT_FOUND()
    return order


def list_all(
    uow: UnitOfWork,
    wanted: PageRequest,
    *conditions: ColumnElement[bool],
    status: OrderStatus | None,
) -> PageOfRows[PaymentOrder]:
    """Return the orders of all users that fit, newest first; raises ``cursor.invalid``."""
    query = select(PaymentOrder).where(*conditions)
    if status is not None:
        query = query.where(PaymentOrder.status == status)
    query = paging.by_moment(query, PaymentOrder.created_at, PaymentOrder.id, wanted)
    found = uow.session.scalars(query).all()
    return paging.cut(
        found, wanted.limit, lambda order: paging.moment_cursor(order.created_at, order.id)
    )


def changes(uow: UnitOfWork, order_id: int) -> Sequence[PaymentOrderChange]:
    query = select(PaymentOrderChange).where(PaymentOrderChange.order_id == order_id)
    return uow.session.scalars(query.order_by(PaymentOrderChange.id)).all()


def events(uow: UnitOfWork, order_id: int) -> Sequence[PaymentEvent]:
    query = select(PaymentEvent).where(PaymentEvent.order_id == order_id)
    return uow.session.scalars(query.order_by(PaymentEvent.id)).all()


# The database holds us to this time, and to all else that makes an order an abandoned one.
ABANDONED_ORDER_RETENTION = timedelta(days=90)
_UNPAID = (OrderStatus.CREATED, OrderStatus.PENDING, OrderStatus.FAILED, OrderStatus.EXPIRED)


def purge(now: datetime, uow: UnitOfWork, limit: int) -> int:
    """Delete such orders with their history, ``limit`` at most; how many they were."""
    order = PaymentOrder
    # While the provider may still say that it was paid, it is asked.
    unset = order.next_check_at, order.user_id, order.paid_at, order.mismatch, order.dispute
    found = select(order.id).where(
        order.status.in_(_UNPAID),
        order.created_at < now - ABANDONED_ORDER_RETENTION,
        *(each.is_(None) for each in unset),
        order.refunded_minor == 0,
        # Or one such order would keep all others here.
        func.is_abandoned_order(order.id),
    )
    oldest = found.order_by(order.created_at).limit(limit)
    # An order that is claimed or settled in this moment stays.
    ids = list(uow.session.scalars(oldest.with_for_update(skip_locked=True)))
    for history in (PaymentEvent, PaymentOrderChange):
        uow.session.execute(delete(history).where(history.order_id.in_(ids)))
    uow.session.execute(delete(order).where(order.id.in_(ids)))
    return len(ids)
