"""A circuit breaker for the calls to a remote server.

When a server fails, its circuit breaker rejects all calls to the server for a few seconds. A few
seconds after a failure, the circuit breaker admits a single call as a probe.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

from core.counters.work_metrics import circuit_gauge
from core.errors import ServerFailed
from core.logging import get_logger
from core.pauses import Pauses

log = get_logger(__name__)

# Each failed probe of a server doubles the pause before the next probe, up to ``MAX_REST_SECONDS``.
MIN_REST_SECONDS = 1.0
MAX_REST_SECONDS = 5.0

T = TypeVar("T")


class Breaker:
    """A thread-safe circuit breaker for the calls that one process makes to one server.

    Args:
        failures: the exceptions that count as failures of the server.
        errors_answer: whether an exception that isn't in ``failures`` shows that the server works.
            If ``errors_answer`` is false, the circuit breaker ignores these exceptions.
        tolerated: how many consecutive calls may fail without opening the circuit.
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
        self._rests = Pauses.double(
            timedelta(seconds=min_rest_seconds), timedelta(seconds=max_rest_seconds)
        )
        self._failures = failures or (ServerFailed,)
        self._lock = threading.Lock()
        self._consecutive_failures = 0
        self._resting_until = 0.0
        self._is_probing = False
        # How many times the server has recovered from a failure.
        self._recoveries = 0

    @property
    def retry_after_seconds(self) -> float:
        """Return how many seconds remain until the next probe of the server, but at least 1."""
        return max(self._resting_until - time.monotonic(), 1.0)

    @contextmanager
    def protect(self) -> Iterator[None]:
        """Admit a call to the server in the ``with`` block, and record whether the call succeeded.

        Raises ``ServerFailed`` while the circuit is open or while a concurrent call probes the
        server.
        """
        is_probe = self._enter()
        recoveries = self._recoveries
        # ``works`` stays ``None`` if the call doesn't show whether the server works.
        works: bool | None = None
        try:
            yield
            works = True
        except self._failures:
            works = False
            raise
        except Exception:  # Record the result of every failed call, and raise the error again.
            # An error response proves that the server works, unless ``errors_answer`` is false.
            works = True if self._errors_answer else None
            raise
        finally:
            self._leave(works, recoveries, is_probe=is_probe)

    def attempt(self, event: str, call: Callable[[], T], **log_fields: object) -> T | None:
        """Return the result of ``call``, or ``None`` if the call fails or the circuit is open.

        A failed call is logged as ``event``.
        """
        try:
            with self.protect():
                return call()
        except self._failures as error:
            log.warning(event, reason=type(error.__cause__ or error).__name__, **log_fields)
        except ServerFailed:
            pass
        return None

    def _enter(self) -> bool:
        """Admit or reject a call to the server, and return whether the admitted call is a probe."""
        if self._consecutive_failures <= self._tolerated:
            return False
        with self._lock:
            if self._consecutive_failures <= self._tolerated:
                return False
            if self._is_probing or time.monotonic() < self._resting_until:
                raise ServerFailed(self._server, "a recent call failed")
            self._is_probing = True
            return True

    def _leave(self, works: bool | None, recoveries: int, *, is_probe: bool) -> None:
        if works and not self._consecutive_failures:
            return
        with self._lock:
            if is_probe:
                self._is_probing = False
            if works:
                self._consecutive_failures = 0
                self._recoveries += 1
                circuit_gauge(self._server).set(0)
            # Ignore the failure of a call that began before the server last recovered.
            elif recoveries != self._recoveries:
                return
            # If a call that began before the circuit opened fails, its failure doesn't delay the
            # next probe.
            elif works is False and (is_probe or self._consecutive_failures <= self._tolerated):
                self._consecutive_failures += 1
                rests = self._consecutive_failures - self._tolerated
                if rests > 0:
                    rest = self._rests.choose(rests).total_seconds()
                    self._resting_until = time.monotonic() + rest
                    circuit_gauge(self._server).set(1)
