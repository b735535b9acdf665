"""Unfinished work of this process, to be given back when the process must stop."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

# A thread can't be ended. Work that is stuck for so long after its deadline costs the process.
MAX_STUCK_SECONDS = 60.0


@dataclass(frozen=True, eq=False)
class Held:
    """A piece of work, its deadline by the monotonic clock, and how it is given back."""

    deadline: float
    give_back: Callable[[], None]

    @property
    def is_overdue(self) -> bool:
        return time.monotonic() > self.deadline


class HeldWork:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: set[Held] = set()

    @contextmanager
    def holding(self, held: Held) -> Iterator[None]:
        with self._lock:
            self._held.add(held)
        try:
            yield
        finally:
            with self._lock:
                self._held.discard(held)

    def give_back(self) -> None:
        """Let other workers do what this process has taken.

        Overdue work is not given back: its lease runs out, which counts as a crash of the job.
        """
        for held in self._now():
            if not held.is_overdue:
                held.give_back()

    def is_stuck(self) -> bool:
        """Return whether a thread works on so long after its deadline that the process should
        end.
        """
        latest = time.monotonic() - MAX_STUCK_SECONDS
        return any(held.deadline < latest for held in self._now())

    def _now(self) -> list[Held]:
        with self._lock:
            return list(self._held)
