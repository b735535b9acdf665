"""A circuit breaker: a server that fails is left alone for a moment, then tried by a single call.

A server that hangs costs one caller a timeout every few seconds, and not each of them.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from core.counters.work_metrics import circuit_of
from core.errors import ServerFailed
from core.logging import get_logger

log = get_logger(__name__)

# A rest is twice as long as the one before it, while every probe fails.
MIN_REST_SECONDS = 1.0
MAX_REST_SECONDS = 5.0
_MAX_DOUBLINGS = 10

T = TypeVar("T")


class Breaker:
    """Guards the calls of one process to one server; any number of threads may share it.

    ``failures`` are the errors that say that the server doesn't work. Every other error is an
    answer: the server works; without ``errors_answer`` it says nothing about the server. The rest
    begins after more failures in a row than are ``tolerated``.
    """

    def __init__(
        self,
        server: str,
        *failures: type[Exception],
        errors_answer: bool = True,
        tolerated: int = 0,
        min_rest_seconds: float = MIN_REST_SECONDS,
        max_rest_seconds: float = MAX_REST_SECONDS,
    ) -> None:
        self._server = server
        self._errors_answer = errors_answer
        self._tolerated = tolerated
        self._min_rest_seconds, self._max_rest_seconds = min_rest_seconds, max_rest_seconds
        self._failures = failures or (ServerFailed,)
        self._lock = threading.Lock()
        self._failed_in_a_row = 0
        self._resting_until = 0.0
        self._is_probing = False
        # How often the server worked after failures.
        self._recoveries = 0

    @property
    def seconds_left(self) -> float:
        """How long the server is left alone; at least a second, for the call that probes."""
        return max(self._resting_until - time.monotonic(), 1.0)

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """For one call. Raises ``ServerFailed`` at once during a rest and while a call probes."""
        is_probe, recoveries = self._enter(), self._recoveries
        # A call that was interrupted says nothing about the server.
        works: bool | None = None
        try:
            yield
            works = True
        except self._failures:
            works = False
            raise
        except Exception:  # raised again: an answer with an error still is one
            works = True if self._errors_answer else None
            raise
        finally:
            self._leave(works, recoveries, is_probe=is_probe)

    def attempt(self, event: str, call: Callable[[], T], **noted: object) -> T | None:
        """The call's result; ``None`` during a rest, and for a failure, which the event logs."""
        try:
            with self.guarding():
                return call()
        except self._failures as error:
            log.warning(event, reason=type(error.__cause__ or error).__name__, **noted)
        except ServerFailed:
            pass
        return None

    def _enter(self) -> bool:
        """Return whether this call probes a server that failed before."""
        if self._failed_in_a_row <= self._tolerated:
            return False
        with self._lock:
            if self._failed_in_a_row <= self._tolerated:
                return False
            if self._is_probing or time.monotonic() < self._resting_until:
                raise ServerFailed(self._server, "it failed a moment ago")
            self._is_probing = True
            return True

    def _leave(self, works: bool | None, recoveries: int, *, is_probe: bool) -> None:
        if works and not self._failed_in_a_row:
            return
        with self._lock:
            if is_probe:
                self._is_probing = False
            if works:
                self._failed_in_a_row = 0
                self._recoveries += 1
                circuit_of(self._server).set(0)
            # A call that began before the server worked again says nothing about it now.
            elif recoveries != self._recoveries:
                return
            # Calls that began before the rest don't make it longer.
            elif works is False and (is_probe or self._failed_in_a_row <= self._tolerated):
                self._failed_in_a_row += 1
                rests = min(self._failed_in_a_row - self._tolerated, _MAX_DOUBLINGS)
                if rests > 0:
                    rest = min(self._min_rest_seconds * 2 ** (rests - 1), self._max_rest_seconds)
                    self._resting_until = time.monotonic() + rest
                    circuit_of(self._server).set(1)
