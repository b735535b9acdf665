import orjson
from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import TypeAdapter, ValidationError

from api.access.requirements import ListEditor
from api.bodies.json_route import JsonRoute
from api.bodies.media_types import is_json, without_byte_order_mark
from api.job_answers import GOES_ON, count_response, wait_for_job
from api.limits.bulkheads import STORAGE
from api.limits.shares import UPLOADS_BY_CALLER
from api.middleware.body_limits import release_body
from api.openapi import IDEMPOTENCY_KEY_PARAMETER, PREFER_PARAMETER, json_request_body, refuses
from api.parameters import PathId, PreferenceOf, StateOf, idempotency_key
from api.request_ids import current_request_id
from api.schemas.envelope import Envelope
from api.schemas.imports import MembersInput
from api.schemas.jobs import JobId
from api.state import State
from core.lanes import Lane
from core.refusals import access, imports, mailing, requests
from services.access.caller import Caller
from services.jobs.idempotency import AcceptedJob
from services.mailing.imports import accept
from services.mailing.imports.accept import MAX_MEMBERS_PER_REQUEST

router = APIRouter(tags=["Bulk members"], route_class=JsonRoute)


WAIT_SECONDS = 30.0
_MAX_FIELD_PROBLEMS = 100

_MEMBERS = TypeAdapter(MembersInput)
# For the document: the route reads its body itself.
_MEMBER_SCHEMA = {
    "type": "object",
    "required": ["email"],
    "properties": {
        "email": {"type": "string", "examples": ["reader@example.com"]},
        "name": {"type": ["string", "null"], "examples": ["Ada Reader"]},
    },
}
_MEMBERS_SCHEMA = {
    "type": "array",
    "minItems": 1,
    "maxItems": MAX_MEMBERS_PER_REQUEST,
    "items": _MEMBER_SCHEMA,
}


@router.post(
    "/auxilia/subscriptions/{list_id}/members/add",
    openapi_extra=json_request_body(
        {"members": _MEMBERS_SCHEMA},
        required=["members"],
        parameters=[PREFER_PARAMETER, IDEMPOTENCY_KEY_PARAMETER],
    ),
    response_model=Envelope[int],
    responses={
        202: {"model": Envelope[JobId], "description": GOES_ON},
        **refuses(
            mailing.LIST_NOT_OWNER,
            mailing.LIST_NOT_FOUND,
            requests.BODY_NOT_JSON,
            requests.IDEMPOTENCY_KEY_INVALID,
            mailing.PLAN_REQUIRED,
            access.QUOTA_EXCEEDED,
            requests.IDEMPOTENCY_IN_PROGRESS,
            imports.MEMBERS_TOO_MANY,
            requests.BODY_NO_JSON_TYPE,
            requests.BODY_INVALID.filled(place="body.members[0].email", rule="must be a string"),
            imports.MEMBERS_ALL_INVALID,
            requests.IDEMPOTENCY_KEY_REUSED,
            requests.QUEUE_TOO_MANY_OF_YOURS,
            requests.QUEUE_OVERLOADED,
            requests.QUEUE_TOO_MANY_WAITERS,
        ),
    },
)
async def add_members(
    request: Request, state: StateOf, caller: ListEditor, list_id: PathId, preference: PreferenceOf
) -> JSONResponse:
    """Add up to 100,000 members, on the paid plan; the answer is how many became active.

    A row that can't be added doesn't stop the others; the job's result has the counts and a file of
    the rows that were not added. Waits 30 s unless `Prefer` says otherwise; a 202 has the job's id.
    """
    seconds, owner_id = preference.seconds(WAIT_SECONDS), caller.user_id
    state.admit(Lane.BULK, owner_id, seconds)
    accepted = await _accept_members(request, state, caller, list_id)
    job = await wait_for_job(request, state, accepted.job_id, seconds, owner_id=owner_id)
    return count_response(job, "added", replayed=accepted.replayed)


async def _accept_members(
    request: Request, state: State, caller: Caller, list_id: int
) -> AcceptedJob:
    """A function of its own, so that nothing holds the body while the caller waits."""
    if not is_json(request.headers.get("content-type", "")):
        raise requests.BODY_NO_JSON_TYPE()
    # The request itself would keep what ``request.body()`` returns.
    body = without_byte_order_mark(b"".join([piece async for piece in request.stream()]))
    await STORAGE.run(_check_members, body)
    accepted = await UPLOADS_BY_CALLER.run(
        caller.user_id,
        accept.accept_members,
        state.resources,
        caller,
        list_id,
        body,
        key=idempotency_key(request, caller, [body]),
        request_id=current_request_id(),
    )
    release_body(request.scope)
    return accepted


def _check_members(body: bytes) -> None:
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise requests.BODY_NOT_JSON() from None
    members = parsed.get("members") if isinstance(parsed, dict) else None
    if isinstance(members, list) and len(members) > MAX_MEMBERS_PER_REQUEST:
        raise imports.MEMBERS_TOO_MANY(most=MAX_MEMBERS_PER_REQUEST)
    try:
        _MEMBERS.validate_python(parsed)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)[:_MAX_FIELD_PROBLEMS]
        raise RequestValidationError(
            [{**problem, "loc": ("body", *problem["loc"])} for problem in problems]
        ) from None
