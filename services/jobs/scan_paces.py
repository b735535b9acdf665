"""When a sweep scans all rows instead of the recent ones."""

import math
import time

from core.queues import Queue

# A snapshot that stays open for hours (a dump, an export, a report) keeps every row version that
# was current since it began. The entries of finished jobs then stay in the indexes of queued and
# running ones, and such a look costs by how many jobs have ended since. Each second the sweep looks
# at what became due lately, which costs by what there is. The longer a whole look took, the longer
# it waits.

_PAUSE_PER_SECOND = 1000  # whole looks take a thousandth of the time
_MAX_PAUSE_SECONDS = 60.0


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


class Paces:
    """The paces of one sweeper: a queue with many ended jobs slows down no other."""

    def __init__(self) -> None:
        self.lost = Pace()
        self.queues = {queue: Pace() for queue in Queue}

    def due_queues(self) -> list[Queue]:
        return [queue for queue, pace in self.queues.items() if pace.is_due]
