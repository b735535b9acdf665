from functools import partial
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse

from api.access.requirements import ListEditor
from api.bodies.json_route import JsonRoute
from api.bodies.query_options import refuse_options
from api.job_answers import GOES_ON, count_response, wait_for_job
from api.limits.bulkheads import RECORDS
from api.limits.shares import SEARCHES_BY_CALLER
from api.openapi import PREFER_PARAMETER, refuses
from api.parameters import ListId, PathId, PreferenceOf, StateOf
from api.request_ids import current_request_id
from api.schemas.envelope import Envelope, envelope
from api.schemas.jobs import JobId, JobRecord
from api.schemas.segments import BulkPreview, NewBulkAct
from api.state import State
from core.lanes import Lane
from core.refusals import attributes, mailing, requests
from core.refusals import segments as refusals
from core.refusals.access import QUOTA_EXCEEDED
from models import Job
from services.access.caller import Caller
from services.mailing import lists
from services.mailing.bulk_acts import accepting
from services.mailing.bulk_acts.accepting import BulkOrder
from services.mailing.segments import counting, saved, stored_filters

router = APIRouter(tags=["Bulk members"], route_class=JsonRoute)

BEGUN = "The work goes on. Location leads to its job."
UNDO_WAIT_SECONDS = 30.0


@router.post(
    "/lists/{list_id}/members/bulk",
    response_model=Envelope[BulkPreview],
    responses={
        200: {"description": "The answer to a dry run"},
        202: {"model": Envelope[JobRecord], "description": BEGUN},
        **refuses(
            mailing.LIST_NOT_OWNER,
            mailing.LIST_NOT_FOUND,
            requests.OPTION_IN_BODY,
            mailing.FILTER_INVALID,
            mailing.LIST_BUSY,
            refusals.SELECTION_UNCLEAR,
            refusals.SEGMENT_NOT_FOUND,
            refusals.SEGMENT_FIELD_RETIRED,
            refusals.BULK_VALUE,
            attributes.TAG_TOO_MANY,
            QUOTA_EXCEEDED,
            requests.QUEUE_OVERLOADED,
            requests.SERVICE_BUSY,
        ),
    },
)
async def change_members(
    request: Request,
    state: StateOf,
    caller: ListEditor,
    list_id: ListId,
    body: NewBulkAct,
    *,
    dry_run: Annotated[bool, Query(description="Answer the number, and change nothing")] = False,
) -> JSONResponse:
    """Do one thing to all members of a segment, or of a filter: tag, untag, remove, set_type or
    email_off.

    Answers 202 with the job; its result has `bulk_id`, how many members `matched` and how many it
    `changed`. It can be undone for 90 days. A dry run answers `matched`, as a segment's count.
    """
    refuse_options(request, await request.json())
    order = accepting.check(BulkOrder(body.action, body.value))
    if dry_run:
        counted = await SEARCHES_BY_CALLER.run(
            caller.user_id, _preview, state, caller, list_id, body
        )
        return JSONResponse(envelope(counted).model_dump())
    state.lane_ages.check(Lane.BULK, waits=False)
    request_id = current_request_id()
    begin = partial(_begin, state, caller, list_id, body, order, request_id=request_id)
    # An act takes long: its caller watches the job rather than waits.
    record = JobRecord.of(await RECORDS.run(begin), None)
    headers = {"Location": f"/jobs/{record.id}"}
    return JSONResponse(envelope(record).model_dump(mode="json"), HTTPStatus.ACCEPTED, headers)


def _preview(state: State, caller: Caller, list_id: int, body: NewBulkAct) -> BulkPreview:
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.owned(uow, caller, list_id)
        kept = saved.selected(uow, mailing_list, body.segment_id, body.filter)
        if kept is None:
            raise refusals.SELECTION_UNCLEAR()
        wanted = stored_filters.read(uow, mailing_list, kept)
    counted = counting.count(state.resources, mailing_list, wanted)
    return BulkPreview(matched=counted.count, is_exact=counted.is_exact)


def _begin(
    state: State,
    caller: Caller,
    list_id: int,
    body: NewBulkAct,
    order: BulkOrder,
    *,
    request_id: str | None,
) -> Job:
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.owned(uow, caller, list_id)
        kept = saved.selected(uow, mailing_list, body.segment_id, body.filter)
        if kept is None:
            raise refusals.SELECTION_UNCLEAR()
        settings = state.resources.settings
        job = accepting.begin(uow, settings, mailing_list, kept, order, request_id=request_id)
        uow.session.refresh(job)
        return job


@router.delete(
    "/bulk/{bulk_id}",
    openapi_extra={"parameters": [PREFER_PARAMETER]},
    response_model=Envelope[int],
    responses={
        202: {"model": Envelope[JobId], "description": GOES_ON},
        **refuses(
            refusals.BULK_NOT_FOUND,
            refusals.BULK_RUNNING,
            refusals.BULK_UNDO_OVER,
            QUOTA_EXCEEDED,
        ),
    },
)
async def undo_bulk_act(
    request: Request,
    state: StateOf,
    caller: ListEditor,
    bulk_id: PathId,
    preference: PreferenceOf,
) -> JSONResponse:
    """Undo an act on many members; the answer is how many are as they were before it.

    What was changed since stays, and is counted as `kept` in the job's result; so does what people
    said themselves. 0: the act was undone before. It can be undone for 90 days. Waits 30 s unless
    `Prefer` says otherwise; a 202 has the job's id.
    """
    request_id = current_request_id()
    job_id = await state.in_unit_of_work(
        lambda uow: accepting.undo(uow, caller, bulk_id, request_id)
    )
    if job_id is None:
        return JSONResponse(envelope(0).model_dump())
    job = await wait_for_job(request, state, job_id, preference.seconds(UNDO_WAIT_SECONDS))
    return count_response(job, "undone")
