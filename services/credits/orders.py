"""Reads and lists orders, and deletes abandoned orders."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, delete, func, select

from core.errors.money import ORDER_NOT_FOUND
from core.ids import AccountId
from models import OrderStatus, PaymentEvent, PaymentOrder, PaymentOrderChange
from services import paging
from services.paging import PageOfRows, PageRequest
from storage.unit_of_work import UnitOfWork

# The retention period of abandoned orders. If you change the period, also change the database
# function ``is_abandoned_order``.
ABANDONED_ORDER_RETENTION = timedelta(days=90)
_UNPAID = (OrderStatus.CREATED, OrderStatus.PENDING, OrderStatus.FAILED, OrderStatus.EXPIRED)


def get_order(uow: UnitOfWork, account_id: AccountId, order_id: int) -> PaymentOrder:
    order = get_order_of_any_user(uow, order_id)
    if order.user_id != account_id:
        raise ORDER_NOT_FOUND()
    return order


def list_orders(
    uow: UnitOfWork, account_id: AccountId, page_request: PageRequest, *, status: OrderStatus | None
) -> PageOfRows[PaymentOrder]:
    return list_orders_of_all_users(
        uow, page_request, PaymentOrder.user_id == account_id, status=status
    )


def get_order_of_any_user(uow: UnitOfWork, order_id: int) -> PaymentOrder:
    order = uow.session.get(PaymentOrder, order_id)
    if order is None:
        raise ORDER_NOT_FOUND()
    return order


def list_orders_of_all_users(
    uow: UnitOfWork,
    page_request: PageRequest,
    *conditions: ColumnElement[bool],
    status: OrderStatus | None,
) -> PageOfRows[PaymentOrder]:
    query = select(PaymentOrder).where(*conditions)
    if status is not None:
        query = query.where(PaymentOrder.status == status)
    query = paging.select_page_by_moment(
        query, PaymentOrder.created_at, PaymentOrder.id, page_request
    )
    rows = uow.session.scalars(query).all()
    return paging.cut_page(
        rows,
        page_request.limit,
        lambda order: paging.build_moment_cursor(order.created_at, order.id),
    )


def list_changes(uow: UnitOfWork, order_id: int) -> Sequence[PaymentOrderChange]:
    query = select(PaymentOrderChange).where(PaymentOrderChange.order_id == order_id)
    return uow.session.scalars(query.order_by(PaymentOrderChange.id)).all()


def list_events(uow: UnitOfWork, order_id: int) -> Sequence[PaymentEvent]:
    query = select(PaymentEvent).where(PaymentEvent.order_id == order_id)
    return uow.session.scalars(query.order_by(PaymentEvent.id)).all()


def purge_abandoned_orders(now: datetime, uow: UnitOfWork, limit: int) -> int:
    order = PaymentOrder
    # Skip orders that the poller will check again, because they may have been paid.
    null_columns = (
        order.next_check_at,
        order.user_id,
        order.paid_at,
        order.mismatch,
        order.dispute,
    )
    query = select(order.id).where(
        order.status.in_(_UNPAID),
        order.created_at < now - ABANDONED_ORDER_RETENTION,
        *(column.is_(None) for column in null_columns),
        order.refunded_minor == 0,
        # Skip orders that the database refuses to delete, because a single one would make the whole
        # batch fail.
        func.is_abandoned_order(order.id),
    )
    oldest = query.order_by(order.created_at).limit(limit)
    # Skip locked orders, which another process is claiming or settling.
    ids = list(uow.session.scalars(oldest.with_for_update(skip_locked=True)))
    for history in (PaymentEvent, PaymentOrderChange):
        uow.session.execute(delete(history).where(history.order_id.in_(ids)))
    uow.session.execute(delete(order).where(order.id.in_(ids)))
    return len(ids)
