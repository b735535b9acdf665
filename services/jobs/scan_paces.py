"""Decides when a sweep scans all rows instead of the recent ones.

A snapshot that stays open for hours (a dump, an export, a report) keeps every row version that was
current when it began. The indexes of queued and running jobs then keep the entries of jobs that
have ended since, so a full scan costs more with each ended job. A scan of the recent rows costs
only as much as there are recent jobs. Each second the sweep scans the recent rows. After a slow
full scan, the next full scan waits longer.
"""

import math
import time

from core.queues import Queue

_PAUSE_PER_SECOND = 1000  # full scans take at most a thousandth of the time
_MAX_PAUSE_SECONDS = 60.0


class ScanPace:
    """The time of the next full scan."""

    def __init__(self) -> None:
        self._due_at = -math.inf

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._due_at

    def record_scan(self, seconds: float, *, has_results: bool) -> None:
        """Schedule the next full scan. After results, it is due at once: there may be more."""
        pause = min(seconds * _PAUSE_PER_SECOND, _MAX_PAUSE_SECONDS)
        self._due_at = -math.inf if has_results else time.monotonic() + pause


class SweepPaces:
    """The paces of one sweeper. A queue with many ended jobs slows down no other queue."""

    def __init__(self) -> None:
        self.lost = ScanPace()
        self.queues = {queue: ScanPace() for queue in Queue}

    def due_queues(self) -> list[Queue]:
        return [queue for queue, pace in self.queues.items() if pace.is_due]
