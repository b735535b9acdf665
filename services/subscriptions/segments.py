"""Segments: named filters of a list's members.

A segment stores only its filter. Its members are looked up when the segment is used.
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
from storage.expected_errors import raise_if_taken
from storage.unit_of_work import UnitOfWork

MAX_SEGMENT_NAME_CHARACTERS = 100
MAX_SEGMENTS_A_LIST = 500
# Without the lock, two concurrent calls could exceed the maximum together.
_LOCK_SEGMENTS = text("SELECT pg_advisory_xact_lock(hashtext('segments'), hashint8(:list_id))")


def create_segment(uow: UnitOfWork, mailing_list: MailingList, name: str, written: Any) -> Segment:
    """Create a segment from a filter in JSON, together with tags that the list doesn't have yet.

    Raises ``segment.name``, ``segment.name_taken``, ``segment.too_many``, ``quota.exceeded``, and
    the errors of ``member_filter.prepare_stored_filter``.
    """
    stored_filter = member_filter.prepare_stored_filter(
        uow, mailing_list, written, create_tags=True
    )
    _require_room(uow, mailing_list, quotas.count_row_bytes(stored_filter))
    uow.session.execute(_LOCK_SEGMENTS, {"list_id": mailing_list.id})
    counted = select(func.count()).where(Segment.list_id == mailing_list.id)
    if (uow.session.scalar(counted) or 0) >= MAX_SEGMENTS_A_LIST:
        raise errors.SEGMENT_TOO_MANY(most=MAX_SEGMENTS_A_LIST)
    segment = Segment(list_id=mailing_list.id, filter=stored_filter)
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
        stored_filter = member_filter.prepare_stored_filter(
            uow, mailing_list, fields["filter"], create_tags=True
        )
        growth = quotas.count_row_bytes(stored_filter) - quotas.count_row_bytes(segment.filter)
        if growth > 0:
            _require_room(uow, mailing_list, growth)
        segment.filter = stored_filter
    if "name" in fields:
        _name(segment, fields["name"])
    _flush(uow, segment)
    return segment


def delete_segment(uow: UnitOfWork, mailing_list: MailingList, segment_id: int) -> int:
    """Delete the segment, but not its members; returns 1, or 0 if the segment doesn't exist."""
    is_segment = and_(Segment.id == segment_id, Segment.list_id == mailing_list.id)
    return len(uow.session.execute(delete(Segment).where(is_segment).returning(Segment.id)).all())


def get_segment(uow: UnitOfWork, list_id: int, segment_id: int) -> Segment:
    """Return a segment of the list, with its filter; raises ``segment.not_found``."""
    query = select(Segment).where(Segment.id == segment_id, Segment.list_id == list_id)
    segment = uow.session.scalar(query.options(undefer(Segment.filter)))
    if segment is None:
        raise errors.SEGMENT_NOT_FOUND()
    return segment


def choose_filter(
    uow: UnitOfWork, mailing_list: MailingList, segment_id: int | None, written: Any
) -> dict[str, Any] | None:
    """Return the stored form of a segment's filter or of a filter in JSON; ``None`` without either.

    The tags of the filter can't be deleted until the transaction ends. Raises
    ``selection.unclear`` if the call has two filters, ``segment.not_found``, and the errors of
    ``member_filter``.
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
    # An unusable filter is refused here, so that the job doesn't fail.
    member_filter.read_stored_filter(uow, mailing_list, segment.filter, lock=True)
    return segment.filter


def read_filter(uow: UnitOfWork, mailing_list: MailingList, segment_id: int) -> MemberFilter:
    """Return the segment's filter, ready for use.

    Raises ``segment.not_found``, ``segment.field_retired``.
    """
    segment = get_segment(uow, mailing_list.id, segment_id)
    return member_filter.read_stored_filter(uow, mailing_list, segment.filter)


def list_segments(
    uow: UnitOfWork, mailing_list: MailingList, wanted: PageRequest, *, with_filters: bool = False
) -> PageOfRows[Segment]:
    """Return a page of the list's segments, newest first; raises ``cursor.invalid``."""
    query = select(Segment).where(Segment.list_id == mailing_list.id)
    if with_filters:
        query = query.options(undefer(Segment.filter))
    return paging.read(uow, paging.by_id(query, Segment.id, wanted), wanted)


def _require_room(uow: UnitOfWork, mailing_list: MailingList, more: int) -> None:
    quotas.require_quota(uow, mailing_list.user_id, PlanQuota.STORAGE_MB, more=more)


def _name(segment: Segment, name: str) -> None:
    segment.name = name = name.strip()
    segment.folded = fold_case(name)
    if len(name) > MAX_SEGMENT_NAME_CHARACTERS or not is_plain(name):
        raise errors.SEGMENT_NAME(most=MAX_SEGMENT_NAME_CHARACTERS)


def _flush(uow: UnitOfWork, segment: Segment) -> None:
    with raise_if_taken("uq_segments_list_id_folded", errors.SEGMENT_NAME_TAKEN(name=segment.name)):
        uow.session.flush()
