"""When a delivery is tried, and which of an endpoint's deliveries is next.

The pauses grow for an hour and last for three days. Deliveries keep the order of their events while
the oldest one has waited for less than a minute; after that, one that fails holds up no other.

A receiver that says nothing keeps a thread waiting, which others need. So after the second such
call in a row its endpoint rests, for longer each time: then the threads of one process have room
for more than a hundred of them.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

# After the first try, the second one and so on.
FIRST_PAUSES = (
    timedelta(seconds=5),
    timedelta(seconds=30),
    timedelta(minutes=2),
    timedelta(minutes=10),
    timedelta(minutes=30),
    timedelta(hours=1),
)
LATER_PAUSE = timedelta(hours=3)
TRIED_FOR = timedelta(days=3)
IN_ORDER_FOR = timedelta(minutes=1)
# A receiver may ask for a longer pause than any of ours.
MAX_RETRY_AFTER = timedelta(hours=12)
# Deliveries that failed together don't return together.
_JITTER = 0.1
# A call that got no answer in less time kept nobody waiting.
SILENCE = timedelta(seconds=5)
FIRST_REST = timedelta(seconds=30)
MAX_REST = timedelta(minutes=5)


@dataclass(frozen=True)
class Pending:
    """A delivery that is not done."""

    id: int
    queued_at: datetime
    due_at: datetime


@dataclass(frozen=True)
class Choice:
    """
    Attributes:
        delivery_id: what to send now.
        due_at: when to look again, where there is nothing to send now.
        takes_events: whether new events may become deliveries now.
    """

    delivery_id: int | None = None
    due_at: datetime | None = None
    takes_events: bool = False


def pause_after(attempts: int) -> timedelta:
    """The pause after so many tries."""
    pause = FIRST_PAUSES[attempts - 1] if attempts <= len(FIRST_PAUSES) else LATER_PAUSE
    return pause * random.uniform(1, 1 + _JITTER)  # noqa: S311 - no secret


def rest_after(silences: int) -> timedelta | None:
    """How long an endpoint rests after so many calls in a row that were kept waiting in vain."""
    if silences <= 1:
        return None
    return min(FIRST_REST * (1 << min(silences - 2, 10)), MAX_REST)


def choose(pending: Sequence[Pending], now: datetime, *, max_pending: int) -> Choice:
    """``pending``: all of an endpoint's, in the order of their events."""
    if not pending:
        return Choice(takes_events=True)
    oldest = pending[0]
    order_ends_at = oldest.queued_at + IN_ORDER_FOR
    if now < order_ends_at:
        if oldest.due_at <= now:
            return Choice(oldest.id)
        return Choice(due_at=min(oldest.due_at, order_ends_at))
    # Of those that are due at the same time, the one of the first event.
    first = min(pending, key=lambda each: each.due_at)
    if first.due_at <= now:
        return Choice(first.id)
    return Choice(due_at=first.due_at, takes_events=len(pending) < max_pending)


def choose_several(pending: Sequence[Pending], now: datetime, *, most: int) -> list[int]:
    """What ``choose`` would choose one after the other, if each were delivered before the next."""
    left, chosen = list(pending), list[int]()
    while len(chosen) < most:
        delivery_id = choose(left, now, max_pending=0).delivery_id
        if delivery_id is None:
            break
        chosen.append(delivery_id)
        left = [each for each in left if each.id != delivery_id]
    return chosen
