"""The API endpoints for segments."""

from collections.abc import Callable
from functools import partial
from typing import Any

from fastapi import APIRouter

from api.auth.member_reads import count_members_page, limit_members_page
from api.auth.requirements import ListEditor, ListReader, MemberReader
from api.limits.keyed_bulkheads import SEARCHES_BY_CALLER
from api.openapi.declarations import LIST_ERRORS, error_responses
from api.paging import Paging
from api.record_ids import ListId, PathId
from api.route_classes import JsonRoute
from api.schemas.envelope import Envelope, Page, build_envelope, build_page
from api.schemas.segments import (
    CountedSegment,
    NewSegment,
    SegmentChangeRecord,
    SegmentChanges,
    SegmentRecord,
    WatchRecord,
)
from api.state import State, StateOf, Transaction
from core.errors import access, mailing, requests
from core.logging import get_logger
from core.permissions import Permission
from models import MailingList, Segment, SegmentWatch
from services.access.caller import Caller
from services.subscriptions import lists
from services.subscriptions import segments as list_segments_module
from services.subscriptions.filters import member_counts, member_filter
from services.subscriptions.filters.member_counts import MemberCount
from services.subscriptions.watches import watches
from services.subscriptions.watches.watches import ListedChange
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

router = APIRouter(tags=["Segments"], route_class=JsonRoute)

_SEGMENT_ERRORS = (
    mailing.FILTER_INVALID,
    mailing.FILTER_TOO_LARGE,
    mailing.TAG_TOO_MANY,
    access.QUOTA_EXCEEDED,
    mailing.SEGMENT_NAME,
    mailing.SEGMENT_NAME_TAKEN,
    mailing.LIST_BUSY,
)
_SEGMENT_PATH = "/lists/{list_id}/segments/{segment_id}"


@router.post(
    "/lists/{list_id}/segments",
    summary="Create a segment",
    responses=error_responses(*LIST_ERRORS, *_SEGMENT_ERRORS, mailing.SEGMENT_TOO_MANY),
)
async def create_segment(
    state: StateOf, caller: ListEditor, list_id: ListId, body: NewSegment
) -> Envelope[CountedSegment]:
    """Create a segment, which is a saved filter. The members are looked up each time the segment is
    used. Returns the current number of members, like `GET`.

    A list can have at most 500 segments. A segment still works after a field or tag is renamed.
    Tags that the list doesn't have yet are created.

    If counting fails, the segment is created anyway. Then `count` is 0, and `count_is_exact` is
    false.
    """

    def create(uow: UnitOfWork, mailing_list: MailingList) -> Segment:
        return list_segments_module.create_segment(uow, mailing_list, body.name, body.filter)

    return await _count_members(state, caller, list_id, create, is_new=True)


@router.get(
    "/lists/{list_id}/segments",
    summary="List all segments",
    responses=error_responses(*LIST_ERRORS, requests.CURSOR_INVALID),
)
def list_segments(
    uow: Transaction, caller: ListReader, list_id: ListId, paging: Paging
) -> Envelope[Page[SegmentRecord]]:
    """List the segments of a list, newest first."""
    mailing_list = lists.get_own_list(uow, caller, list_id)
    read = partial(list_segments_module.list_segments, uow, mailing_list, with_filters=True)

    def convert(rows: list[Segment]) -> list[SegmentRecord]:
        filters = member_filter.restore_names(
            uow, mailing_list, *(segment.filter for segment in rows)
        )
        watch_by_segment = watches.find_watches(uow, [segment.id for segment in rows])
        return [
            SegmentRecord.of_row(
                segment,
                filter=filter_document if caller.may(Permission.MEMBERS) else None,
                watch=_build_watch(watch_by_segment.get(segment.id)),
            )
            for segment, filter_document in zip(rows, filters, strict=True)
        ]

    return build_envelope(build_page(paging, read, convert))


@router.get(
    _SEGMENT_PATH,
    summary="Retrieve a segment",
    responses=error_responses(
        *LIST_ERRORS,
        mailing.SEGMENT_NOT_FOUND,
        mailing.SEGMENT_FIELD_RETIRED,
        mailing.SEGMENT_TAG_DELETED,
        mailing.FILTER_INVALID,
        requests.SERVICE_BUSY,
    ),
)
async def read_segment(
    state: StateOf, caller: ListReader, list_id: ListId, segment_id: PathId
) -> Envelope[CountedSegment]:
    """Retrieve a segment and the current number of its members.

    Counting stops after two seconds, which is enough for about a million members. If counting stops
    early, `count_is_exact` is false, and the segment has at least `count` members.
    """

    def find(uow: UnitOfWork, mailing_list: MailingList) -> Segment:
        return list_segments_module.get_segment(uow, mailing_list.id, segment_id)

    return await _count_members(state, caller, list_id, find)


@router.patch(
    _SEGMENT_PATH,
    summary="Update a segment",
    responses=error_responses(
        *LIST_ERRORS,
        mailing.SEGMENT_NOT_FOUND,
        *_SEGMENT_ERRORS,
        mailing.SEGMENT_TIME_ZONE,
        mailing.SEGMENT_TOO_MANY_WATCHED,
    ),
)
def change_segment(
    uow: Transaction, caller: ListEditor, list_id: ListId, segment_id: PathId, body: SegmentChanges
) -> Envelope[SegmentRecord]:
    """Update the name, the filter or the watch of a segment. Fields that the request omits don't
    change.

    Pressroom compares a watched segment with its recorded members again and again. It reports the
    differences as the events `segment.entered` and `segment.left`. An account can watch at most
    20 segments.
    """
    mailing_list = lists.get_own_list(uow, caller, list_id)
    segment = list_segments_module.change_segment(uow, mailing_list, segment_id, body.sent())
    return build_envelope(_build_record(uow, mailing_list, segment))


@router.get(
    f"{_SEGMENT_PATH}/changes",
    summary="List the changes of a watched segment",
    responses=error_responses(*LIST_ERRORS, mailing.SEGMENT_NOT_FOUND, requests.CURSOR_INVALID),
)
def list_segment_changes(
    state: StateOf,
    uow: Transaction,
    caller: MemberReader,
    list_id: ListId,
    segment_id: PathId,
    paging: Paging,
) -> Envelope[Page[SegmentChangeRecord]]:
    """List the entries and exits of the last 30 days, oldest first.

    The changes of a comparison with more than 10,000 changes are listed too. Silent changes, such
    as imported members, aren't listed.
    """
    mailing_list = lists.get_own_list(uow, caller, list_id)
    list_segments_module.get_segment(uow, mailing_list.id, segment_id)
    read = partial(watches.list_changes, uow, mailing_list, segment_id)

    def convert(rows: list[ListedChange]) -> list[SegmentChangeRecord]:
        return [
            SegmentChangeRecord.of_row(row.change, email=row.email, name=row.name) for row in rows
        ]

    page = build_page(limit_members_page(caller, paging), read, convert)
    count_members_page(state, caller)
    return build_envelope(page)


@router.delete(_SEGMENT_PATH, summary="Delete a segment", responses=error_responses(*LIST_ERRORS))
def delete_segment(
    uow: Transaction, caller: ListEditor, list_id: ListId, segment_id: PathId
) -> Envelope[int]:
    """Delete a segment, but no members. Returns 1, or 0 if the segment doesn't exist."""
    mailing_list = lists.get_own_list(uow, caller, list_id)
    return build_envelope(list_segments_module.delete_segment(uow, mailing_list, segment_id))


async def _count_members(
    state: State,
    caller: Caller,
    list_id: int,
    find_or_create: Callable[[UnitOfWork, MailingList], Segment],
    *,
    is_new: bool = False,
) -> Envelope[CountedSegment]:
    def count_in_thread() -> CountedSegment:
        with state.resources.unit_of_work() as uow:
            mailing_list = lists.get_own_list(uow, caller, list_id)
            segment = find_or_create(uow, mailing_list)
            filter_tree = member_filter.read_stored_filter(uow, mailing_list, segment.filter)
            [filter_document] = member_filter.restore_names(uow, mailing_list, segment.filter)
            watch = _build_watch(watches.find_watch(uow, segment.id))
        # Count after the commit, because counting can take seconds.
        try:
            count = member_counts.count_members(state.resources, mailing_list, filter_tree)
        except Exception:  # After any error, the client would create the new segment again.
            if not is_new:
                raise
            log.exception("segment.count_failed")
            count = MemberCount(0, is_exact=False)
        return CountedSegment.of_row(
            segment,
            filter=filter_document if caller.may(Permission.MEMBERS) else None,
            watch=watch,
            count=count.count,
            count_is_exact=count.is_exact,
        )

    return build_envelope(await SEARCHES_BY_CALLER.run(caller.account_id, count_in_thread))


def _build_record(uow: UnitOfWork, mailing_list: MailingList, segment: Segment) -> SegmentRecord:
    filter_document: dict[str, Any]
    [filter_document] = member_filter.restore_names(uow, mailing_list, segment.filter)
    watch = _build_watch(watches.find_watch(uow, segment.id))
    return SegmentRecord.of_row(segment, filter=filter_document, watch=watch)


def _build_watch(watch: SegmentWatch | None) -> WatchRecord | None:
    return None if watch is None else WatchRecord.of_watch(watch)
