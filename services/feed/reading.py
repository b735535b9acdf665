"""Reading the feed: an owner's events in order, from a position on."""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ScalarSelect,
    Select,
    SQLColumnExpression,
    Text,
    bindparam,
    cast,
    func,
    select,
    true,
    tuple_,
)
from sqlalchemy.orm import Session, aliased

from core import clock
from core.errors.mailing import LIST_NOT_FOUND
from core.errors.requests import CURSOR_INVALID
from core.ids import MAX_ID
from models import FeedEvent, FeedOffset, MailingList, PaymentOrder, Subscription, User
from services.feed.catalogue import CATALOGUE, FeedEventType, SubjectKind
from storage.unit_of_work import UnitOfWork

# An event's place is the number of the transaction that wrote it, plus an offset. Readers see
# places below that of the oldest transaction that is still open, and those never get another
# event: a reader who goes on after the last one that they saw misses none, whatever commits in
# which order.

_CURSOR = re.compile(r"([0-9]{1,16})-([0-9]{1,16})\Z", re.ASCII)


@dataclass(frozen=True, order=True)
class FeedPosition:
    """A position; the events after it have a higher place, or the same and a higher id."""

    place: int
    id: int

    @classmethod
    def of_event(cls, event: FeedEvent) -> Self:
        return cls(event.place, event.id)

    @classmethod
    def of_cursor(cls, cursor: str) -> Self:
        """Raises ``cursor.invalid``."""
        match = _CURSOR.match(cursor)
        if match is None or max(map(int, match.groups())) > MAX_ID:
            raise CURSOR_INVALID()
        return cls(int(match[1]), int(match[2]))

    @property
    def cursor(self) -> str:
        """The position as callers hold it."""
        return f"{self.place}-{self.id}"


# Before all events.
START = FeedPosition(0, 0)


def horizon() -> ScalarSelect[int]:
    """The first place that may still get an event, by the snapshot of the query that has this."""
    oldest_open = cast(func.pg_snapshot_xmin(func.pg_current_snapshot()), Text)
    return select(FeedOffset.places + cast(oldest_open, BigInteger)).scalar_subquery()


def newest_position(session: Session) -> FeedPosition:
    """The position after all events that can be seen now; all that come later are after it."""
    return FeedPosition(session.scalars(select(horizon())).one() - 1, MAX_ID)


def find_place_before(session: Session, since: datetime) -> int:
    """A place before which no event happened since then, found by halving the feed.

    Ids and places rise with time but for what transactions take that are open at once. The place is
    therefore that of an event from longer before then than any of them is open.
    """
    low, high = session.execute(select(func.min(FeedEvent.id), func.max(FeedEvent.id))).one()
    place: int = START.place
    while low is not None and low <= high:
        middle = (low + high) // 2
        place_there = session.scalar(_PLACE, {"low": middle, "high": high, "since": since})
        if place_there is None:
            high = middle - 1
        else:
            place = place_there
            low = middle + 1
    return place


# Longer than any transaction is open that announces an event.
_OPEN = timedelta(hours=1)
# The place of the first event from an id on, if it is from before a moment.
_FIRST = (
    select(FeedEvent.place, FeedEvent.occurred_at)
    .where(FeedEvent.id.between(bindparam("low"), bindparam("high")))
    .order_by(FeedEvent.id)
    .limit(1)
    .subquery()
)
_PLACE = select(_FIRST.c.place).where(_FIRST.c.occurred_at + _OPEN < bindparam("since"))


def raise_places(uow: UnitOfWork) -> None:
    """Let new events come after all positions of an earlier database, for one just restored."""
    uow.session.execute(select(func.raise_feed_places()))


# For so long at least. It is a promise to readers, which the database holds us to.
FEED_RETENTION = timedelta(days=30)
_NONE: Mapping[str, FeedPosition] = {}


@dataclass(frozen=True)
class FeedPage:
    """A page of events.

    Attributes:
        next_cursor: the cursor of the next page. An empty page has one too.
        has_more: whether the next page already has an event.
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
    require_own_list(uow, user_id, list_id)
    query = next_events(user_id, position, types=types, list_id=list_id, limit=limit + 1)
    found = uow.session.scalars(query).all()
    events = list(found[:limit])
    last = FeedPosition.of_event(events[-1]) if events else position
    return FeedPage(events, last.cursor, has_more=len(found) > limit)


def require_own_list(uow: UnitOfWork, user_id: int, list_id: int | None) -> None:
    """Raises ``list.not_found`` for another owner's list too."""
    query = select(MailingList.id).where(MailingList.id == list_id, MailingList.user_id == user_id)
    if list_id is not None and uow.session.scalar(query) is None:
        raise LIST_NOT_FOUND()


def newest(
    session: Session, user_id: int, *, types: Collection[FeedEventType], limit: int
) -> list[FeedEvent]:
    """The owner's last events of these types, newest first: for people, who follow nothing."""
    query = next_events(user_id, START, types=types, limit=limit, newest_first=True)
    return list(session.scalars(query))


def next_events(
    user_id: int,
    position: FeedPosition,
    *,
    types: Collection[FeedEventType],
    later: Mapping[str, FeedPosition] = _NONE,
    list_id: int | None = None,
    limit: int,
    newest_first: bool = False,
) -> Select[FeedEvent]:
    """The owner's next events of these types, in order; none whose older neighbour may yet come.

    It selects the next events of each type, and of those the first ones: a type costs one look into
    an index, and no more rows than the limit. A type in ``later`` begins at its position there.
    """
    kinds = sorted(types)
    after = [max(position, later.get(each, position)) for each in kinds]
    each = func.unnest(
        cast(kinds, ARRAY(Text)),
        cast([start.place for start in after], ARRAY(BigInteger)),
        cast([start.id for start in after], ARRAY(BigInteger)),
    ).table_valued("type", "place", "id")
    requested = each.render_derived(name="wanted")
    of_list = [] if list_id is None else [FeedEvent.list_id == list_id]
    of_type = (
        select(FeedEvent)
        .where(
            FeedEvent.user_id == user_id,
            *of_list,
            FeedEvent.type == requested.c.type,
            tuple_(FeedEvent.place, FeedEvent.id) > tuple_(requested.c.place, requested.c.id),
            FeedEvent.place < horizon(),
        )
        .order_by(*_order(FeedEvent, newest_first=newest_first))
        .limit(limit)
        .lateral()
    )
    event = aliased(FeedEvent, of_type)
    first = select(event).select_from(requested).join(of_type, true())
    return first.order_by(*_order(event, newest_first=newest_first)).limit(limit)


def _order(event: type[FeedEvent], *, newest_first: bool) -> list[SQLColumnExpression[int]]:
    columns: list[SQLColumnExpression[int]] = [event.place, event.id]
    return [each.desc() for each in columns] if newest_first else columns


# Joins the data of events about these subjects, by the subject's id.
Joined = Mapping[int, dict[str, Any]]


def show(session: Session, events: Sequence[FeedEvent]) -> list[dict[str, Any]]:
    """The events as callers see them, in plain values for JSON; one query for a kind of subject."""
    ids: dict[SubjectKind, set[int]] = defaultdict(set)
    for event in events:
        if event.subject_id is not None:
            ids[CATALOGUE[FeedEventType(event.type)].subject].add(event.subject_id)
    joined = {
        subject: join(session, ids[subject]) for subject, join in _JOINS.items() if ids[subject]
    }
    return [_shown(event, joined) for event in events]


def _shown(event: FeedEvent, joined: Mapping[SubjectKind, Joined]) -> dict[str, Any]:
    entry = CATALOGUE[FeedEventType(event.type)]
    subject = joined.get(entry.subject, {}).get(event.subject_id or 0, {})
    fields = entry.data.model_fields
    # A row may lack what this release adds, and its subject may be gone.
    known = {**subject, **event.data}
    if "job_id" in known:
        known["path"] = f"/jobs/{known['job_id']}"
    data = {name: known.get(name) for name in fields}
    has_subject = event.subject_id is not None
    return {
        "id": event.id,
        "type": event.type,
        "occurred_at": clock.format_timestamp(event.occurred_at),
        "list_id": event.list_id,
        "subject": {"kind": entry.subject, "id": event.subject_id} if has_subject else None,
        "data": data,
    }


def _join_subscriptions(session: Session, ids: Collection[int]) -> Joined:
    # From the moment of its mark an erased person has no name, though the job has yet to blank it.
    query = (
        select(Subscription.id, Subscription.email, Subscription.name)
        .join(User, User.id == Subscription.user_id)
        .where(Subscription.id.in_(ids), User.erased_at.is_(None))
    )
    return {row.id: {"email": row.email, "name": row.name} for row in session.execute(query)}


def _join_orders(session: Session, ids: Collection[int]) -> Joined:
    orders = session.scalars(select(PaymentOrder).where(PaymentOrder.id.in_(ids)))
    return {
        row.id: {
            "credit_amount": float(row.credit_amount),
            "currency": row.currency,
            "amount": float(row.amount),
        }
        for row in orders
    }


_JOINS: Mapping[SubjectKind, Callable[[Session, Collection[int]], Joined]] = {
    SubjectKind.SUBSCRIPTION: _join_subscriptions,
    SubjectKind.ORDER: _join_orders,
}
