"""The API endpoints that change many members of a list with one request."""

from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse
from pydantic import TypeAdapter, ValidationError

from api.auth.requirements import ListEditor
from api.bodies.json_bodies import (
    read_converted_json,
    remove_byte_order_mark,
    require_json_type,
)
from api.bodies.unknown_names import MAX_LISTED_NAMES, refuse_options
from api.errors import MAX_PROBLEMS, body_error
from api.idempotency_keys import read_idempotency_key
from api.limits.bulkheads import RECORDS
from api.limits.keyed_bulkheads import SEARCHES_BY_CALLER, UPLOADS_BY_CALLER
from api.middleware.body_limits import body_of, build_row_limits, release_body
from api.openapi.declarations import (
    IDEMPOTENCY_ERRORS,
    IDEMPOTENCY_KEY_PARAMETER,
    LIST_ERRORS,
    PREFER_PARAMETER,
    QUEUE_ERRORS,
    SELECTION_ERRORS,
    accepted_response,
    describe_json_body,
)
from api.preferences import PreferenceOf
from api.record_ids import ListId, PathId
from api.responses.jobs import build_count_response, respond_to_undo, wait_for_job
from api.route_classes import JsonRoute
from api.schemas.envelope import Envelope, build_envelope
from api.schemas.fields import FieldValues, TagNames
from api.schemas.imports import MembersInput
from api.schemas.jobs import JobId, JobRecord
from api.schemas.segments import BulkPreview, NewBulkAction
from api.state import State, StateOf
from core.errors import FieldProblem, access, imports, mailing, requests
from core.queues import Queue
from core.upload_limits import MAX_MEMBERS_PER_REQUEST
from models import Job, MailingList, Tier
from services.access.caller import Caller
from services.jobs.idempotency import AcceptedJob
from services.subscriptions import fields, lists, segments
from services.subscriptions.bulk_actions import actions
from services.subscriptions.bulk_actions.actions import BulkOrder
from services.subscriptions.bulk_actions.undo import BULK_UNDO
from services.subscriptions.fields import OwnFields
from services.subscriptions.filters import member_counts, member_filter
from services.subscriptions.imports import accepting
from services.subscriptions.imports.request_values import VALUE_NAMES, Member, read_values
from storage.unit_of_work import UnitOfWork

adds_router = APIRouter(tags=["Bulk members"], route_class=JsonRoute)

WAIT_SECONDS = 30.0
_ROWS_PER_PART = 1_000

_MEMBERS_ADAPTER = TypeAdapter(MembersInput)
# The JSON Schema of a member is only for the OpenAPI document, because the route reads the request
# body itself.
_MEMBER_SCHEMA = {
    "type": "object",
    "required": ["email"],
    "properties": {
        "email": {"type": "string", "examples": ["reader@example.com"]},
        "name": {"type": ["string", "null"], "examples": ["Ada Reader"]},
        "type": {"type": "string", "enum": [*Tier], "examples": ["silver"]},
        "fields": TypeAdapter(FieldValues).json_schema(),
        "tags": {"anyOf": [TypeAdapter(TagNames).json_schema(), {"type": "null"}]},
    },
}
_MEMBERS_SCHEMA = {
    "type": "array",
    "minItems": 1,
    "maxItems": MAX_MEMBERS_PER_REQUEST,
    "items": _MEMBER_SCHEMA,
}


@adds_router.post(
    "/auxilia/subscriptions/{list_id}/members/add",
    summary="Add many members",
    openapi_extra=describe_json_body(
        {"type": "object", "required": ["members"], "properties": {"members": _MEMBERS_SCHEMA}},
        parameters=[PREFER_PARAMETER, IDEMPOTENCY_KEY_PARAMETER],
    ),
    response_model=Envelope[int],
    responses=accepted_response(
        Envelope[JobId],
        *LIST_ERRORS,
        requests.BODY_NOT_JSON,
        mailing.PLAN_REQUIRED,
        access.QUOTA_EXCEEDED,
        imports.MEMBERS_TOO_MANY,
        requests.BODY_NO_JSON_TYPE,
        requests.BODY_INVALID.fill(place="body.members[0].email", rule="must be a string"),
        imports.MEMBERS_ALL_INVALID,
        imports.MEMBERS_VALUES_INVALID,
        *IDEMPOTENCY_ERRORS,
        *QUEUE_ERRORS,
    ),
)
async def add_members(
    request: Request, state: StateOf, caller: ListEditor, list_id: ListId, preference: PreferenceOf
) -> JSONResponse:
    """Add up to 100,000 members, and return the number of members who became active. Requires the
    paid plan.

    Rejected rows don't affect other rows. The job result contains the counts, and a file of the
    rejected rows. The job result names the first 100 rejected rows in `skipped`, each with `index`
    and `code`. `type`, `fields` and `tags` apply only to newly added members. Members who are on
    the list already stay as they are. Wrong values and unknown fields of a row are ignored. The job
    result names the first 100 of them in `ignored`, each with `index` and `field`. With
    `Prefer: handling=strict`, the request returns 400 instead. The request waits up to 30 seconds
    unless `Prefer` sets a different time. A 202 response contains the id of the job.
    """
    seconds = preference.seconds(WAIT_SECONDS)
    account_id = caller.account_id
    state.admit(Queue.BULK, account_id, seconds)
    accepted = await _accept_members(
        request, state, caller, list_id, is_strict=preference.is_strict
    )
    job = await wait_for_job(request, state, accepted.job_id, seconds, account_id=account_id)
    return build_count_response(job, "added", replayed=accepted.replayed)


async def _accept_members(
    request: Request, state: State, caller: Caller, list_id: int, *, is_strict: bool
) -> AcceptedJob:
    """Read and store the members in the request body.

    ``is_strict``: whether to reject values that the job would ignore.

    A separate function reads the body, so that the body's memory is free while the route waits for
    the job.
    """
    require_json_type(request)
    # Check the plan before reading the body, which may have 32 MB.
    find_max_rows = partial(accepting.find_max_rows, state.resources, caller, list_id)
    body_of(request.scope).json_limits = build_row_limits(await RECORDS.run(find_max_rows))
    own_fields = None
    if is_strict:
        read_fields = partial(fields.read_own_fields, account_id=caller.account_id)
        own_fields = await state.in_unit_of_work(read_fields)
    # Read the body as a stream, because ``request.body()`` would keep the body in memory.
    body = remove_byte_order_mark(b"".join([piece async for piece in request.stream()]))
    check = partial(_check_members, own_fields=own_fields)
    has_values = await read_converted_json(request, body, check)
    accepted = await UPLOADS_BY_CALLER.run(
        caller.account_id,
        accepting.accept_members,
        state.resources,
        caller,
        list_id,
        body,
        key=read_idempotency_key(request, caller, [body]),
        has_values=has_values,
    )
    release_body(request.scope)
    return accepted


def _check_members(parsed: object, own_fields: OwnFields | None) -> bool:
    """Validate the body, and return whether a member has a type, fields or tags.

    ``own_fields``: the owner's fields, or ``None`` to accept values that the job would ignore.
    """
    members = parsed.get("members") if isinstance(parsed, dict) else None
    if isinstance(members, list) and len(members) > MAX_MEMBERS_PER_REQUEST:
        raise imports.MEMBERS_TOO_MANY(most=MAX_MEMBERS_PER_REQUEST)
    errors: list[Any] = []
    count = 0
    for first, part in _split_body(parsed, members):
        try:
            _MEMBERS_ADAPTER.validate_python(part)
        except ValidationError as error:
            count += error.error_count()
            if len(errors) < MAX_PROBLEMS:
                details = error.errors(include_url=False, include_input=False)
                errors += [{**each, "loc": _locate(each["loc"], first)} for each in details]
    if errors:
        raise body_error(errors, count=count)
    assert isinstance(members, list)
    if own_fields is not None:
        _require_valid_values(members, own_fields)
    return any(not VALUE_NAMES.isdisjoint(member) for member in members)


def _require_valid_values(members: list[Member], own_fields: OwnFields) -> None:
    """Raise ``members.values_invalid`` for values that the job would ignore."""
    problems = (
        FieldProblem(
            f"body.members[{index}].{value.column}", imports.MEMBERS_VALUES_INVALID.code, value.rule
        )
        for index, member in enumerate(members)
        for value in read_values(member, own_fields).left_out
    )
    if listed_problems := tuple(islice(problems, MAX_LISTED_NAMES)):
        rules = "; ".join(f"{each.field} {each.message}" for each in listed_problems)
        raise imports.MEMBERS_VALUES_INVALID(rules=rules, problems=listed_problems)


def _split_body(parsed: object, members: object) -> Iterator[tuple[int, object]]:
    """Yield parts of 1,000 rows of the request body, and the index of each part's first row.

    Validating the whole request body in one step could create hundreds of thousands of errors in
    memory.
    """
    if not isinstance(members, list) or not members:
        yield 0, parsed
        return
    for first in range(0, len(members), _ROWS_PER_PART):
        yield first, {"members": members[first : first + _ROWS_PER_PART]}


def _locate(part: tuple[int | str, ...], first: int) -> tuple[int | str, ...]:
    """Convert a value's path within a part of the rows to the path within the request body."""
    return tuple(step + first if isinstance(step, int) else step for step in part)


router = APIRouter(tags=["Bulk members"], route_class=JsonRoute)


@router.post(
    "/lists/{list_id}/members/bulk",
    summary="Change many members",
    response_model=Envelope[BulkPreview],
    responses={
        200: {"description": "The result of a dry run"},
        **accepted_response(
            Envelope[JobRecord],
            *LIST_ERRORS,
            requests.OPTION_IN_BODY,
            mailing.FILTER_INVALID,
            mailing.FILTER_TOO_LARGE,
            mailing.LIST_BUSY,
            *SELECTION_ERRORS,
            mailing.BULK_VALUE,
            mailing.TAG_TOO_MANY,
            access.AUTH_LOGIN_AGAIN,
            access.QUOTA_EXCEEDED,
            requests.QUEUE_OVERLOADED,
            requests.SERVICE_BUSY,
            description="The job continues. The `Location` header contains the URL of the job.",
        ),
    },
)
async def change_members(
    request: Request,
    state: StateOf,
    caller: ListEditor,
    list_id: ListId,
    body: NewBulkAction,
    *,
    dry_run: Annotated[
        bool, Query(description="Whether to count the matching members without changing any")
    ] = False,
) -> JSONResponse:
    """Apply an action to all members of a segment or filter. The actions are tag, untag, remove,
    set_type and email_off.

    The response has the status 202 and contains the job. The job result contains the `bulk_id`, the
    number of `matched` members and the number of `changed` members. You can undo a bulk action for
    90 days. A dry run only returns the number of `matched` members. To remove members, callers with
    a session cookie must have logged in within the last 15 minutes.
    """
    refuse_options(request, await request.json())
    order = actions.check_order(BulkOrder(body.action, body.value))
    if dry_run:
        preview = await SEARCHES_BY_CALLER.run(
            caller.account_id, _preview_action, state, caller, list_id, body
        )
        return JSONResponse(build_envelope(preview).model_dump())
    state.queue_ages.check(Queue.BULK, waits=False)
    begin = partial(_begin_action, state, caller, list_id, body, order)
    # Respond without waiting for the job, because a bulk action takes long.
    record = JobRecord.of(await RECORDS.run(begin), None)
    headers = {"Location": f"/jobs/{record.id}"}
    return JSONResponse(
        build_envelope(record).model_dump(mode="json"), HTTPStatus.ACCEPTED, headers
    )


def _read_selection(
    uow: UnitOfWork, caller: Caller, list_id: int, body: NewBulkAction
) -> tuple[MailingList, dict[str, Any]]:
    mailing_list = lists.get_own_list(uow, caller, list_id)
    stored_filter = segments.choose_filter(uow, mailing_list, body.segment_id, body.filter)
    if stored_filter is None:
        raise mailing.SELECTION_UNCLEAR()
    return mailing_list, stored_filter


def _preview_action(state: State, caller: Caller, list_id: int, body: NewBulkAction) -> BulkPreview:
    with state.resources.unit_of_work() as uow:
        mailing_list, stored_filter = _read_selection(uow, caller, list_id, body)
        filter_tree = member_filter.read_stored_filter(uow, mailing_list, stored_filter)
    count = member_counts.count_members(state.resources, mailing_list, filter_tree)
    return BulkPreview(matched=count.count, is_exact=count.is_exact)


def _begin_action(
    state: State,
    caller: Caller,
    list_id: int,
    body: NewBulkAction,
    order: BulkOrder,
) -> Job:
    with state.resources.unit_of_work() as uow:
        mailing_list, stored_filter = _read_selection(uow, caller, list_id, body)
        job = actions.begin_bulk_action(uow, mailing_list, stored_filter, order, caller=caller)
        uow.session.refresh(job)
        return job


@router.delete(
    "/bulk/{bulk_id}",
    summary="Undo a bulk action",
    openapi_extra={"parameters": [PREFER_PARAMETER]},
    response_model=Envelope[int],
    responses=accepted_response(
        Envelope[JobId],
        mailing.BULK_NOT_FOUND,
        mailing.BULK_RUNNING,
        mailing.BULK_UNDO_OVER,
        access.QUOTA_EXCEEDED,
    ),
)
async def undo_bulk_action(
    request: Request, state: StateOf, caller: ListEditor, bulk_id: PathId, preference: PreferenceOf
) -> JSONResponse:
    """Undo a bulk action, and return the number of restored members.

    Members who changed after the bulk action are not restored. The job result counts these members
    as `kept`. Choices that people made themselves also stay. Returns 0 if the bulk action is
    already undone. You can undo a bulk action for 90 days. The request waits up to 30 seconds
    unless `Prefer` sets a different time. A 202 response contains the id of the job.
    """
    undo = partial(BULK_UNDO.start, caller=caller, row_id=bulk_id)
    return await respond_to_undo(request, state, preference, undo)
