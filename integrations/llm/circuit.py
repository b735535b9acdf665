"""A circuit breaker: a server that keeps failing gets no calls for a while, then a single one.

Libraries for it either hold a lock while a call is under way, so that calls take turns, or let
every waiting call through at the first chance; neither suits 16 threads.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from core.counters.work_metrics import show_circuit

_SERVER = "language model"


class Health(StrEnum):
    """What a call tells about its server's health."""

    WORKS = "works"
    FAILS = "fails"
    # The server was never asked, or the mistake was ours.
    UNKNOWN = "unknown"


@dataclass(eq=False)
class CircuitOpen(Exception):
    """The call was not sent; the next one may try in ``seconds``."""

    seconds: float


@dataclass(eq=False)
class Circuit:
    """The circuit of one server. Each ``enter`` that returns is followed by one ``leave``."""

    max_failures: int = 5
    pause_seconds: float = 30.0
    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _failures: int = field(default=0, init=False)
    _opened_at: float | None = field(default=None, init=False)
    _is_probing: bool = field(default=False, init=False)

    @property
    def is_open(self) -> bool:
        return self._opened_at is not None

    def enter(self) -> bool:
        """Whether this call is the one that tries an open circuit.

        Raises ``CircuitOpen`` while the pause lasts, and then for all but one call.
        """
        with self._lock:
            if self._opened_at is None:
                return False
            left = self._opened_at + self.pause_seconds - self.clock()
            if left > 0 or self._is_probing:
                raise CircuitOpen(max(left, 1.0))
            self._is_probing = True
            return True

    def leave(self, health: Health, *, is_probe: bool) -> None:
        with self._lock:
            if is_probe:
                self._is_probing = False
            if health is Health.WORKS:
                if self.is_open:
                    show_circuit(_SERVER, is_open=False)
                self._failures, self._opened_at = 0, None
            elif health is Health.FAILS:
                self._failures += 1
                # Calls that began before it opened don't make the pause longer.
                if is_probe or (self._opened_at is None and self._failures >= self.max_failures):
                    self._opened_at = self.clock()
                    show_circuit(_SERVER, is_open=True)
