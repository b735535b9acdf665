"""The stored orders: how they are listed, and when an abandoned order is deleted."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, delete, func, select

from core.errors.money import ORDER_NOT_FOUND
from models import OrderStatus, PaymentEvent, PaymentOrder, PaymentOrderChange
from services import paging
from services.paging import PageOfRows, PageRequest
from storage.unit_of_work import UnitOfWork

# A database function checks this time, and the other conditions of an abandoned order.
ABANDONED_ORDER_RETENTION = timedelta(days=90)
_UNPAID = (OrderStatus.CREATED, OrderStatus.PENDING, OrderStatus.FAILED, OrderStatus.EXPIRED)


def get_order(uow: UnitOfWork, user_id: int, order_id: int) -> PaymentOrder:
    """Return the user's own order. Raises ``order.not_found``."""
    order = get_any(uow, order_id)
    if order.user_id != user_id:
        raise ORDER_NOT_FOUND()
    return order


def list_orders(
    uow: UnitOfWork, user_id: int, wanted: PageRequest, *, status: OrderStatus | None
) -> PageOfRows[PaymentOrder]:
    """Return the user's orders, newest first. Raises ``cursor.invalid``."""
    return list_all(uow, wanted, PaymentOrder.user_id == user_id, status=status)


def get_any(uow: UnitOfWork, order_id: int) -> PaymentOrder:
    """Return any order, for an operator. Raises ``order.not_found``."""
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
    """Return the matching orders of all users, newest first. Raises ``cursor.invalid``."""
    query = select(PaymentOrder).where(*conditions)
    if status is not None:
        query = query.where(PaymentOrder.status == status)
    query = paging.by_moment(query, PaymentOrder.created_at, PaymentOrder.id, wanted)
    rows = uow.session.scalars(query).all()
    return paging.cut(
        rows, wanted.limit, lambda order: paging.moment_cursor(order.created_at, order.id)
    )


def list_changes(uow: UnitOfWork, order_id: int) -> Sequence[PaymentOrderChange]:
    query = select(PaymentOrderChange).where(PaymentOrderChange.order_id == order_id)
    return uow.session.scalars(query.order_by(PaymentOrderChange.id)).all()


def list_events(uow: UnitOfWork, order_id: int) -> Sequence[PaymentEvent]:
    query = select(PaymentEvent).where(PaymentEvent.order_id == order_id)
    return uow.session.scalars(query.order_by(PaymentEvent.id)).all()


def purge_abandoned(now: datetime, uow: UnitOfWork, limit: int) -> int:
    """Delete at most ``limit`` abandoned orders with their history. Return their number."""
    order = PaymentOrder
    # An order with a next check may still turn out to be paid.
    unset = (order.next_check_at, order.user_id, order.paid_at, order.mismatch, order.dispute)
    query = select(order.id).where(
        order.status.in_(_UNPAID),
        order.created_at < now - ABANDONED_ORDER_RETENTION,
        *(each.is_(None) for each in unset),
        order.refunded_minor == 0,
        # Skip orders that the database refuses to delete. They would block all others.
        func.is_abandoned_order(order.id),
    )
    oldest = query.order_by(order.created_at).limit(limit)
    # An order that is being claimed or settled stays.
    ids = list(uow.session.scalars(oldest.with_for_update(skip_locked=True)))
    for history in (PaymentEvent, PaymentOrderChange):
        uow.session.execute(delete(history).where(history.order_id.in_(ids)))
    uow.session.execute(delete(order).where(order.id.in_(ids)))
    return len(ids)
