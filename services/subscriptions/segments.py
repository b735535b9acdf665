"""Segments: filters of a list's members that its owner keeps under a name.

A segment is its filter and nothing else: its members are looked up when it is used.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import Any

import psycopg2.errors
from sqlalchemy import Row, Select, delete, func, select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import undefer

from core.errors import mailing as errors
from core.ids import MAX_ID
from core.languages.shown_lines import caseless, is_plain
from core.settings.notations import PlanQuota
from models import MailingList, Segment, Subscription
from services import paging
from services.access import quotas
from services.paging import PageOfRows, PageRequest
from services.subscriptions import subscriber_counts
from services.subscriptions.filters import member_filter, searching
from services.subscriptions.filters.member_filter import MemberFilter
from storage.expected_errors import raise_if_taken
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

MAX_SEGMENT_NAME_CHARACTERS = 100
MAX_SEGMENTS_A_LIST = 500
# When two calls come at the same moment, the second counts the first one's segment.
_ALONE = text("SELECT pg_advisory_xact_lock(hashtext('segments'), hashint8(:list_id))")


def create_segment(uow: UnitOfWork, mailing_list: MailingList, name: str, written: Any) -> Segment:
    """A new segment of the filter that is written as JSON. Tags that the list has not are made.

    Raises ``segment.name``, ``segment.name_taken``, ``segment.too_many``, ``quota.exceeded``, and
    what ``member_filter.keep`` raises.
    """
    kept = member_filter.keep(uow, mailing_list, written, make_tags=True)
    _require_room(uow, mailing_list, quotas.row_bytes(kept))
    uow.session.execute(_ALONE, {"list_id": mailing_list.id})
    counted = select(func.count()).where(Segment.list_id == mailing_list.id)
    if (uow.session.scalar(counted) or 0) >= MAX_SEGMENTS_A_LIST:
        raise errors.SEGMENT_TOO_MANY(most=MAX_SEGMENTS_A_LIST)
    segment = Segment(list_id=mailing_list.id, filter=kept)
    _name(segment, name)
    uow.session.add(segment)
    _flush(uow, segment)
    return segment


def change_segment(
    uow: UnitOfWork, mailing_list: MailingList, segment_id: int, fields: Mapping[str, Any]
) -> Segment:
    """Set ``name`` and ``filter`` if ``fields`` has them.

    Raises the errors of ``get_segment`` and ``create_segment``.
    """
    segment = get_segment(uow, mailing_list.id, segment_id)
    if "filter" in fields:
        kept = member_filter.keep(uow, mailing_list, fields["filter"], make_tags=True)
        growth = quotas.row_bytes(kept) - quotas.row_bytes(segment.filter)
        if growth > 0:
            _require_room(uow, mailing_list, growth)
        segment.filter = kept
    if "name" in fields:
        _name(segment, fields["name"])
    _flush(uow, segment)
    return segment


def delete_segment(uow: UnitOfWork, mailing_list: MailingList, segment_id: int) -> int:
    """Delete the segment, and no member: 1, or 0 when there is none."""
    own = Segment.id == segment_id, Segment.list_id == mailing_list.id
    return len(uow.session.execute(delete(Segment).where(*own).returning(Segment.id)).all())


def get_segment(uow: UnitOfWork, list_id: int, segment_id: int) -> Segment:
    """Raises ``segment.not_found``, also for a segment of another list."""
    query = select(Segment).where(Segment.id == segment_id, Segment.list_id == list_id)
    found = uow.session.scalar(query.options(undefer(Segment.filter)))
    if found is None:
        raise errors.SEGMENT_NOT_FOUND()
    return found


def choose_filter(
    uow: UnitOfWork, mailing_list: MailingList, segment_id: int | None, written: Any
) -> dict[str, Any] | None:
    """The filter of a segment, or the one that is written, as it is kept; ``None`` without both.

    Its tags can't be deleted until the transaction ends. Raises ``selection.unclear`` for both,
    ``segment.not_found``, and what ``member_filter`` raises for a stored or a written filter.
    """
    if segment_id is None:
        return None if written is None else member_filter.keep(uow, mailing_list, written)
    if written is not None:
        raise errors.SELECTION_UNCLEAR()
    segment = get_segment(uow, mailing_list.id, segment_id)
    # A filter that can't be used is refused now, and not by the job.
    member_filter.read_stored(uow, mailing_list, segment.filter, hold=True)
    return segment.filter


def read_filter(uow: UnitOfWork, mailing_list: MailingList, segment_id: int) -> MemberFilter:
    """The segment's filter, to be used now.

    Raises ``segment.not_found``, ``segment.field_retired``.
    """
    segment = get_segment(uow, mailing_list.id, segment_id)
    return member_filter.read_stored(uow, mailing_list, segment.filter)


def list_segments(
    uow: UnitOfWork, mailing_list: MailingList, wanted: PageRequest, *, with_filters: bool = False
) -> PageOfRows[Segment]:
    """The list's segments, newest first. Raises ``cursor.invalid``."""
    query = select(Segment).where(Segment.list_id == mailing_list.id)
    if with_filters:
        query = query.options(undefer(Segment.filter))
    return paging.read(uow, paging.by_id(query, Segment.id, wanted), wanted)


def _require_room(uow: UnitOfWork, mailing_list: MailingList, more: int) -> None:
    quotas.require(uow, mailing_list.user_id, PlanQuota.STORAGE_MB, more=more)


def _name(segment: Segment, name: str) -> None:
    segment.name = name = name.strip()
    segment.folded = caseless(name)
    if len(name) > MAX_SEGMENT_NAME_CHARACTERS or not is_plain(name):
        raise errors.SEGMENT_NAME(most=MAX_SEGMENT_NAME_CHARACTERS)


def _flush(uow: UnitOfWork, segment: Segment) -> None:
    with raise_if_taken("uq_segments_list_id_folded", errors.SEGMENT_NAME_TAKEN(name=segment.name)):
        uow.session.flush()


# A million members take about half of it where they are in memory.
MAX_EXACT_TIME = timedelta(seconds=2)
# 5 to 10 ms of work.
MAX_MEMBERS_AT_ONCE = 10_000


@dataclass(frozen=True)
class MemberCount:
    """How many members are meant; at least ``count_members``, unless all were looked at."""

    count: int
    is_exact: bool


def count_members(
    resources: Resources,
    mailing_list: MailingList,
    wanted: MemberFilter,
    *,
    within: timedelta = MAX_EXACT_TIME,
) -> MemberCount:
    """Count by an index where one helps, and otherwise one member after the other.

    It takes no more time than ``within``, however many members the list has.
    """
    if wanted.is_all_active:
        with resources.unit_of_work() as uow:
            known = subscriber_counts.count_subscribers(uow, [mailing_list.id])
            return MemberCount(known[mailing_list.id], is_exact=True)
    begun_at, seconds = monotonic(), within.total_seconds()
    if (bound := wanted.indexed()) is not None:
        s = Subscription
        query = select(func.count()).where(s.list_id == mailing_list.id, wanted.condition(), bound)
        # An index that finds many takes as long as a look at all, which tells a part at least.
        if found := _in_time(resources, query, begun_at + seconds / 2):
            return MemberCount(found[0], is_exact=True)
    if not (statuses := wanted.statuses()):
        return MemberCount(0, is_exact=True)
    seen = searching.newest(statuses, MAX_MEMBERS_AT_ONCE, by_cursor=True)
    meant = func.count().filter(wanted.condition(seen))
    batch = select(meant, func.count(), func.min(seen.c.id)).select_from(seen)
    counted, before = 0, MAX_ID + 1
    ends_at, list_id = begun_at + seconds, mailing_list.id
    while found := _in_time(resources, batch, ends_at, list_id=list_id, before=before):
        counted += found[0]
        if found[1] < MAX_MEMBERS_AT_ONCE:
            return MemberCount(counted, is_exact=True)
        before = found[2]
    return MemberCount(counted, is_exact=False)


def _in_time(
    resources: Resources, query: Select[*tuple[Any, ...]], ends_at: float, **values: int
) -> Row[*tuple[Any, ...]] | None:
    """The one row of the query; ``None`` if the time is over before it is found."""
    milliseconds = int((ends_at - monotonic()) * 1000)
    if milliseconds < 1:
        return None
    try:
        with resources.unit_of_work() as uow:
            uow.session.execute(text(f"SET LOCAL statement_timeout = {milliseconds}"))
            return uow.session.execute(query, values).one()
    except OperationalError as error:
        if not isinstance(error.orig, psycopg2.errors.QueryCanceled):
            raise
    return None
