"""What an operator decides about an order whose payment did not fit it."""

from core import clock
from core.refusals.money import ORDER_NOT_IN_REVIEW
from models import OrderStatus, OrderVia, PaymentOrder, Resolution
from services.money.topups.settlement import apply_facts, lock
from storage.unit_of_work import UnitOfWork


def resolve(uow: UnitOfWork, order_id: int, resolution: Resolution) -> PaymentOrder:
    """Credit the order as it was made, or count it as given back.

    Raises ``order.not_found``, ``order.not_in_review``.
    """
    order = lock(uow, order_id)
    if order.status != OrderStatus.REVIEW:
        raise ORDER_NOT_IN_REVIEW(order_id=order_id, status=order.status)
    order.resolution = resolution
    if resolution is Resolution.CREDIT:
        order.paid_at = order.paid_at or clock.now()
    apply_facts(uow, order, OrderVia.OPERATOR)
    return order
