"""The unfinished work of this process, which it gives back when it must stop."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

# A thread can't be killed. If its work is stuck for this long after the deadline, the process ends.
MAX_STUCK_SECONDS = 60.0


@dataclass(frozen=True, eq=False)
class WorkItem:
    """A piece of work, with its deadline by the monotonic clock and a way to give it back."""

    deadline: float
    give_back: Callable[[], None]

    @property
    def is_overdue(self) -> bool:
        return time.monotonic() > self.deadline


class HeldWork:
    """The work items of all threads of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: set[WorkItem] = set()

    @contextmanager
    def holding(self, item: WorkItem) -> Iterator[None]:
        with self._lock:
            self._items.add(item)
        try:
            yield
        finally:
            with self._lock:
                self._items.discard(item)

    def give_back(self) -> None:
        """Give the work back, so that other workers do it.

        Overdue work is not given back: its lease expires, which counts as a crash of the job.
        """
        for item in self._current_items():
            if not item.is_overdue:
                item.give_back()

    def is_stuck(self) -> bool:
        """Return whether a thread is stuck so long after its deadline that the process must end."""
        latest_deadline = time.monotonic() - MAX_STUCK_SECONDS
        return any(item.deadline < latest_deadline for item in self._current_items())

    def _current_items(self) -> list[WorkItem]:
        with self._lock:
            return list(self._items)
