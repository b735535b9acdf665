"""Positions in the feed: after which event a reader goes on.

An event's place is the number of the transaction that wrote it, plus an offset. Readers see places
below that of the oldest transaction that is still open, and those never get another event: a reader
who goes on after the last one that they saw misses none, whatever commits in which order.
"""

import re
from dataclasses import dataclass
from typing import Self

from sqlalchemy import BigInteger, ScalarSelect, Text, cast, func, select
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


def raise_places(uow: UnitOfWork) -> None:
    """Let new events come after all positions that an earlier database may have given.

    For a database that was just restored, while nothing else uses it.
    """
    uow.session.execute(select(func.raise_feed_places()))
