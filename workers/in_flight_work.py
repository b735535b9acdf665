"""The work in progress of a worker process, which is requeued when the process stops."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

# A process exits if its work is overdue by this many seconds, because Python can't kill a thread.
MAX_STUCK_SECONDS = 60.0


@dataclass(frozen=True, eq=False)
class WorkItem:
    """Work in progress, such as a turn of a job.

    Attributes:
        deadline: the monotonic time at which the work becomes overdue.
        give_back: a function that puts the work back into the queue for another worker.
    """

    deadline: float
    give_back: Callable[[], None]

    @property
    def is_overdue(self) -> bool:
        return time.monotonic() > self.deadline


class InFlightWork:
    """The work in progress of all threads in a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: set[WorkItem] = set()

    @contextmanager
    def track(self, item: WorkItem) -> Iterator[None]:
        """Count an item as work in progress during the ``with`` block."""
        with self._lock:
            self._items.add(item)
        try:
            yield
        finally:
            with self._lock:
                self._items.discard(item)

    def give_back(self) -> None:
        """Requeue the work in progress, except overdue work.

        The lease of an overdue job expires, which counts as a crash.
        """
        for item in self._current_items():
            if not item.is_overdue:
                item.give_back()

    def is_stuck(self) -> bool:
        """Return whether work in a thread is so overdue that the process must exit."""
        latest_deadline = time.monotonic() - MAX_STUCK_SECONDS
        return any(item.deadline < latest_deadline for item in self._current_items())

    def _current_items(self) -> list[WorkItem]:
        with self._lock:
            return list(self._items)
