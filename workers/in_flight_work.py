"""The work in progress of a worker process, which is requeued when the process stops."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

# A process exits if its work is overdue by this many seconds, because Python can't kill a thread.
MAX_STUCK_SECONDS = 60.0


@dataclass(eq=False)
class WorkItem:
    """Work in progress, such as a turn of a job.

    ``deadline`` is the monotonic time at which the work becomes overdue, unless it makes progress.
    ``give_back`` requeues the work.
    """

    deadline: float
    give_back: Callable[[], None]

    @property
    def seconds_left(self) -> float:
        return self.deadline - time.monotonic()


class InFlightWork:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: set[WorkItem] = set()

    @contextmanager
    def track(self, item: WorkItem) -> Iterator[None]:
        with self._lock:
            self._items.add(item)
        try:
            yield
        finally:
            with self._lock:
                self._items.discard(item)

    def give_back(self) -> None:
        for item in self._current_items():
            item.give_back()

    def is_stuck(self) -> bool:
        return any(item.seconds_left < -MAX_STUCK_SECONDS for item in self._current_items())

    def _current_items(self) -> list[WorkItem]:
        with self._lock:
            return list(self._items)
