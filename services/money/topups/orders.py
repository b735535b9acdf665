"""Reads orders."""

from collections.abc import Sequence

from sqlalchemy import select

from core.refusals.money import ORDER_NOT_FOUND
from models import OrderStatus, PaymentEvent, PaymentOrder, PaymentOrderChange
from services import paging
from services.paging import PageOfRows, PageRequest
from storage.unit_of_work import UnitOfWork


def get(uow: UnitOfWork, user_id: int, order_id: int) -> PaymentOrder:
    """Return the user's own order; raises ``order.not_found``."""
    order = uow.session.get(PaymentOrder, order_id)
    if order is None or order.user_id != user_id:
        raise ORDER_NOT_FOUND()
    return order


def list_of(
    uow: UnitOfWork, user_id: int, wanted: PageRequest, *, status: OrderStatus | None
) -> PageOfRows[PaymentOrder]:
    """Return the user's orders, newest first; raises ``cursor.invalid``."""
    query = select(PaymentOrder).where(PaymentOrder.user_id == user_id)
    if status is not None:
        query = query.where(PaymentOrder.status == status)
    query = paging.by_moment(query, PaymentOrder.created_at, PaymentOrder.id, wanted)
    found = uow.session.scalars(query).all()
    return paging.cut(
        found, wanted.limit, lambda order: paging.moment_cursor(order.created_at, order.id)
    )


def get_any(uow: UnitOfWork, order_id: int) -> PaymentOrder:
    """Return any user's order, or nobody's, for an operator; raises ``order.not_found``."""
    order = uow.session.get(PaymentOrder, order_id)
    if order is None:
        raise ORDER_NOT_FOUND()
    return order


def list_all(
    uow: UnitOfWork, wanted: PageRequest, *, status: OrderStatus | None
) -> PageOfRows[PaymentOrder]:
    """Return the orders of all users for an operator, newest first; raises ``cursor.invalid``."""
    query = select(PaymentOrder)
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
