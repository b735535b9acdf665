from dataclasses import dataclass

from sqlalchemy import select

from core import ids
from models import RecordedEvent
from services.paging import newest_first
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class EventPage:
    events: list[RecordedEvent]
    next_cursor: str | None


def page(uow: UnitOfWork, user_id: int, *, limit: int, cursor: str | None = None) -> EventPage:
    """The user's events, newest first. ``cursor``: from the page before; raises ``cursor.invalid``.

    The ids are in the order of the rows' writing, which may differ from that of their commits by
    the length of a transaction.
    """
    before = None if cursor is None else ids.of_cursor(cursor)
    of_user = RecordedEvent.user_id, user_id, RecordedEvent.id
    query = newest_first(select(RecordedEvent), *of_user, before=before)
    found = list(uow.session.scalars(query.limit(limit + 1)))
    more = len(found) > limit
    return EventPage(found[:limit], str(found[limit - 1].id) if more else None)
