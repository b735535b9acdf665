from fastapi import APIRouter
from fastapi.responses import Response

from api.access.requirements import CreditReader
from api.bodies import decimal_json
from api.bodies.json_route import JsonRoute
from api.limits.bulkheads import MONEY
from api.openapi import refuses
from api.parameters import Cursor, Limit, Offset, StateOf
from api.schemas.credits import CreditBalance, LedgerPage
from api.schemas.envelope import Envelope, Pagination
from core.refusals.requests import CURSOR_INVALID
from services.money.credits import ledger
from services.paging import PageRequest

router = APIRouter(tags=["Credits"], route_class=JsonRoute)


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
) -> Response:
    """The entries of the caller's credit account, newest first."""
    wanted = PageRequest(limit, offset, cursor)
    found = ledger.page(state.resources.database, caller.user_id, wanted)
    pagination = Pagination.of(wanted, found).model_dump_json()
    items = ",".join(entry for _, entry in found.rows)
    return decimal_json.decimal_response_of_text(f'{{"pagination":{pagination},"items":[{items}]}}')
