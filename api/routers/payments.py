"""Where payment providers come in: their webhooks, and payers on their way back."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from api.dependencies import PUBLIC, StateOf
from api.openapi import refuses
from api.pages.frame import HEADERS
from api.schemas.envelope import Envelope, envelope
from api.state import State
from core.errors import DomainError, forbidden
from core.lanes import Lane
from core.logging import get_logger
from models import OrderStatus, PaymentOrder
from services.topups import redirects, webhooks
from services.topups.opening import RETURN_PATH

log = get_logger(__name__)

router = APIRouter(tags=["Credits"], dependencies=[PUBLIC])
# For people's browsers, and no operation of the API.
pages = APIRouter(dependencies=[PUBLIC], include_in_schema=False)

# A payer waits before an empty page; who is told "pending" hears the rest by another way.
ASK_SECONDS = 6.0


@router.post(
    "/webhooks/stripe",
    responses=refuses(
        (400, "webhook.signature_invalid", "The signature is missing, wrong or too old."),
        (400, "webhook.unreadable", "The body is signed, but no event can be read from it."),
        (413, "body.too_large", "The body of this request has at most 1 MB."),
        (503, "service.unavailable", "A part of the service is not reachable."),
        (503, "topup.channel_unavailable", "Payments are not set up here."),
    ),
    openapi_extra={
        "parameters": [
            {
                "name": "Stripe-Signature",
                "in": "header",
                "required": True,
                "schema": {"type": "string"},
            }
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": {}}}},
    },
)
async def receive_stripe_webhook(request: Request, state: StateOf) -> Envelope[int]:
    """Take in an event of Stripe's. It may come twice, late, and before what led to it."""
    body = await request.body()
    signature = request.headers.get("stripe-signature", "")
    await run_in_threadpool(webhooks.receive, state.resources, state.payments, body, signature)
    return envelope(1)


@pages.get(RETURN_PATH)
async def return_from_payment(
    request: Request,
    state: StateOf,
    order: Annotated[str, Query()] = "",
    signature: Annotated[str, Query()] = "",
) -> Response:
    """Look whether it was paid, and lead the payer's browser back to where the order came from."""
    if not state.return_signer.verify(order.encode(), signature):
        raise _no_link()
    found = await run_in_threadpool(_read, state, int(order))
    if found.redirect_url is None:
        raise _no_link()
    status = found.status
    is_unpaid = status in {OrderStatus.PENDING, OrderStatus.EXPIRED}
    if is_unpaid and "pressroom.head" not in request.scope:
        status = await _asked(state, found)
    location = redirects.with_result(found.redirect_url, found.id, status)
    return Response(status_code=303, headers={**HEADERS, "Location": location})


async def _asked(state: State, order: PaymentOrder) -> str:
    payload = {"order_id": order.id}
    try:
        reply = await state.calls.call("topup.refresh", Lane.IO, payload, seconds=ASK_SECONDS)
    except DomainError as error:
        log.warning("order.not_asked", order_id=order.id, code=error.code)
        return order.status
    status: str = reply["status"]
    return status


def _read(state: State, order_id: int) -> PaymentOrder:
    with state.resources.unit_of_work() as uow:
        order = uow.session.get(PaymentOrder, order_id)
    if order is None:
        raise _no_link()
    return order


def _no_link() -> DomainError:
    return forbidden("payment.link_invalid", "This link does not lead to an order.")
