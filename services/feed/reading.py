"""Reads an owner's feed, which is the ordered sequence of the owner's events.

An event's place in the feed is the id of the Postgres transaction that wrote it, plus an offset. An
event stays hidden until all transactions with lower ids have ended. A new event therefore always
appears after all visible events, and a client that resumes after the last event misses no event.
"""

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
from core.ids import MAX_ID, AccountId
from models import FeedEvent, FeedOffset, MailingList, PaymentOrder, Segment, Subscription, User
from services.feed.catalogue import CATALOGUE, FeedEventType, SubjectKind
from storage.unit_of_work import UnitOfWork

# How long events stay in the feed. The database refuses to delete events that are younger than
# ``FEED_RETENTION``.
FEED_RETENTION = timedelta(days=30)
# How long a transaction that writes events can stay open.
_MAX_TRANSACTION_DURATION = timedelta(hours=1)
_NO_TYPE_STARTS: Mapping[str, "FeedPosition"] = {}
_CURSOR_PATTERN = re.compile(r"([0-9]{1,16})-([0-9]{1,16})\Z", re.ASCII)
# Finds the event with the lowest id in a range of ids.
_FIRST_EVENT = (
    select(FeedEvent.place, FeedEvent.occurred_at)
    .where(FeedEvent.id.between(bindparam("low"), bindparam("high")))
    .order_by(FeedEvent.id)
    .limit(1)
    .subquery()
)
_FIND_EARLIER_PLACE = select(_FIRST_EVENT.c.place).where(
    _FIRST_EVENT.c.occurred_at + _MAX_TRANSACTION_DURATION < bindparam("since")
)
# Loads the names and e-mail addresses that are stored in members' subscriptions. Erased people are
# excluded, because the erasure job may not have deleted their names and addresses yet.
_LOAD_SUBSCRIPTIONS = (
    select(Subscription.id, Subscription.email, Subscription.name)
    .join(User, User.id == Subscription.user_id)
    .where(Subscription.id.in_(bindparam("ids", expanding=True)), User.erased_at.is_(None))
)

# Maps the id of an event's subject, such as a person, to fields of the event. The fields in this
# mapping are looked up when an event is read, because events don't store them.
SubjectFields = Mapping[int, dict[str, Any]]


@dataclass(frozen=True, order=True)
class FeedPosition:
    """Events with the same ``place`` are ordered by id."""

    place: int
    id: int

    @classmethod
    def of_event(cls, event: FeedEvent) -> Self:
        return cls(event.place, event.id)

    @classmethod
    def of_cursor(cls, cursor: str) -> Self:
        match = _CURSOR_PATTERN.match(cursor)
        if match is None or max(map(int, match.groups())) > MAX_ID:
            raise CURSOR_INVALID()
        return cls(int(match[1]), int(match[2]))

    @property
    def cursor(self) -> str:
        return f"{self.place}-{self.id}"


# The position before all events of a feed.
FEED_START = FeedPosition(0, 0)


def build_horizon() -> ScalarSelect[int]:
    """Return a subquery for the lowest place at which an event can still be added.

    The subquery sees the same database snapshot as the enclosing query.
    """
    oldest_open = cast(func.pg_snapshot_xmin(func.pg_current_snapshot()), Text)
    return select(FeedOffset.places + cast(oldest_open, BigInteger)).scalar_subquery()


def newest_position(session: Session) -> FeedPosition:
    """Return the position between all visible and all future events."""
    return FeedPosition(session.scalars(select(build_horizon())).one() - 1, MAX_ID)


def find_place_before(session: Session, since: datetime) -> int:
    """Return a feed position before all events that happened at or after ``since``.

    A transaction can stay open for an hour, and its events become visible only at its end. The
    result is therefore the position of an event that happened more than an hour before ``since``.
    """
    low, high = session.execute(select(func.min(FeedEvent.id), func.max(FeedEvent.id))).one()
    place: int = FEED_START.place
    while low is not None and low <= high:
        middle = (low + high) // 2
        bounds = {"low": middle, "high": high, "since": since}
        earlier_place = session.scalar(_FIND_EARLIER_PLACE, bounds)
        if earlier_place is None:
            high = middle - 1
        else:
            place = earlier_place
            low = middle + 1
    return place


def raise_feed_places(uow: UnitOfWork) -> None:
    """Advance the feed after a restore, so that new events come after clients' cursors."""
    uow.session.execute(select(func.raise_feed_places()))


@dataclass(frozen=True)
class FeedPage:
    """A page of events. ``next_cursor`` is set even if the page is empty."""

    events: list[FeedEvent]
    next_cursor: str
    has_more: bool


def read_page(
    uow: UnitOfWork,
    account_id: AccountId,
    *,
    types: Collection[FeedEventType],
    list_id: int | None,
    cursor: str | None,
    limit: int,
) -> FeedPage:
    position = FEED_START if cursor is None else FeedPosition.of_cursor(cursor)
    require_own_list(uow, account_id, list_id)
    query = next_events(account_id, position, types=types, list_id=list_id, limit=limit + 1)
    rows = uow.session.scalars(query).all()
    events = list(rows[:limit])
    last = FeedPosition.of_event(events[-1]) if events else position
    return FeedPage(events, last.cursor, has_more=len(rows) > limit)


def require_own_list(uow: UnitOfWork, account_id: AccountId, list_id: int | None) -> None:
    query = select(MailingList.id).where(
        MailingList.id == list_id, MailingList.user_id == account_id
    )
    if list_id is not None and uow.session.scalar(query) is None:
        raise LIST_NOT_FOUND()


def list_newest_events(
    session: Session,
    account_id: AccountId,
    *,
    types: Collection[FeedEventType],
    list_id: int | None = None,
    limit: int,
    before: FeedPosition | None = None,
) -> list[FeedEvent]:
    query = next_events(
        account_id,
        FEED_START,
        types=types,
        list_id=list_id,
        limit=limit,
        newest_first=True,
        before=before,
    )
    return list(session.scalars(query))


def next_events(
    account_id: AccountId,
    position: FeedPosition,
    *,
    types: Collection[FeedEventType],
    type_starts: Mapping[str, FeedPosition] = _NO_TYPE_STARTS,
    list_id: int | None = None,
    limit: int,
    newest_first: bool = False,
    before: FeedPosition | None = None,
) -> Select[FeedEvent]:
    """Build the query for the next events in feed order.

    The query returns only events before the first position at which an open transaction can still
    add an event. To limit the cost, it reads at most ``limit`` index rows for each event type.

    ``type_starts``: maps event types to feed positions. Only events of a type after its position
    are returned.
    """
    type_names = sorted(types)
    starts = [max(position, type_starts.get(name, position)) for name in type_names]
    type_rows = func.unnest(
        cast(type_names, ARRAY(Text)),
        cast([start.place for start in starts], ARRAY(BigInteger)),
        cast([start.id for start in starts], ARRAY(BigInteger)),
    ).table_valued("type", "place", "id")
    requested = type_rows.render_derived(name="requested")
    conditions = [] if list_id is None else [FeedEvent.list_id == list_id]
    if before is not None:
        conditions.append(tuple_(FeedEvent.place, FeedEvent.id) < (before.place, before.id))
    of_type = (
        select(FeedEvent)
        .where(
            FeedEvent.user_id == account_id,
            *conditions,
            FeedEvent.type == requested.c.type,
            tuple_(FeedEvent.place, FeedEvent.id) > tuple_(requested.c.place, requested.c.id),
            FeedEvent.place < build_horizon(),
        )
        .order_by(*_order_columns(FeedEvent, newest_first=newest_first))
        .limit(limit)
        .lateral()
    )
    event = aliased(FeedEvent, of_type)
    query = select(event).select_from(requested).join(of_type, true())
    return query.order_by(*_order_columns(event, newest_first=newest_first)).limit(limit)


def _order_columns(event: type[FeedEvent], *, newest_first: bool) -> list[SQLColumnExpression[int]]:
    columns: list[SQLColumnExpression[int]] = [event.place, event.id]
    return [column.desc() for column in columns] if newest_first else columns


def render_events(session: Session, events: Sequence[FeedEvent]) -> list[dict[str, Any]]:
    """Return the events in the format of API responses.

    The names, e-mail addresses and amounts are loaded with one query per table.
    """
    ids: dict[SubjectKind, set[int]] = defaultdict(set)
    for event in events:
        if event.subject_id is not None:
            ids[CATALOGUE[FeedEventType(event.type)].subject].add(event.subject_id)
    subject_fields = {
        subject: load_fields(session, ids[subject])
        for subject, load_fields in _SUBJECT_LOADERS.items()
        if ids[subject]
    }
    segment_names = _load_segment_names(session, events)
    return [_render_event(event, subject_fields, segment_names) for event in events]


def _render_event(
    event: FeedEvent,
    subject_fields: Mapping[SubjectKind, SubjectFields],
    segment_names: Mapping[int, str],
) -> dict[str, Any]:
    entry = CATALOGUE[FeedEventType(event.type)]
    fields_of_subject = subject_fields.get(entry.subject, {}).get(event.subject_id or 0, {})
    values = {**fields_of_subject, **event.data}
    if "job_id" in values:
        values["path"] = f"/jobs/{values['job_id']}"
    if "segment_id" in values:
        values["segment"] = segment_names.get(values["segment_id"])
    # A field in an event's data is null if the event was stored before the field was introduced, or
    # if the event's subject was deleted.
    data = {name: values.get(name) for name in entry.data.model_fields}
    has_subject = event.subject_id is not None
    return {
        "id": event.id,
        "type": event.type,
        "occurred_at": clock.format_timestamp(event.occurred_at),
        "list_id": event.list_id,
        "subject": {"kind": entry.subject, "id": event.subject_id} if has_subject else None,
        "data": data,
    }


def _load_segment_names(session: Session, events: Sequence[FeedEvent]) -> dict[int, str]:
    ids = {event.data["segment_id"] for event in events if "segment_id" in event.data}
    if not ids:
        return {}
    rows = session.execute(select(Segment.id, Segment.name).where(Segment.id.in_(ids)))
    return {row.id: row.name for row in rows}


def _load_subscriptions(session: Session, ids: Collection[int]) -> SubjectFields:
    rows = session.execute(_LOAD_SUBSCRIPTIONS, {"ids": ids})
    return {row.id: {"email": row.email, "name": row.name} for row in rows}


def _load_orders(session: Session, ids: Collection[int]) -> SubjectFields:
    orders = session.scalars(select(PaymentOrder).where(PaymentOrder.id.in_(ids)))
    return {
        row.id: {
            "credit_amount": float(row.credit_amount),
            "currency": row.currency,
            "amount": float(row.amount),
        }
        for row in orders
    }


_SUBJECT_LOADERS: Mapping[SubjectKind, Callable[[Session, Collection[int]], SubjectFields]] = {
    SubjectKind.SUBSCRIPTION: _load_subscriptions,
    SubjectKind.ORDER: _load_orders,
}
