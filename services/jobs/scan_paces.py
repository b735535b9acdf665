"""Decides how often the sweep scans all queued and running jobs.

Every second, the sweep checks only the jobs that became due recently, which is always fast. While a
database snapshot is open for hours, for example for a dump, the indexes of queued and running jobs
retain the entries of ended jobs. A full scan also reads these entries, so full scans run less
often. The pause after a full scan is proportional to its duration.
"""

import math
import time

from core.queues import Queue

# How many seconds to pause for each second of a full scan. Full scans take at most a thousandth of
# a worker's time, unless the pause between scans reaches its maximum.
_PAUSE_SECONDS_PER_SCAN_SECOND = 1000
_MAX_PAUSE_SECONDS = 60.0


class ScanPace:
    def __init__(self) -> None:
        self._due_at = -math.inf

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._due_at

    def record_scan(self, seconds: float, *, has_results: bool) -> None:
        """Make the next full scan due immediately if the last one found results."""
        pause = min(seconds * _PAUSE_SECONDS_PER_SCAN_SECOND, _MAX_PAUSE_SECONDS)
        self._due_at = -math.inf if has_results else time.monotonic() + pause


class SweepPaces:
    """A schedule for each queue, so that slow scans of one queue don't delay the other queues."""

    def __init__(self) -> None:
        self.lost = ScanPace()
        self.queues = {queue: ScanPace() for queue in Queue}

    def due_queues(self) -> list[Queue]:
        return [queue for queue, pace in self.queues.items() if pace.is_due]
