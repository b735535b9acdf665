"""Payers on their way back from the provider's page."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from api.access.requirements import PUBLIC
from api.pages.frame import HEADERS
from api.parameters import StateOf
from api.state import State
from core.errors import DomainError
from core.lanes import Lane
from core.logging import get_logger
from core.refusals.money import PAYMENT_LINK_INVALID
from models import OrderStatus, PaymentOrder
from services.money.topups import checkout, return_urls
from services.money.topups.checkout import RETURN_PATH

log = get_logger(__name__)

# For people's browsers, and no operation of the API.
router = APIRouter(dependencies=[PUBLIC], include_in_schema=False)

# A payer waits before an empty page; who is told "pending" hears the rest by another way.
ASK_SECONDS = 6.0


@router.get(RETURN_PATH)
async def return_from_payment(
    request: Request,
    state: StateOf,
    order: Annotated[str, Query()] = "",
    signature: Annotated[str, Query()] = "",
) -> Response:
    """Look whether it was paid, and lead the payer's browser back to where the order came from."""
    if not checkout.is_return_signature(state.resources.keyring, order, signature):
        raise PAYMENT_LINK_INVALID()
    found = await run_in_threadpool(_read, state, int(order))
    if found.redirect_url is None:
        raise PAYMENT_LINK_INVALID()
    status = found.status
    is_unpaid = status in {OrderStatus.PENDING, OrderStatus.EXPIRED}
    if is_unpaid and "pressroom.head" not in request.scope:
        status = await _asked(state, found)
    location = return_urls.add_result(found.redirect_url, found.id, status)
    return Response(status_code=303, headers={**HEADERS, "Location": location})


async def _asked(state: State, order: PaymentOrder) -> str:
    payload = {"order_id": order.id}
    try:
        reply = await state.worker_calls.call(
            "topup.refresh", Lane.IO, payload, seconds=ASK_SECONDS
        )
    except DomainError as error:
        log.warning("order.not_asked", order_id=order.id, code=error.code)
        return order.status
    status: str = reply["status"]
    return status


def _read(state: State, order_id: int) -> PaymentOrder:
    with state.resources.unit_of_work() as uow:
        order = uow.session.get(PaymentOrder, order_id)
    if order is None:
        raise PAYMENT_LINK_INVALID()
    return order
