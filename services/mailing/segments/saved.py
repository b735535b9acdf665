"""Segments as their owner makes, finds, changes and deletes them."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import delete, func, select, text
from sqlalchemy.exc import IntegrityError

from core.languages.shown_lines import is_plain
from core.refusals.segments import (
    SEGMENT_NAME,
    SEGMENT_NAME_TAKEN,
    SEGMENT_NOT_FOUND,
    SEGMENT_TOO_MANY,
    SELECTION_UNCLEAR,
)
from models import MailingList, Segment
from services import paging
from services.mailing.filters.member_filter import MemberFilter
from services.mailing.segments import stored_filters
from services.paging import PageOfRows, PageRequest
from storage.unit_of_work import UnitOfWork

MAX_SEGMENT_NAME_CHARACTERS = 100
MAX_SEGMENTS_A_LIST = 500
# Of two calls at the same moment one counts the other's segment.
_ALONE = text("SELECT pg_advisory_xact_lock(hashtext('segments'), hashint8(:list_id))")


def create(uow: UnitOfWork, mailing_list: MailingList, name: str, written: Any) -> Segment:
    """A new segment of the filter that is written as JSON.

    Raises ``segment.name``, ``segment.name_taken``, ``segment.too_many``, ``filter.invalid``.
    """
    kept = stored_filters.keep(uow, mailing_list, written)
    uow.session.execute(_ALONE, {"list_id": mailing_list.id})
    counted = select(func.count()).where(Segment.list_id == mailing_list.id)
    if (uow.session.scalar(counted) or 0) >= MAX_SEGMENTS_A_LIST:
        raise SEGMENT_TOO_MANY(most=MAX_SEGMENTS_A_LIST)
    segment = Segment(list_id=mailing_list.id, filter=kept)
    _name(segment, name)
    uow.session.add(segment)
    _flush(uow, segment)
    return segment


def change(
    uow: UnitOfWork, mailing_list: MailingList, segment_id: int, fields: Mapping[str, Any]
) -> Segment:
    """Set the named ones of ``name`` and ``filter``; raises what ``get`` and ``create`` raise."""
    segment = get(uow, mailing_list.id, segment_id)
    if "filter" in fields:
        segment.filter = stored_filters.keep(uow, mailing_list, fields["filter"])
    if "name" in fields:
        _name(segment, fields["name"])
    _flush(uow, segment)
    return segment


def remove(uow: UnitOfWork, mailing_list: MailingList, segment_id: int) -> int:
    """Delete the segment, and no member: 1, or 0 when there is none."""
    own = Segment.id == segment_id, Segment.list_id == mailing_list.id
    return len(uow.session.execute(delete(Segment).where(*own).returning(Segment.id)).all())


def get(uow: UnitOfWork, list_id: int, segment_id: int) -> Segment:
    """Raises ``segment.not_found``, also for a segment of another list."""
    query = select(Segment).where(Segment.id == segment_id, Segment.list_id == list_id)
    found = uow.session.scalar(query)
    if found is None:
        raise SEGMENT_NOT_FOUND()
    return found


def selected(
    uow: UnitOfWork, mailing_list: MailingList, segment_id: int | None, written: Any
) -> dict[str, Any] | None:
    """The filter of a segment, or the one that is written, as it is kept; ``None`` without both.

    Raises ``selection.unclear`` for both, ``segment.not_found``, ``segment.field_retired``,
    ``filter.invalid``.
    """
    if segment_id is None:
        return None if written is None else stored_filters.keep(uow, mailing_list, written)
    if written is not None:
        raise SELECTION_UNCLEAR()
    # What can't be used is refused now, and not by the job.
    read_filter(uow, mailing_list, segment_id)
    return get(uow, mailing_list.id, segment_id).filter


def read_filter(uow: UnitOfWork, mailing_list: MailingList, segment_id: int) -> MemberFilter:
    """The segment's filter, to be used now.

    Raises ``segment.not_found``, ``segment.field_retired``, ``filter.invalid``.
    """
    segment = get(uow, mailing_list.id, segment_id)
    return stored_filters.read(uow, mailing_list, segment.filter)


def list_of(uow: UnitOfWork, mailing_list: MailingList, wanted: PageRequest) -> PageOfRows[Segment]:
    """The list's segments, newest first. Raises ``cursor.invalid``."""
    query = select(Segment).where(Segment.list_id == mailing_list.id)
    found = uow.session.scalars(paging.by_id(query, Segment.id, wanted)).all()
    return paging.cut(found, wanted.limit, lambda segment: str(segment.id))


def _name(segment: Segment, name: str) -> None:
    segment.name = name = name.strip()
    segment.folded = name.casefold()
    if len(name) > MAX_SEGMENT_NAME_CHARACTERS or not is_plain(name):
        raise SEGMENT_NAME(most=MAX_SEGMENT_NAME_CHARACTERS)


def _flush(uow: UnitOfWork, segment: Segment) -> None:
    name = segment.name
    try:
        uow.session.flush()
    except IntegrityError as error:
        if "uq_segments_list_id_folded" not in str(error.orig):
            raise
        raise SEGMENT_NAME_TAKEN(name=name) from None
