import re
from typing import Annotated

import orjson
from fastapi import APIRouter, Query
from fastapi.responses import Response

from api.access.requirements import requires_scope
from api.bodies import decimal_json
from api.bodies.json_route import JsonRoute
from api.openapi import refuses
from api.parameters import Limit, Offset, StateOf
from api.schemas.credits import CreditBalance, LedgerPage
from api.schemas.envelope import Envelope
from core.refusals.requests import CURSOR_INVALID
from core.scopes import Scope
from services.access.caller import Caller
from services.money.credits import ledger

router = APIRouter(tags=["Credits"], route_class=JsonRoute)

Reader = Annotated[Caller, requires_scope(Scope.CREDIT_READ)]

_CURSOR = re.compile(r"[0-9]{1,18}\Z")


@router.get("/auxilia/credits/balance", response_model=Envelope[CreditBalance])
def read_balance(state: StateOf, caller: Reader) -> Response:
    """The caller's credits. The first call opens an empty account."""
    database = state.resources.database
    return decimal_json.decimal_response_of_text(ledger.balance(database, caller.user_id))


@router.get(
    "/auxilia/credits/ledger",
    response_model=Envelope[LedgerPage],
    responses=refuses(CURSOR_INVALID),
)
def read_ledger(
    state: StateOf,
    caller: Reader,
    offset: Offset = 0,
    limit: Limit = 16,
    cursor: Annotated[
        str | None, Query(description="next_cursor of the page before, instead of an offset")
    ] = None,
) -> Response:
    """The entries of the caller's credit account, newest first."""
    if cursor is not None and not _CURSOR.match(cursor):
        raise CURSOR_INVALID()
    before = None if cursor is None else int(cursor)
    database = state.resources.database
    entries, next_cursor = ledger.page(
        database, caller.user_id, offset=offset, limit=limit, before=before
    )
    pagination = {
        "offset": offset,
        "next_offset": offset + len(entries),
        "limit": limit,
        "next_cursor": next_cursor,
    }
    items = ",".join(entries)
    return decimal_json.decimal_response_of_text(
        f'{{"pagination":{orjson.dumps(pagination).decode()},"items":[{items}]}}'
    )
