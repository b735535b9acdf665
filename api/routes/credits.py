"""The API endpoints for credits, which are charges, the ledger and orders."""

from datetime import date
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from api.auth.requirements import OPTIONAL, PUBLIC, CreditEditor, CreditReader, CreditSpender
from api.bodies.json_bodies import read_exact_json
from api.idempotency_keys import read_idempotency_key
from api.limits.bulkheads import MONEY
from api.openapi.declarations import (
    IDEMPOTENCY_ERRORS,
    IDEMPOTENCY_KEY_PARAMETER,
    PREFER_PARAMETER,
    describe_json_body,
    error_responses,
)
from api.paging import Cursor, Limit, Offset, Paging
from api.preferences import PreferenceOf
from api.record_ids import PathId
from api.responses.credits import (
    build_decimal_response,
    count_json_bytes,
    describe_order,
    describe_prices,
)
from api.responses.jobs import wait_for_job
from api.route_classes import JsonRoute
from api.schemas import credits as schemas
from api.schemas.envelope import Envelope, Page, Pagination, build_envelope
from api.state import State, StateOf, Transaction, state_of
from core.errors import money, requests
from core.queues import Queue
from models import CreditAction, JobStatus, OrderStatus, PaymentOrder
from services.access.caller import Caller
from services.credits import checkout, claim_tokens, ledger, ledger_pages, orders, thresholds
from services.credits.checkout import OrderRequest
from services.credits.ledger_pages import LedgerFilter
from services.jobs.idempotency import AcceptedJob
from services.paging import PageRequest, fill_page

WAIT_SECONDS = 20.0
# Prices of credits change only with the settings of a deployment, so caches may keep the prices for
# a while.
PRICES_CACHE_CONTROL = "public, max-age=300"

Payer = Annotated[Caller | None, OPTIONAL]
Actions = Annotated[
    list[CreditAction],
    Query(
        alias="action",
        description="Return only entries with these actions. Repeat the parameter to pass "
        "several actions.",
    ),
]

router = APIRouter(tags=["Credits"], route_class=JsonRoute)
orders_router = APIRouter(tags=["Credits"], route_class=JsonRoute)


@router.post(
    "/auxilia/credits/consume",
    summary="Consume credits",
    response_model=Envelope[schemas.CreditEntryRecord],
    openapi_extra=describe_json_body(
        schemas.NewCharge.model_json_schema(), parameters=[IDEMPOTENCY_KEY_PARAMETER]
    ),
    responses=error_responses(
        requests.BODY_NOT_JSON,
        requests.IDEMPOTENCY_KEY_INVALID,
        money.CREDITS_INSUFFICIENT,
        money.CHARGE_IN_PROGRESS,
        requests.BODY_NO_JSON_TYPE,
        requests.BODY_INVALID.fill(place="body.amount_credit", rule="must be a number"),
        money.CREDITS_AMOUNT,
        money.CREDITS_SOURCE_ID,
        money.CREDITS_META,
        requests.IDEMPOTENCY_KEY_REUSED,
    ),
)
async def consume_credits(request: Request, caller: CreditSpender) -> Response:
    """Charge your credit account. Two requests with the same `Idempotency-Key` are charged once.

    If the account has too few credits, the error contains the balance in `balance_credit` and the
    required credits in `needed`.
    """
    content = await request.body()
    body = await read_exact_json(request, content, schemas.NewCharge)
    return await MONEY.run(_charge, request, caller, content, body)


def _charge(request: Request, caller: Caller, content: bytes, body: schemas.NewCharge) -> Response:
    charge = ledger.consume_credits(
        state_of(request).resources.database,
        caller,
        amount=body.amount_credit,
        source_id=body.source_id,
        meta=body.meta,
        key=read_idempotency_key(request, caller, [content]),
    )
    headers = {"Idempotent-Replayed": "true"} if charge.is_replayed else {}
    return build_decimal_response(charge.entry, headers)


@router.get(
    "/auxilia/credits/balance",
    summary="Retrieve the balance",
    response_model=Envelope[schemas.CreditBalance],
)
@MONEY.threaded
def read_balance(state: StateOf, caller: CreditReader) -> Response:
    """Retrieve your credit balance. The first request opens an empty account."""
    database = state.resources.database
    return build_decimal_response(ledger.read_account(database, caller.account_id))


@router.get(
    "/auxilia/credits/ledger",
    summary="List ledger entries",
    response_model=Envelope[schemas.LedgerPage],
    responses=error_responses(requests.CURSOR_INVALID),
)
@MONEY.threaded
def read_ledger(
    state: StateOf,
    caller: CreditReader,
    offset: Offset = 0,
    limit: Limit = 16,
    cursor: Cursor = None,
    actions: Actions = [],  # noqa: B006 - FastAPI copies it
    first: Annotated[
        date | None,
        Query(
            alias="from",
            description="The first day in UTC. Defaults to the day of the oldest entry.",
        ),
    ] = None,
    last: Annotated[
        date | None,
        Query(
            alias="to", description="The last day in UTC. Defaults to the day of the newest entry."
        ),
    ] = None,
) -> Response:
    """List the entries of your credit account, newest first.

    With `action`, `from` or `to`, a request scans at most 5,000 entries for each 50 of `limit`. A
    page can therefore contain fewer entries than `limit`, or none. Continue with `next_cursor`
    until `next_cursor` is null. Requests with a filter don't support `offset`.
    """
    page_request = PageRequest(limit, offset, cursor)
    filters = LedgerFilter(actions, first, last)
    read = partial(
        ledger_pages.list_entries,
        state.resources.database,
        caller.account_id,
        ledger_filter=filters,
    )
    entries = fill_page(
        page_request, read, lambda rows: [text for _, text in rows], lambda text: len(text.encode())
    )
    pagination = Pagination.of(page_request, entries).model_dump_json()
    items = ",".join(entries.rows)
    return build_decimal_response(f'{{"pagination":{pagination},"items":[{items}]}}')


@router.get(
    "/auxilia/credits/low-balance",
    summary="Retrieve the low-balance threshold",
    response_model=Envelope[schemas.LowBalance],
)
@MONEY.threaded
def read_low_balance(state: StateOf, caller: CreditReader) -> Response:
    """Retrieve the balance below which you receive the event `credits.low`. The default is 100."""
    below = thresholds.read_threshold(state.resources.database, caller.account_id)
    return build_decimal_response(f'{{"below_credit":{below}}}')


@router.put(
    "/auxilia/credits/low-balance",
    summary="Set the low-balance threshold",
    response_model=Envelope[int],
    openapi_extra=describe_json_body(schemas.NewLowBalance.model_json_schema()),
    responses=error_responses(
        requests.BODY_NOT_JSON,
        requests.BODY_NO_JSON_TYPE,
        requests.BODY_INVALID.fill(place="body.below_credit", rule="must be a number"),
        money.CREDITS_BELOW,
    ),
)
async def set_low_balance(request: Request, caller: CreditEditor) -> Envelope[int]:
    """Set the balance below which you receive the event `credits.low`.

    Returns 1, or 0 if the threshold didn't change.
    """
    body = await read_exact_json(request, await request.body(), schemas.NewLowBalance)
    database = state_of(request).resources.database
    below = body.below_credit
    return build_envelope(
        await MONEY.run(thresholds.set_threshold, database, caller.account_id, below)
    )


@orders_router.post(
    "/auxilia/credits/topup",
    summary="Create an order",
    response_model=Envelope[schemas.NewOrderRecord],
    openapi_extra=describe_json_body(
        schemas.NewOrder.model_json_schema(),
        parameters=[PREFER_PARAMETER, IDEMPOTENCY_KEY_PARAMETER],
    ),
    responses=error_responses(
        requests.BODY_NOT_JSON,
        requests.BODY_NO_JSON_TYPE,
        requests.BODY_INVALID.fill(place="body.redirect_url", rule="must be a string"),
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
        *IDEMPOTENCY_ERRORS,
        money.PAYMENTS_REFUSED,
        money.PAYMENTS_UNAVAILABLE,
        money.TOPUP_CHANNEL_UNAVAILABLE,
        money.TOPUP_PAGE_TOO_SLOW,
    ),
)
async def topup_credits(
    request: Request, state: StateOf, caller: Payer, preference: PreferenceOf
) -> Response:
    """Order credits, and return the URL of the payment page.

    If the request contains credentials, you own the credits, and you can send an `Idempotency-Key`.
    Without credentials, any user with the `claim_token` can claim the order. If you send
    `credit_amount`, the price is rounded up to the decimals of the currency. If you send `amount`,
    the credits are rounded down to four decimals.
    """
    content = await request.body()
    body = await read_exact_json(request, content, schemas.NewOrder)
    state.queue_ages.check(Queue.MONEY, waits=True)
    accepted = await MONEY.run(
        checkout.place_order,
        state.resources,
        state.payments,
        OrderRequest(**dict(body)),
        account_id=caller.account_id if caller else None,
        key=read_idempotency_key(request, caller, [content]) if caller else None,
    )
    job = await wait_for_job(request, state, accepted.job_id, preference.wait or WAIT_SECONDS)
    if job.status != JobStatus.SUCCEEDED:
        raise money.TOPUP_PAGE_TOO_SLOW()
    return await MONEY.run(_build_order_response, state, accepted)


def _build_order_response(state: State, accepted: AcceptedJob) -> Response:
    with state.resources.unit_of_work() as uow:
        order = uow.session.get_one(PaymentOrder, accepted.subject_id)
    # The response contains the URL of the payment page even if the order has been paid in the
    # meantime.
    record = describe_order(order) | {
        "payment_url": order.payment_url,
        "claim_token": claim_tokens.restore_token(state.resources.keyring, order),
    }
    headers = {"Idempotent-Replayed": "true"} if accepted.replayed else {}
    return build_decimal_response(record, headers)


@orders_router.post(
    "/auxilia/credits/orders/claim",
    summary="Claim an order",
    response_model=Envelope[schemas.OrderRecord],
    responses=error_responses(money.ORDER_NOT_FOUND, money.ORDER_CLAIMED, money.ORDER_OVER),
)
@MONEY.threaded
def claim_order(uow: Transaction, caller: CreditEditor, body: schemas.ClaimToken) -> Response:
    """Claim an order that was created without credentials. You receive the credits."""
    order = claim_tokens.claim_order(uow, caller.account_id, body.claim_token)
    uow.session.refresh(order)
    return build_decimal_response(describe_order(order))


@orders_router.post(
    "/auxilia/credits/orders/status",
    summary="Retrieve an order by its claim token",
    response_model=Envelope[schemas.OrderRecord],
    dependencies=[PUBLIC],
    responses=error_responses(money.ORDER_NOT_FOUND),
)
@MONEY.threaded
def read_order_by_token(uow: Transaction, body: schemas.ClaimToken) -> Response:
    """Retrieve an order by its `claim_token`. The request needs no credentials."""
    return build_decimal_response(describe_order(claim_tokens.find_order(uow, body.claim_token)))


@orders_router.get(
    "/auxilia/credits/orders",
    summary="List all orders",
    response_model=Envelope[Page[schemas.OrderRecord]],
    responses=error_responses(requests.CURSOR_INVALID),
)
@MONEY.threaded
def list_orders(
    uow: Transaction,
    caller: CreditReader,
    paging: Paging,
    status: Annotated[
        OrderStatus | None, Query(description="Return only orders with this status")
    ] = None,
) -> Response:
    """List your orders, newest first. The list includes orders that you claimed."""
    read = partial(orders.list_orders, uow, caller.account_id, status=status)
    records = fill_page(paging, read, lambda rows: [*map(describe_order, rows)], count_json_bytes)
    pagination = Pagination.of(paging, records).model_dump()
    return build_decimal_response({"pagination": pagination, "items": records.rows})


@orders_router.get(
    "/auxilia/credits/prices",
    summary="List prices",
    response_model=Envelope[schemas.CreditPrices],
    dependencies=[PUBLIC],
)
async def read_prices(state: StateOf) -> Response:
    """List the currencies in which credits are sold, and the prices. The response can be cached."""
    prices = describe_prices(state.resources.settings, state.payments.configured)
    return build_decimal_response(prices, {"Cache-Control": PRICES_CACHE_CONTROL})


@orders_router.get(
    "/auxilia/credits/orders/{order_id}",
    summary="Retrieve an order",
    response_model=Envelope[schemas.OrderRecord],
    responses=error_responses(money.ORDER_NOT_FOUND),
)
@MONEY.threaded
def read_order(uow: Transaction, caller: CreditReader, order_id: PathId) -> Response:
    """Retrieve one of your orders."""
    return build_decimal_response(
        describe_order(orders.get_order(uow, caller.account_id, order_id))
    )
