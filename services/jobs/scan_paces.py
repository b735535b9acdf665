"""Decides how often the sweep scans all queued and running jobs.

Each second, the sweep checks the jobs that became due recently. Scans of all queued and running
jobs run less often than once per second, because these scans can become slow. While a database
snapshot is open for hours, for example for a dump or an export, Postgres keeps old row versions.
With an open snapshot, the indexes of queued and running jobs retain the entries of ended jobs. A
full scan also reads the index entries of ended jobs, so each ended job makes the full scan slower.
The cost of a scan of recent jobs doesn't depend on the number of ended jobs. The pause after a full
scan is proportional to the duration of the scan.
"""

import math
import time

from core.queues import Queue

# The pause after a full scan of a table, in seconds for each second that the scan took. Full scans
# take at most a thousandth of a worker's time, unless the pause between two scans reaches its
# maximum.
_PAUSE_SECONDS_PER_SCAN_SECOND = 1000
_MAX_PAUSE_SECONDS = 60.0


class ScanPace:
    """Decides when a worker's next full scan of a table is due."""

    def __init__(self) -> None:
        self._due_at = -math.inf

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._due_at

    def record_scan(self, seconds: float, *, has_results: bool) -> None:
        """Compute the time of the next full scan from the duration of the last full scan.

        If the last full scan found results, the next full scan is due immediately.
        """
        pause = min(seconds * _PAUSE_SECONDS_PER_SCAN_SECOND, _MAX_PAUSE_SECONDS)
        self._due_at = -math.inf if has_results else time.monotonic() + pause


class SweepPaces:
    """Decides for each queue when a worker's next full scan is due.

    Each queue has its own schedule of full scans, so a queue with slow scans doesn't delay the
    remaining queues.
    """

    def __init__(self) -> None:
        self.lost = ScanPace()
        self.queues = {queue: ScanPace() for queue in Queue}

    def due_queues(self) -> list[Queue]:
        return [queue for queue, pace in self.queues.items() if pace.is_due]
