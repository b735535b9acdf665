"""Watches whether the programs of a starting stack make progress."""

import time
from collections.abc import Callable, Sequence

import psutil

from devstack.supervisor.child import Child
from devstack.supervisor.home_folder import StackError

# The maximum time of a start without progress.
MAX_STALLED_SECONDS = 120.0
# The processor time that counts as progress. Services that are idle use less than this within
# ``MAX_STALLED_SECONDS``.
MIN_PROGRESS_SECONDS = 0.5
_MEASURE_SECONDS = 1.0
_REPORT_SECONDS = 20.0


class StartProgress:
    """A start has no limit on its duration, because a busy machine starts programs slowly.

    A start has stalled if the unready programs, and the programs that they need, use no processor
    time.

    Args:
        report: a function that is called every 20 seconds with a sentence about the progress.
    """

    def __init__(self, children: Sequence[Child], report: Callable[[str], None]) -> None:
        self._children = children
        self._report = report
        self._began_at = time.monotonic()
        self._measured_at = self._began_at
        self._reported_at = self._began_at
        self._progressed_at = self._began_at
        # The processor time of each process family, by the id of its first process.
        self._seconds_by_pid: dict[int, float] = {}
        self._used_seconds = 0.0
        self._used_at_progress = 0.0

    def check(self) -> None:
        """Report the progress, or raise ``StackError`` if the start has stalled."""
        now = time.monotonic()
        if now - self._measured_at < _MEASURE_SECONDS:
            return
        self._measured_at = now
        unready = [child for child in self._children if not child.is_usable]
        self._measure(unready)
        if self._used_seconds - self._used_at_progress >= MIN_PROGRESS_SECONDS:
            self._used_at_progress = self._used_seconds
            self._progressed_at = now
        names = ", ".join(child.name for child in unready)
        if now - self._progressed_at > MAX_STALLED_SECONDS:
            logs = {str(child.program.log.parent) for child in unready}
            raise StackError(
                f"Not ready after {now - self._began_at:.0f} s: {names}. These programs used no "
                f"processor time for {MAX_STALLED_SECONDS:.0f} s. See the logs in "
                f"{', '.join(logs)}."
            )
        if now - self._reported_at >= _REPORT_SECONDS:
            self._reported_at = now
            self._report(
                f"Still starting after {now - self._began_at:.0f} s: {names} "
                f"({self._used_seconds:.0f} s of processor time used)"
            )

    def _measure(self, unready: Sequence[Child]) -> None:
        names = {child.name for child in unready}.union(*(each.program.needs for each in unready))
        for child in self._children:
            if child.pid is not None and child.name in names:
                last_seconds = self._seconds_by_pid.get(child.pid, 0.0)
                seconds = _measure_family(child.pid, last_seconds)
                # The sum decreases when a process ends that its parent doesn't wait for.
                self._used_seconds += max(seconds - last_seconds, 0.0)
                self._seconds_by_pid[child.pid] = seconds


def _measure_family(pid: int, default: float) -> float:
    """Return the processor time in seconds of a process and its descendants.

    Returns ``default`` if one of the processes ends during the measurement.
    """
    try:
        process = psutil.Process(pid)
        # The last element is the time spent waiting for the disk.
        return sum(
            sum(each.cpu_times()[:4]) for each in (process, *process.children(recursive=True))
        )
    except psutil.Error:
        return default
