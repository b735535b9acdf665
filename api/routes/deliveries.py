"""The API endpoint for mailing a few members at once."""

from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from api.auth.requirements import DELIVERY_SCOPE
from api.bodies.json_bodies import read_converted_json, validate_body
from api.idempotency_keys import read_idempotency_key
from api.limits.bulkheads import RECORDS
from api.openapi.declarations import (
    IDEMPOTENCY_ERRORS,
    IDEMPOTENCY_KEY_PARAMETER,
    describe_json_body,
    error_responses,
)
from api.record_ids import ListId
from api.route_classes import JsonRoute
from api.schemas.deliveries import DeliveriesRecord, NewDeliveries
from api.schemas.envelope import Envelope, build_envelope
from api.state import StateOf
from core.errors import access, mailing, requests
from services.access.caller import Caller
from services.subscriptions import deliveries

router = APIRouter(tags=["Senders"], route_class=JsonRoute)


@router.post(
    "/lists/{list_id}/deliveries",
    summary="Mail a few members",
    openapi_extra=describe_json_body(
        NewDeliveries.model_json_schema(), parameters=[IDEMPOTENCY_KEY_PARAMETER]
    ),
    response_model=Envelope[DeliveriesRecord],
    responses=error_responses(
        requests.BODY_NOT_JSON,
        requests.BODY_NO_JSON_TYPE,
        requests.BODY_INVALID.fill(place="body.label", rule="must be a string"),
        mailing.LIST_NOT_FOUND,
        access.AUTH_DELIVERY_FORBIDDEN,
        mailing.LIST_EMAIL_CHANNEL_DISABLED,
        mailing.DELIVERY_TOO_MANY,
        *IDEMPOTENCY_ERRORS,
    ),
)
async def create_deliveries(
    request: Request,
    state: StateOf,
    caller: Annotated[Caller, DELIVERY_SCOPE],
    list_id: ListId,
) -> JSONResponse:
    """Retrieve the roster rows of at most 100 members, right before your program mails them.

    `left_out` counts the other ids. These people unsubscribed or bounced, for example, or aren't on
    the list. Requests with the same `label` on the same day in UTC belong to one mailing, which
    counts each member once. A repeated request returns the same `delivery_id` and `trace_id`. With
    an `Idempotency-Key`, this holds across midnight too. Members who have left since the first
    request are missing. The trace ids of a key with `list_ids` only let people leave.
    """
    content = await request.body()
    body = await read_converted_json(request, content, _read_body)
    created = await RECORDS.run(
        deliveries.create_deliveries,
        state.resources,
        caller,
        list_id,
        user_ids=body.user_ids,
        label=body.label,
        key=read_idempotency_key(request, caller, [content]),
    )
    record = DeliveriesRecord.model_validate(created)
    headers = {"Idempotent-Replayed": "true"} if created.is_replayed else {}
    return JSONResponse(build_envelope(record).model_dump(), headers=headers)


def _read_body(parsed: Any) -> NewDeliveries:
    user_ids = parsed.get("user_ids") if isinstance(parsed, dict) else None
    if isinstance(user_ids, list) and len(user_ids) > deliveries.MAX_MEMBERS_PER_REQUEST:
        raise mailing.DELIVERY_TOO_MANY(most=deliveries.MAX_MEMBERS_PER_REQUEST)
    return validate_body(NewDeliveries, parsed)
