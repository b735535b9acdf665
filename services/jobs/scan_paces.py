"""Decides when the sweep scans all queued and running jobs instead of the recent jobs.

The sweep scans the recent jobs each second. Full scans are rarer, because a full scan can become
slow. A snapshot that stays open for hours, for example of a dump or an export, keeps old row
versions. During a long snapshot, the indexes of queued and running jobs also keep the entries of
ended jobs. A full scan then becomes slower with each ended job. The cost of a scan of recent jobs
depends only on the number of recent jobs. The slower a full scan was, the later the next full scan
starts.
"""

import math
import time

from core.queues import Queue

# Seconds of pause per second of the last full scan. Full scans therefore run for at most a
# thousandth of the time, until the pause reaches its maximum.
_PAUSE_SECONDS_PER_SCAN_SECOND = 1000
_MAX_PAUSE_SECONDS = 60.0


class ScanPace:
    """The schedule of full scans."""

    def __init__(self) -> None:
        self._due_at = -math.inf

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._due_at

    def record_scan(self, seconds: float, *, has_results: bool) -> None:
        """Schedule the next full scan. After a scan with results, the next scan is due at once."""
        pause = min(seconds * _PAUSE_SECONDS_PER_SCAN_SECOND, _MAX_PAUSE_SECONDS)
        self._due_at = -math.inf if has_results else time.monotonic() + pause


class SweepPaces:
    """The schedules of one sweeper's full scans.

    Each queue has its own schedule, so a queue with slow scans doesn't delay other queues.
    """

    def __init__(self) -> None:
        self.lost = ScanPace()
        self.queues = {queue: ScanPace() for queue in Queue}

    def due_queues(self) -> list[Queue]:
        return [queue for queue, pace in self.queues.items() if pace.is_due]
