from datetime import date
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from api.access.requirements import AuthoriseSpender, CreditReader
from api.bodies import decimal_json
from api.bodies.json_route import JsonRoute
from api.limits.bulkheads import MONEY
from api.openapi import json_request_body, refuses
from api.parameters import Cursor, Limit, Offset, StateOf
from api.schemas.credits import CreditBalance, LedgerPage, LowBalance
from api.schemas.envelope import Envelope, Pagination, envelope
from api.state import state_of
from core.refusals.money import CREDITS_BELOW
from core.refusals.requests import BODY_INVALID, BODY_NO_JSON_TYPE, BODY_NOT_JSON, CURSOR_INVALID
from models import CreditAction
from services.money.credits import ledger, low_balance
from services.money.credits.ledger_search import LedgerFilter
from services.paging import PageRequest

router = APIRouter(tags=["Credits"], route_class=JsonRoute)

Actions = Annotated[
    list[CreditAction],
    Query(alias="action", description="Entries of these alone; may be given several times"),
]


@router.get("/auxilia/credits/balance", response_model=Envelope[CreditBalance])
@MONEY.threaded
def read_balance(state: StateOf, caller: CreditReader) -> Response:
    """The caller's credits. The first call opens an empty account."""
    database = state.resources.database
    return decimal_json.decimal_response_of_text(ledger.balance(database, caller.user_id))


@router.get(
    "/auxilia/credits/ledger",
    response_model=Envelope[LedgerPage],
    responses=refuses(CURSOR_INVALID),
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
        date | None, Query(alias="from", description="The first day (UTC); that of the oldest")
    ] = None,
    last: Annotated[
        date | None, Query(alias="to", description="The last day; that of the newest")
    ] = None,
) -> Response:
    """The entries of the caller's credit account, newest first.

    With `action`, `from` or `to` it looks at 5,000 entries a call, and takes no offset: a page may
    hold fewer than `limit`, or none, and goes on with `next_cursor` until that is null.
    """
    wanted, only = PageRequest(limit, offset, cursor), LedgerFilter(actions, first, last)
    found = ledger.page(state.resources.database, caller.user_id, wanted, only)
    pagination = Pagination.of(wanted, found).model_dump_json()
    items = ",".join(entry for _, entry in found.rows)
    return decimal_json.decimal_response_of_text(f'{{"pagination":{pagination},"items":[{items}]}}')


@router.get("/auxilia/credits/low-balance", response_model=Envelope[LowBalance])
@MONEY.threaded
def read_low_balance(state: StateOf, caller: CreditReader) -> Response:
    """Below which balance the caller's events tell of low credits; 100 until it is set."""
    below = low_balance.threshold(state.resources.database, caller.user_id)
    return decimal_json.decimal_response_of_text(f'{{"below_credit":{below}}}')


@router.put(
    "/auxilia/credits/low-balance",
    response_model=Envelope[int],
    openapi_extra=json_request_body(
        {
            "below_credit": {
                "type": "number",
                "minimum": 0,
                "description": "At most four decimals; 0: tell nothing",
                "examples": [250],
            }
        },
        required=["below_credit"],
        parameters=[],
    ),
    responses=refuses(
        BODY_NOT_JSON,
        BODY_NO_JSON_TYPE,
        BODY_INVALID.filled(place="body.below_credit", rule="must be a number"),
        CREDITS_BELOW,
    ),
)
async def set_low_balance(request: Request, authorise: AuthoriseSpender) -> Envelope[int]:
    """Set below which balance the caller's events tell that the credits run low: 1, or 0 when it
    was so already."""
    body = await request.body()
    return await MONEY.run(_set_low_balance, request, authorise, body)


def _set_low_balance(request: Request, authorise: AuthoriseSpender, body: bytes) -> Envelope[int]:
    caller = authorise()
    fields = decimal_json.read(request.headers.get("content-type", ""), body)
    below = decimal_json.number(fields, "below_credit")
    database = state_of(request).resources.database
    return envelope(low_balance.set_threshold(database, caller.user_id, below))
