"""Creates, changes and reads segments, which are named filters for the members of a list.

Each use of a segment selects the members who match the filter at the time of the use.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import and_, delete, func, select, text
from sqlalchemy.orm import undefer

from core.errors import mailing as errors
from core.languages.shown_lines import fold_case, is_plain
from core.settings.notations import PlanQuota
from models import MailingList, Segment
from services import paging
from services.access import quotas
from services.paging import PageOfRows, PageRequest
from services.subscriptions.filters import member_filter
from services.subscriptions.filters.member_filter import MemberFilter
from services.subscriptions.watches import watches
from storage.expected_errors import raise_if_taken
from storage.unit_of_work import UnitOfWork

MAX_SEGMENT_NAME_CHARACTERS = 100
MAX_SEGMENTS_PER_LIST = 500
# Lock the list's segments, so that concurrent requests together can't exceed the maximum number of
# segments.
_LOCK_SEGMENTS = text("SELECT pg_advisory_xact_lock(hashtext('segments'), hashint8(:list_id))")


def create_segment(uow: UnitOfWork, mailing_list: MailingList, name: str, written: Any) -> Segment:
    stored_filter = member_filter.prepare_stored_filter(
        uow, mailing_list, written, create_tags=True
    )
    _require_room(uow, mailing_list, quotas.count_row_bytes(stored_filter))
    uow.session.execute(_LOCK_SEGMENTS, {"list_id": mailing_list.id})
    segment_count = select(func.count()).where(Segment.list_id == mailing_list.id)
    if (uow.session.scalar(segment_count) or 0) >= MAX_SEGMENTS_PER_LIST:
        raise errors.SEGMENT_TOO_MANY(most=MAX_SEGMENTS_PER_LIST)
    segment = Segment(list_id=mailing_list.id, filter=stored_filter)
    _set_name(segment, name)
    uow.session.add(segment)
    _flush(uow, segment)
    return segment


def change_segment(
    uow: UnitOfWork, mailing_list: MailingList, segment_id: int, fields: Mapping[str, Any]
) -> Segment:
    segment = get_segment(uow, mailing_list.id, segment_id)
    # A comparison also locks the watch before the quota.
    watches.find_watch(uow, segment_id, lock=True)
    if "filter" in fields:
        stored_filter = member_filter.prepare_stored_filter(
            uow, mailing_list, fields["filter"], create_tags=True
        )
        growth = quotas.count_row_bytes(stored_filter) - quotas.count_row_bytes(segment.filter)
        if growth > 0:
            _require_room(uow, mailing_list, growth)
        segment.filter = stored_filter
    if "name" in fields:
        _set_name(segment, fields["name"])
    _flush(uow, segment)
    if "watch" in fields:
        watches.change_watch(uow, mailing_list, segment, fields["watch"])
    return segment


def delete_segment(uow: UnitOfWork, mailing_list: MailingList, segment_id: int) -> int:
    is_segment = and_(Segment.id == segment_id, Segment.list_id == mailing_list.id)
    return len(uow.session.execute(delete(Segment).where(is_segment).returning(Segment.id)).all())


def get_segment(uow: UnitOfWork, list_id: int, segment_id: int) -> Segment:
    query = select(Segment).where(Segment.id == segment_id, Segment.list_id == list_id)
    segment = uow.session.scalar(query.options(undefer(Segment.filter)))
    if segment is None:
        raise errors.SEGMENT_NOT_FOUND()
    return segment


def choose_filter(
    uow: UnitOfWork, mailing_list: MailingList, segment_id: int | None, written: Any
) -> dict[str, Any] | None:
    """Return the request's filter or segment in stored form, or ``None`` to select all members.

    The filter's tags are locked against deletion.
    """
    if segment_id is None:
        return (
            None
            if written is None
            else member_filter.prepare_stored_filter(uow, mailing_list, written)
        )
    if written is not None:
        raise errors.SELECTION_UNCLEAR()
    segment = get_segment(uow, mailing_list.id, segment_id)
    # Parse the filter, so that a retired field or a deleted tag causes an error before a job is
    # enqueued.
    member_filter.read_stored_filter(uow, mailing_list, segment.filter, lock=True)
    return segment.filter


def read_filter(uow: UnitOfWork, mailing_list: MailingList, segment_id: int) -> MemberFilter:
    segment = get_segment(uow, mailing_list.id, segment_id)
    return member_filter.read_stored_filter(uow, mailing_list, segment.filter)


def list_segments(
    uow: UnitOfWork, mailing_list: MailingList, page: PageRequest, *, with_filters: bool = False
) -> PageOfRows[Segment]:
    query = select(Segment).where(Segment.list_id == mailing_list.id)
    if with_filters:
        query = query.options(undefer(Segment.filter))
    return paging.read_page(uow, paging.select_page_by_id(query, Segment.id, page), page)


def _require_room(uow: UnitOfWork, mailing_list: MailingList, more: int) -> None:
    quotas.require_quota(uow, mailing_list.user_id, PlanQuota.STORAGE_MB, more=more)


def _set_name(segment: Segment, name: str) -> None:
    segment.name = name = name.strip()
    segment.folded = fold_case(name)
    if len(name) > MAX_SEGMENT_NAME_CHARACTERS or not is_plain(name):
        raise errors.SEGMENT_NAME(most=MAX_SEGMENT_NAME_CHARACTERS)


def _flush(uow: UnitOfWork, segment: Segment) -> None:
    with raise_if_taken("uq_segments_list_id_folded", errors.SEGMENT_NAME_TAKEN(name=segment.name)):
        uow.session.flush()
