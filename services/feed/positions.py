"""Positions in the feed: after which event a reader goes on.

An event's place is the number of the transaction that wrote it, plus an offset. Readers see places
below that of the oldest transaction that is still open, and those never get another event: a reader
who goes on after the last one that they saw misses none, whatever commits in which order.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from sqlalchemy import BigInteger, ScalarSelect, Text, bindparam, cast, func, select
from sqlalchemy.orm import Session

from core.ids import MAX_ID
from core.refusals.requests import CURSOR_INVALID
from models import FeedEvent, FeedOffset
from storage.unit_of_work import UnitOfWork

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
        found = _CURSOR.match(cursor)
        if found is None or max(map(int, found.groups())) > MAX_ID:
            raise CURSOR_INVALID()
        return cls(int(found[1]), int(found[2]))

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


def place_near(session: Session, since: datetime) -> int:
    """A place before which no event happened since then, found by halving the feed.

    Ids and places rise with time but for what transactions take that are open at once. So it is
    that of an event from longer before then than any of them is open.
    """
    low, high = session.execute(select(func.min(FeedEvent.id), func.max(FeedEvent.id))).one()
    place: int = START.place
    while low is not None and low <= high:
        middle = (low + high) // 2
        place_there = session.scalar(_PLACE, {"low": middle, "high": high, "since": since})
        if place_there is None:
            high = middle - 1
        else:
            place, low = place_there, middle + 1
    return place


# Longer than any transaction is open that announces an event.
_OPEN = timedelta(hours=1)
# That of the first event from an id on, if it is from before a moment.
_FIRST = (
    select(FeedEvent.place, FeedEvent.occurred_at)
    .where(FeedEvent.id.between(bindparam("low"), bindparam("high")))
    .order_by(FeedEvent.id)
    .limit(1)
    .subquery()
)
_PLACE = select(_FIRST.c.place).where(_FIRST.c.occurred_at + _OPEN < bindparam("since"))


def raise_places(uow: UnitOfWork) -> None:
    """Let new events come after all positions that an earlier database may have given.

    For a database that was just restored, while nothing else uses it.
    """
    uow.session.execute(select(func.raise_feed_places()))
