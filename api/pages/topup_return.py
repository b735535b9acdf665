"""Redirects payers from the payment provider back to the site that started the payment."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from api.auth.requirements import PUBLIC
from api.html.frame import HEADERS
from api.middleware.request_rewriting import is_head
from api.route_classes import ThreadedRoute
from api.state import StateOf
from core.errors import DomainError, money
from core.logging import get_logger
from models import OrderStatus, PaymentOrder
from services.credits import checkout, return_urls
from services.credits.checkout import RETURN_PATH
from services.credits.polling import REFRESH_ORDER

log = get_logger(__name__)

router = APIRouter(dependencies=[PUBLIC], include_in_schema=False, route_class=ThreadedRoute)

# The maximum time that a response waits for the status of the order. If the payment provider
# doesn't respond in time, the order stays pending, and the site that started the payment must poll
# the order.
MAX_WAIT_SECONDS = 6.0


@router.get(RETURN_PATH)
async def return_from_payment(
    request: Request,
    state: StateOf,
    order: Annotated[str, Query()] = "",
    signature: Annotated[str, Query()] = "",
) -> Response:
    if not checkout.is_return_signature(state.resources.keyring, order, signature):
        raise money.PAYMENT_LINK_INVALID()
    payment_order = await state.in_unit_of_work(
        lambda uow: uow.session.get(PaymentOrder, int(order))
    )
    if payment_order is None or payment_order.redirect_url is None:
        raise money.PAYMENT_LINK_INVALID()
    status = payment_order.status
    is_unpaid = status in {OrderStatus.PENDING, OrderStatus.EXPIRED}
    if is_unpaid and not is_head(request.scope):
        payload = {"order_id": payment_order.id}
        try:
            result = await state.worker_calls.call(REFRESH_ORDER, payload, seconds=MAX_WAIT_SECONDS)
            status = result["status"]
        except DomainError as error:
            log.warning("order.not_asked", order_id=payment_order.id, code=error.code)
    location = return_urls.add_result(payment_order.redirect_url, payment_order.id, status)
    return Response(status_code=303, headers={**HEADERS, "Location": location})
