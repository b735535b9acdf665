from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from api.access.requirements import OPTIONAL, PUBLIC, requires_scope
from api.bodies import decimal_json
from api.bodies.json_route import JsonRoute
from api.job_answers import wait_for_job
from api.openapi import IDEMPOTENCY_KEY_PARAMETER, PREFER_PARAMETER, json_request_body, refuses
from api.parameters import PathId, PreferenceOf, StateOf, idempotency_key
from api.request_ids import current_request_id
from api.schemas.envelope import Envelope
from api.schemas.topups import ClaimToken, NewOrderRecord, OrderRecord, record_of
from api.state import State
from core.errors import too_slow
from core.scopes import Scope
from models import JobStatus, PaymentOrder
from services.access.api_keys import Caller
from services.jobs.idempotency import AcceptedJob
from services.money.topups import checkout, claims, orders
from services.money.topups.checkout import OrderRequest

router = APIRouter(tags=["Credits"], route_class=JsonRoute)

WAIT_SECONDS = 20.0

Payer = Annotated[Caller | None, OPTIONAL]
Reader = Annotated[Caller, requires_scope(Scope.CREDIT_READ)]
Claimer = Annotated[Caller, requires_scope(Scope.CREDIT_FULL)]

_NOT_FOUND = (404, "order.not_found", "There is no such order.")
_TOPUP = json_request_body(
    {
        "amount": {
            "type": "number",
            "minimum": 0,
            "description": "What to pay, with the currency's own decimals",
        },
        "credit_amount": {
            "type": "number",
            "minimum": 0,
            "description": "What to buy, at most four decimals",
        },
        "currency": {"type": "string", "description": "Such as USD"},
        "channel": {"type": "string", "enum": ["stripe", "sandbox"]},
        "redirect_url": {
            "type": "string",
            "format": "uri",
            "description": "Where the payer goes afterwards; order_id and status "
            "are added to its query",
        },
    },
    required=["redirect_url"],
    parameters=[PREFER_PARAMETER, IDEMPOTENCY_KEY_PARAMETER],
)


@router.post(
    "/auxilia/credits/topup",
    response_model=Envelope[NewOrderRecord],
    openapi_extra=_TOPUP,
    responses=refuses(
        (400, "body.not_json", "The body is not JSON."),
        (400, "idempotency.key_invalid", "An Idempotency-Key has 16 to 255 characters."),
        (409, "idempotency.in_progress", "A request with this key is still under way."),
        (415, "body.unsupported_type", "Send JSON."),
        (422, "body.invalid", "body.redirect_url: must be a string"),
        (422, "topup.amount_missing", "body.amount or body.credit_amount must be above 0."),
        (422, "topup.amount", "body.amount: an amount in JPY has at most 0 decimals"),
        (422, "topup.amount_mismatch", "body.amount and body.credit_amount do not agree."),
        (422, "topup.amount_too_small", "body.amount: the smallest order is 0.50 USD"),
        (422, "topup.amount_too_large", "body.amount: the largest order is 999,999.99 USD"),
        (422, "topup.currency", "body.currency: is one of USD, EUR, GBP, JPY"),
        (422, "topup.channel", "body.channel: is one of stripe, sandbox"),
        (422, "topup.channel_unavailable", "There is no sandbox here."),
        (422, "topup.redirect_not_allowed", "body.redirect_url: is of an allowed origin"),
        (422, "idempotency.key_reused", "The key was used for another request."),
        (502, "payments.refused", "The payment provider refused the request."),
        (503, "payments.unavailable", "The payment provider can't be reached at the moment."),
        (503, "topup.channel_unavailable", "Payments are not set up here."),
        (504, "request.too_slow", "The page was not opened in time."),
    ),
)
async def topup_credit(
    request: Request, state: StateOf, caller: Payer, preference: PreferenceOf
) -> Response:
    """Order credits and get the page on which they are paid.

    With credentials the credits will be the caller's, and an `Idempotency-Key` counts. Without
    them whoever has the `claim_token` can claim the order. From `credit_amount` the money is
    rounded up to what can be paid, from `amount` the credits are rounded down to four decimals.
    """
    body = await request.body()
    asked = _asked(decimal_json.read(request.headers.get("content-type", ""), body))
    accepted = await run_in_threadpool(
        checkout.accept,
        state.resources,
        state.payments,
        asked,
        user_id=caller.user_id if caller else None,
        key=idempotency_key(request, caller, [body]) if caller else None,
        request_id=current_request_id(),
    )
    job = await wait_for_job(request, state, accepted.job_id, preference.wait or WAIT_SECONDS)
    if job.status != JobStatus.SUCCEEDED:
        raise too_slow("request.too_slow", "The page was not opened in time.")
    return await run_in_threadpool(_answer, state, accepted)


def _asked(fields: dict[str, Any]) -> OrderRequest:
    return OrderRequest(
        amount=decimal_json.optional_number(fields, "amount"),
        credit_amount=decimal_json.optional_number(fields, "credit_amount"),
        currency=decimal_json.optional_string(fields, "currency"),
        channel=decimal_json.optional_string(fields, "channel"),
        redirect_url=decimal_json.string(fields, "redirect_url"),
    )


def _answer(state: State, accepted: AcceptedJob) -> Response:
    with state.resources.unit_of_work() as uow:
        order = uow.session.get_one(PaymentOrder, accepted.subject_id)
    # Whoever ordered wants the page, even where somebody has paid on it meanwhile.
    record = record_of(order) | {
        "payment_url": order.payment_url,
        "claim_token": claims.token_of(state.resources.keyring, order),
    }
    headers = {"Idempotent-Replayed": "true"} if accepted.replayed else {}
    return decimal_json.decimal_response(record, headers)


@router.post(
    "/auxilia/credits/orders/claim",
    response_model=Envelope[OrderRecord],
    responses=refuses(
        _NOT_FOUND,
        (409, "order.claimed", "This order belongs to somebody already."),
        (409, "order.over", "This order is refunded; there is nothing to claim."),
    ),
)
def claim_order(state: StateOf, caller: Claimer, body: ClaimToken) -> Response:
    """Take an order that was made without credentials: its credits are the caller's."""
    with state.resources.unit_of_work() as uow:
        order = claims.claim(uow, state.resources.keyring, caller.user_id, body.claim_token)
        uow.session.refresh(order)
        return decimal_json.decimal_response(record_of(order))


@router.post(
    "/auxilia/credits/orders/status",
    response_model=Envelope[OrderRecord],
    dependencies=[PUBLIC],
    responses=refuses(_NOT_FOUND),
)
def read_order_by_token(state: StateOf, body: ClaimToken) -> Response:
    """An order as whoever has its `claim_token` sees it."""
    with state.resources.unit_of_work() as uow:
        return decimal_json.decimal_response(
            record_of(claims.find(uow, state.resources.keyring, body.claim_token))
        )


@router.get(
    "/auxilia/credits/orders/{order_id}",
    response_model=Envelope[OrderRecord],
    responses=refuses(_NOT_FOUND),
)
def read_order(state: StateOf, caller: Reader, order_id: PathId) -> Response:
    """One of the caller's orders."""
    with state.resources.unit_of_work() as uow:
        return decimal_json.decimal_response(record_of(orders.get(uow, caller.user_id, order_id)))
