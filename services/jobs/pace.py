"""When the sweep looks, and when it trusts what it sees.

A snapshot that stays open for hours (a dump, an export, a report) keeps every row version that was
current since it began. So the entries of finished jobs stay in the indexes of queued and running
ones, and such a look costs by how many jobs have ended since. Each second the sweep looks at what
became due lately, which costs by what there is. The longer a whole look took, the longer it waits.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from core.lanes import Lane
from services.jobs.transitions import LEASE

_PAUSE_PER_SECOND = 1000  # whole looks take a thousandth of the time
_MAX_PAUSE_SECONDS = 60.0
# After an outage of the database. Heartbeats come each second.
STEADY_AFTER = LEASE + timedelta(seconds=1)
_LONG_WAIT_SECONDS = 1.0


class Pace:
    def __init__(self) -> None:
        self._due_at = -math.inf

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._due_at

    def looked(self, seconds: float, *, found: bool) -> None:
        """Note a whole look. Where it found something there may be more: the next one is due."""
        pause = min(seconds * _PAUSE_PER_SECOND, _MAX_PAUSE_SECONDS)
        self._due_at = -math.inf if found else time.monotonic() + pause


@dataclass(frozen=True)
class Paces:
    """Those of one sweeper."""

    lost: Pace = field(default_factory=Pace)
    # One each, so that a lane with many ended jobs slows down no other.
    lanes: dict[Lane, Pace] = field(default_factory=lambda: {lane: Pace() for lane in Lane})

    def due_lanes(self) -> list[Lane]:
        return [lane for lane, pace in self.lanes.items() if pace.is_due]


class Reach:
    """Since when a sweeper reaches the database without a break.

    An outage of the database lets every lease expire, and is nobody's crash. So after one no lease
    counts as lost until the workers that live had the time to renew theirs.
    """

    def __init__(self) -> None:
        self._broken_at = -math.inf

    @property
    def is_steady(self) -> bool:
        return time.monotonic() - self._broken_at > STEADY_AFTER.total_seconds()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """For a few statements of milliseconds: a failure is a break, and so is a long wait."""
        began = time.monotonic()
        try:
            yield
        except BaseException:
            self._broken_at = time.monotonic()
            raise
        if time.monotonic() - began > _LONG_WAIT_SECONDS:
            self._broken_at = time.monotonic()
