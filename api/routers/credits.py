import re
import time
from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from api import decimal_bodies
from api.dependencies import (
    Authorise,
    Limit,
    Offset,
    StateOf,
    idempotency_key,
    needs,
    needs_in_handler,
)
from api.json_bodies import JsonRoute
from api.openapi import IDEMPOTENCY_KEY_PARAMETER, refuses
from api.schemas.credits import CreditBalance, CreditEntryRecord, LedgerPage
from api.schemas.envelope import Envelope
from api.state import State
from core.errors import malformed
from core.scopes import Scope
from services.api_keys import Caller
from services.credits import ledger
from services.credits.ledger import Outcome

router = APIRouter(tags=["Credits"], route_class=JsonRoute)

Reader = Annotated[Caller, needs(Scope.CREDIT_READ)]
Spender = Annotated[Authorise, needs_in_handler(Scope.CREDIT_FULL)]

_CURSOR = re.compile(r"[0-9]{1,18}\Z")


@router.get("/auxilia/credits/balance", response_model=Envelope[CreditBalance])
def read_balance(state: StateOf, caller: Reader) -> Response:
    """The caller's credits. The first look opens an empty account."""
    engine = state.resources.database.autocommitting
    return _answer(ledger.balance(engine, caller.user_id))


@router.get(
    "/auxilia/credits/ledger",
    response_model=Envelope[LedgerPage],
    responses=refuses((400, "cursor.invalid", "query.cursor must be a next_cursor.")),
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
    """What happened to the caller's credits, newest first."""
    if cursor is not None and not _CURSOR.match(cursor):
        raise malformed("cursor.invalid", "query.cursor must be a next_cursor of an earlier page.")
    before = None if cursor is None else int(cursor)
    engine = state.resources.database.autocommitting
    found = ledger.page(engine, caller.user_id, offset=offset, limit=limit, before=before)
    pagination = {
        "offset": offset,
        "next_offset": offset + len(found.entries),
        "limit": limit,
        "next_cursor": found.next_cursor,
    }
    items = ",".join(found.entries)
    return _answer(f'{{"pagination":{orjson.dumps(pagination).decode()},"items":[{items}]}}')


@router.post(
    "/auxilia/credits/consume",
    response_model=Envelope[CreditEntryRecord],
    openapi_extra={
        "parameters": [IDEMPOTENCY_KEY_PARAMETER],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "required": ["amount_credit", "source_id"],
                        "properties": {
                            "amount_credit": {
                                "type": "number",
                                "exclusiveMinimum": 0,
                                "description": "At most four decimals",
                            },
                            "source_id": {
                                "type": "string",
                                "minLength": 1,
                                "maxLength": ledger.MOST_SOURCE_CHARACTERS,
                                "description": "What was bought; not unique",
                            },
                            "meta": {"type": "object", "description": "At most 8 KB"},
                        },
                    }
                }
            },
        },
    },
    responses=refuses(
        (400, "body.not_json", "The body is not JSON."),
        (400, "idempotency.key_invalid", "An Idempotency-Key has 16 to 255 characters."),
        (402, "credits.insufficient", "The balance is too low for this."),
        (409, "idempotency.in_progress", "Another charge of this account is still under way."),
        (415, "body.unsupported_type", "Send JSON."),
        (422, "body.invalid", "body.amount_credit: must be a number"),
        (422, "credits.amount", "An amount is above 0 and has at most four decimals."),
        (422, "credits.source_id", "body.source_id: has 1 to 255 characters, not all blank"),
        (422, "credits.meta", "body.meta: has at most 8 KB and no NUL characters"),
        (422, "idempotency.key_reused", "The key was used for another request."),
    ),
)
async def consume_credit(request: Request, state: StateOf, authorise: Spender) -> Response:
    """Charge the caller. Two calls are two charges, unless they have one `Idempotency-Key`."""
    body = await request.body()
    return await run_in_threadpool(_consume, request, state, authorise, body)


def _consume(request: Request, state: State, authorise: Authorise, body: bytes) -> Response:
    caller = authorise()
    fields = decimal_bodies.read(request.headers.get("content-type", ""), body)
    charge = ledger.consume(
        state.resources.database.autocommitting,
        caller.user_id,
        amount=decimal_bodies.number(fields, "amount_credit"),
        source_id=decimal_bodies.string(fields, "source_id"),
        meta=decimal_bodies.optional_object(fields, "meta"),
        key=idempotency_key(request, caller, [body]),
    )
    replayed = charge.outcome is Outcome.REPLAYED
    return _answer(charge.entry, {"Idempotent-Replayed": "true"} if replayed else {})


def _answer(data: str, headers: dict[str, str] | None = None) -> Response:
    """The envelope around JSON that the database wrote: its decimals are never read as binary."""
    body = f'{{"data":{data},"ts":{int(time.time())}}}'
    return Response(body, headers=headers, media_type="application/json")
