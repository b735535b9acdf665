"""Reading the feed: an owner's events in order, from a position on."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Select,
    SQLColumnExpression,
    Text,
    cast,
    func,
    select,
    true,
    tuple_,
)
from sqlalchemy.orm import Session, aliased

from core.refusals.mailing import LIST_NOT_FOUND
from models import FeedEvent, MailingList
from services.feed.catalogue import FeedEventType
from services.feed.positions import START, FeedPosition, horizon
from storage.unit_of_work import UnitOfWork

# For so long at least. It is a promise to readers, which the database holds us to.
FEED_RETENTION = timedelta(days=30)
_NONE: Mapping[str, FeedPosition] = {}


@dataclass(frozen=True)
class FeedPage:
    """
    Attributes:
        next_cursor: where to go on, also from an empty page.
        has_more: whether the next page has an event already.
    """

    events: list[FeedEvent]
    next_cursor: str
    has_more: bool


def page(
    uow: UnitOfWork,
    user_id: int,
    *,
    types: Collection[FeedEventType],
    list_id: int | None,
    cursor: str | None,
    limit: int,
) -> FeedPage:
    """The owner's events after the cursor, oldest first; without one from the oldest kept on.

    Raises ``cursor.invalid``, and ``list.not_found`` also for another owner's list.
    """
    position = START if cursor is None else FeedPosition.of_cursor(cursor)
    if list_id is not None:
        own = select(MailingList.id).where(MailingList.id == list_id)
        if uow.session.scalar(own.where(MailingList.user_id == user_id)) is None:
            raise LIST_NOT_FOUND()
    found = read_after(
        uow.session, user_id, position, types=types, list_id=list_id, limit=limit + 1
    )
    events = found[:limit]
    last = FeedPosition.of_event(events[-1]) if events else position
    return FeedPage(events, last.cursor, has_more=len(found) > limit)


def read_after(
    session: Session,
    user_id: int,
    position: FeedPosition,
    *,
    types: Collection[FeedEventType],
    later: Mapping[str, FeedPosition] = _NONE,
    list_id: int | None = None,
    limit: int,
) -> list[FeedEvent]:
    """The owner's next events of these types, in order; none whose older neighbour may yet come.

    ``later``: positions of types of which only what comes after those is read, too.
    """
    query = reading_statement(
        user_id, position, types=types, later=later, list_id=list_id, limit=limit
    )
    return list(session.scalars(query))


def newest(
    session: Session, user_id: int, *, types: Collection[FeedEventType], limit: int
) -> list[FeedEvent]:
    """The owner's last events of these types, newest first: for people, who follow nothing."""
    query = reading_statement(
        user_id, START, types=types, list_id=None, limit=limit, newest_first=True
    )
    return list(session.scalars(query))


def reading_statement(
    user_id: int,
    position: FeedPosition,
    *,
    types: Collection[FeedEventType],
    later: Mapping[str, FeedPosition] = _NONE,
    list_id: int | None,
    limit: int,
    newest_first: bool = False,
) -> Select[FeedEvent]:
    """The statement of ``read_after``: the next events of each type, and of those the first ones.

    Each type costs one look into an index, and no more rows than the limit.
    """
    kinds = sorted(types)
    after = [max(position, later.get(each, position)) for each in kinds]
    each = func.unnest(
        cast(kinds, ARRAY(Text)),
        cast([start.place for start in after], ARRAY(BigInteger)),
        cast([start.id for start in after], ARRAY(BigInteger)),
    ).table_valued("type", "place", "id")
    wanted = each.render_derived(name="wanted")
    of_list = [] if list_id is None else [FeedEvent.list_id == list_id]
    of_type = (
        select(FeedEvent)
        .where(
            FeedEvent.user_id == user_id,
            *of_list,
            FeedEvent.type == wanted.c.type,
            tuple_(FeedEvent.place, FeedEvent.id) > tuple_(wanted.c.place, wanted.c.id),
            FeedEvent.place < horizon(),
        )
        .order_by(*_order(FeedEvent, newest_first=newest_first))
        .limit(limit)
        .lateral()
    )
    event = aliased(FeedEvent, of_type)
    first = select(event).select_from(wanted).join(of_type, true())
    return first.order_by(*_order(event, newest_first=newest_first)).limit(limit)


def _order(event: type[FeedEvent], *, newest_first: bool) -> list[SQLColumnExpression[int]]:
    columns: list[SQLColumnExpression[int]] = [event.place, event.id]
    return [each.desc() for each in columns] if newest_first else columns
