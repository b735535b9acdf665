"""Charging: the call that applications make for each thing that they sell."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.access.requirements import AuthoriseSpender
from api.bodies import decimal_json
from api.limits.bulkheads import MONEY
from api.openapi import IDEMPOTENCY_KEY_PARAMETER, json_request_body, refuses
from api.parameters import idempotency_key
from api.schemas.credits import CreditEntryRecord
from api.schemas.envelope import Envelope
from api.state import state_of
from core.refusals import money, requests
from services.money.credits import ledger

router = APIRouter(tags=["Credits"])


@router.post(
    "/auxilia/credits/consume",
    response_model=Envelope[CreditEntryRecord],
    openapi_extra=json_request_body(
        {
            "amount_credit": {
                "type": "number",
                "exclusiveMinimum": 0,
                "description": "At most four decimals",
                "examples": [1.5],
            },
            "source_id": {
                "type": "string",
                "minLength": 1,
                "maxLength": ledger.MAX_SOURCE_ID_CHARACTERS,
                "description": "What was bought; not unique",
                "examples": ["article-1043"],
            },
            "meta": {
                "type": "object",
                "description": "At most 8 KB",
                "examples": [{"title": "How we bake bread"}],
            },
        },
        required=["amount_credit", "source_id"],
        parameters=[IDEMPOTENCY_KEY_PARAMETER],
    ),
    responses=refuses(
        requests.BODY_NOT_JSON,
        requests.IDEMPOTENCY_KEY_INVALID,
        money.CREDITS_INSUFFICIENT,
        money.CHARGE_IN_PROGRESS,
        requests.BODY_NO_JSON_TYPE,
        requests.BODY_INVALID.filled(place="body.amount_credit", rule="must be a number"),
        money.CREDITS_AMOUNT,
        money.CREDITS_SOURCE_ID,
        money.CREDITS_META,
        requests.IDEMPOTENCY_KEY_REUSED,
    ),
)
async def consume_credits(request: Request, authorise: AuthoriseSpender) -> Response:
    """Charge the caller. Two calls are two charges, unless they have one `Idempotency-Key`."""
    body = await request.body()
    return await MONEY.run(_consume, request, authorise, body)


def _consume(request: Request, authorise: AuthoriseSpender, body: bytes) -> Response:
    caller = authorise()
    fields = decimal_json.read(request.headers.get("content-type", ""), body)
    charge = ledger.consume(
        state_of(request).resources.database,
        caller.user_id,
        amount=decimal_json.number(fields, "amount_credit"),
        source_id=decimal_json.string(fields, "source_id"),
        meta=decimal_json.optional_object(fields, "meta"),
        key=idempotency_key(request, caller, [body]),
    )
    replayed = {"Idempotent-Replayed": "true"} if charge.is_replayed else {}
    return decimal_json.decimal_response_of_text(charge.entry, replayed)
