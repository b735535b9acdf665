from typing import Annotated

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.access.requirements import OPTIONAL, PUBLIC, CreditEditor, CreditReader
from api.bodies import decimal_json
from api.bodies.json_route import JsonRoute
from api.job_answers import wait_for_job
from api.limits.bulkheads import MONEY
from api.openapi import IDEMPOTENCY_KEY_PARAMETER, PREFER_PARAMETER, json_request_body, refuses
from api.parameters import PathId, PreferenceOf, StateOf, idempotency_key
from api.request_ids import current_request_id
from api.schemas.envelope import Envelope
from api.schemas.topups import ClaimToken, NewOrderRecord, OrderRecord, record_of
from api.state import State
from core.lanes import Lane
from core.refusals import money, requests
from models import JobStatus, PaymentOrder
from services.access.caller import Caller
from services.jobs.idempotency import AcceptedJob
from services.money.topups import checkout, claims, orders
from services.money.topups.checkout import OrderRequest

router = APIRouter(tags=["Credits"], route_class=JsonRoute)

WAIT_SECONDS = 20.0

Payer = Annotated[Caller | None, OPTIONAL]

_MONEY = {"type": "number", "minimum": 0}
_TOPUP = json_request_body(
    {
        "amount": {**_MONEY, "description": "What to pay, with the currency's own decimals"},
        "credit_amount": {
            **_MONEY,
            "description": "What to buy, at most four decimals",
            "examples": [500],
        },
        "currency": {"type": "string", "description": "Such as USD", "examples": ["USD"]},
        "channel": {"type": "string", "enum": ["stripe", "sandbox"]},
        "redirect_url": {
            "type": "string",
            "format": "uri",
            "description": "Where the payer goes afterwards; order_id and status "
            "are added to its query",
            "examples": ["https://www.example.com/thanks"],
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
        requests.BODY_NOT_JSON,
        requests.IDEMPOTENCY_KEY_INVALID,
        requests.IDEMPOTENCY_IN_PROGRESS,
        requests.BODY_NO_JSON_TYPE,
        requests.BODY_INVALID.filled(place="body.redirect_url", rule="must be a string"),
        money.TOPUP_AMOUNT_MISSING,
        money.TOPUP_AMOUNT_DECIMALS,
        money.TOPUP_AMOUNT_MISMATCH,
        money.TOPUP_AMOUNT_TOO_SMALL,
        money.TOPUP_AMOUNT_TOO_LARGE,
        money.TOPUP_CURRENCY,
        money.TOPUP_CHANNEL,
        money.TOPUP_NO_SANDBOX,
        money.TOPUP_REDIRECT_NOT_ALLOWED,
        requests.QUEUE_OVERLOADED,
        requests.IDEMPOTENCY_KEY_REUSED,
        money.PAYMENTS_REFUSED,
        money.PAYMENTS_UNAVAILABLE,
        money.TOPUP_CHANNEL_UNAVAILABLE,
        money.TOPUP_PAGE_TOO_SLOW,
    ),
)
async def topup_credits(
    request: Request, state: StateOf, caller: Payer, preference: PreferenceOf
) -> Response:
    """Order credits, and get the URL of the page on which a payer pays for them.

    With credentials, the credits will be the caller's, and an `Idempotency-Key` counts. Without
    credentials, any user who has the `claim_token` can claim the order. For a `credit_amount`, the
    price is rounded up to the currency's decimals; for an `amount`, the credits are rounded down to
    four decimals.
    """
    body = await request.body()
    fields = decimal_json.read(request.headers.get("content-type", ""), body)
    wanted = OrderRequest(
        amount=decimal_json.optional_number(fields, "amount"),
        credit_amount=decimal_json.optional_number(fields, "credit_amount"),
        currency=decimal_json.optional_string(fields, "currency"),
        channel=decimal_json.optional_string(fields, "channel"),
        redirect_url=decimal_json.string(fields, "redirect_url"),
    )
    state.lane_ages.check(Lane.MONEY, waits=True)
    accepted = await MONEY.run(
        checkout.accept,
        state.resources,
        state.payments,
        wanted,
        user_id=caller.user_id if caller else None,
        key=idempotency_key(request, caller, [body]) if caller else None,
        request_id=current_request_id(),
    )
    job = await wait_for_job(request, state, accepted.job_id, preference.wait or WAIT_SECONDS)
    if job.status != JobStatus.SUCCEEDED:
        raise money.TOPUP_PAGE_TOO_SLOW()
    return await MONEY.run(_answer, state, accepted)


def _answer(state: State, accepted: AcceptedJob) -> Response:
    with state.resources.unit_of_work() as uow:
        order = uow.session.get_one(PaymentOrder, accepted.subject_id)
    # Always with its page, even if a payer has paid the order meanwhile.
    record = record_of(order) | {
        "payment_url": order.payment_url,
        "claim_token": claims.token_of(state.resources.keyring, order),
    }
    headers = {"Idempotent-Replayed": "true"} if accepted.replayed else {}
    return decimal_json.decimal_response(record, headers)


@router.post(
    "/auxilia/credits/orders/claim",
    response_model=Envelope[OrderRecord],
    responses=refuses(money.ORDER_NOT_FOUND, money.ORDER_CLAIMED, money.ORDER_OVER),
)
@MONEY.threaded
def claim_order(state: StateOf, caller: CreditEditor, body: ClaimToken) -> Response:
    """Claim an order that was made without credentials: its credits become the caller's."""
    with state.resources.unit_of_work() as uow:
        order = claims.claim(uow, state.resources.keyring, caller.user_id, body.claim_token)
        uow.session.refresh(order)
        return decimal_json.decimal_response(record_of(order))


@router.post(
    "/auxilia/credits/orders/status",
    response_model=Envelope[OrderRecord],
    dependencies=[PUBLIC],
    responses=refuses(money.ORDER_NOT_FOUND),
)
@MONEY.threaded
def read_order_by_token(state: StateOf, body: ClaimToken) -> Response:
    """The order of a `claim_token`; no credentials are needed."""
    with state.resources.unit_of_work() as uow:
        return decimal_json.decimal_response(
            record_of(claims.find(uow, state.resources.keyring, body.claim_token))
        )


@router.get(
    "/auxilia/credits/orders/{order_id}",
    response_model=Envelope[OrderRecord],
    responses=refuses(money.ORDER_NOT_FOUND),
)
@MONEY.threaded
def read_order(state: StateOf, caller: CreditReader, order_id: PathId) -> Response:
    """One of the caller's orders."""
    with state.resources.unit_of_work() as uow:
        return decimal_json.decimal_response(record_of(orders.get(uow, caller.user_id, order_id)))
