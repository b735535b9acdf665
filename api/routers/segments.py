from typing import Any

from fastapi import APIRouter

from api.access.requirements import ListEditor, ListReader
from api.bodies.json_route import JsonRoute
from api.limits.bulkheads import RECORDS
from api.limits.shares import SEARCHES_BY_CALLER
from api.openapi import refuses
from api.parameters import ListId, Paging, PathId, StateOf
from api.schemas.envelope import Envelope, Page, envelope, page
from api.schemas.segments import CountedSegment, NewSegment, SegmentChanges, SegmentRecord
from api.state import State
from core.refusals import segments as refusals
from core.refusals.mailing import FILTER_INVALID, LIST_NOT_FOUND, LIST_NOT_OWNER
from core.refusals.requests import CURSOR_INVALID, SERVICE_BUSY
from models import MailingList, Segment
from services.access.caller import Caller
from services.mailing import lists
from services.mailing.segments import counting, saved, stored_filters
from storage.unit_of_work import UnitOfWork

router = APIRouter(tags=["Segments"], route_class=JsonRoute)

_FINDING = (LIST_NOT_FOUND, LIST_NOT_OWNER)
_RULES = (FILTER_INVALID, refusals.SEGMENT_NAME, refusals.SEGMENT_NAME_TAKEN)
_ONE = "/lists/{list_id}/segments/{segment_id}"


@router.post(
    "/lists/{list_id}/segments", responses=refuses(*_FINDING, *_RULES, refusals.SEGMENT_TOO_MANY)
)
@RECORDS.threaded
def create_segment(
    state: StateOf, caller: ListEditor, list_id: ListId, body: NewSegment
) -> Envelope[SegmentRecord]:
    """Keep a filter under a name. Who is in the segment is looked up when it is used.

    A list has at most 500. A field that gets another key stays the same field here.
    """
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.owned(uow, caller, list_id)
        made = saved.create(uow, mailing_list, body.name, body.filter)
        return envelope(_record(uow, mailing_list, made))


@router.get("/lists/{list_id}/segments", responses=refuses(*_FINDING, CURSOR_INVALID))
@RECORDS.threaded
def list_segments(
    state: StateOf, caller: ListReader, list_id: ListId, paging: Paging
) -> Envelope[Page[SegmentRecord]]:
    """The segments of a list, newest first."""
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.owned(uow, caller, list_id)
        found = saved.list_of(uow, mailing_list, paging)
        filters = stored_filters.shown(uow, mailing_list, *(each.filter for each in found.rows))
        items = [
            SegmentRecord.of_row(each, filter=written)
            for each, written in zip(found.rows, filters, strict=True)
        ]
    return envelope(page(items, paging, found))


@router.get(
    _ONE,
    responses=refuses(
        *_FINDING,
        refusals.SEGMENT_NOT_FOUND,
        refusals.SEGMENT_FIELD_RETIRED,
        FILTER_INVALID,
        SERVICE_BUSY,
    ),
)
async def read_segment(
    state: StateOf, caller: ListReader, list_id: ListId, segment_id: PathId
) -> Envelope[CountedSegment]:
    """One segment, with the number of members whom it means now.

    All members are looked at for up to two seconds, which is enough for a million. Of more the
    number stands for a sample, and is right to about one in a hundred of the list.
    """
    found = await SEARCHES_BY_CALLER.run(
        caller.user_id, _counted, state, caller, list_id, segment_id
    )
    return envelope(found)


def _counted(state: State, caller: Caller, list_id: int, segment_id: int) -> CountedSegment:
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.owned(uow, caller, list_id)
        found = saved.get(uow, mailing_list.id, segment_id)
        wanted = stored_filters.read(uow, mailing_list, found.filter)
        [written] = stored_filters.shown(uow, mailing_list, found.filter)
    counted = counting.count(state.resources, mailing_list, wanted)
    return CountedSegment.of_row(
        found, filter=written, count=counted.count, count_is_exact=counted.is_exact
    )


@router.patch(_ONE, responses=refuses(*_FINDING, refusals.SEGMENT_NOT_FOUND, *_RULES))
@RECORDS.threaded
def change_segment(
    state: StateOf, caller: ListEditor, list_id: ListId, segment_id: PathId, body: SegmentChanges
) -> Envelope[SegmentRecord]:
    """Change the name or the filter; what the body doesn't name stays."""
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.owned(uow, caller, list_id)
        changed = saved.change(uow, mailing_list, segment_id, body.sent())
        return envelope(_record(uow, mailing_list, changed))


@router.delete(_ONE, responses=refuses(*_FINDING))
@RECORDS.threaded
def delete_segment(
    state: StateOf, caller: ListEditor, list_id: ListId, segment_id: PathId
) -> Envelope[int]:
    """Delete a segment, and no member: 1, or 0 when there is none."""
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.owned(uow, caller, list_id)
        return envelope(saved.remove(uow, mailing_list, segment_id))


def _record(uow: UnitOfWork, mailing_list: MailingList, segment: Segment) -> SegmentRecord:
    written: dict[str, Any]
    [written] = stored_filters.shown(uow, mailing_list, segment.filter)
    return SegmentRecord.of_row(segment, filter=written)
