import time
from collections.abc import Callable
from typing import TypeVar

from core.logging import get_logger

log = get_logger(__name__)

REST_SECONDS = 1.0

T = TypeVar("T")


class Breaker:
    """A circuit breaker: after a failure, no thread calls the server for a second.

    So a server that hangs costs its clients one timeout a second, and not one for each call.
    """

    def __init__(self, failure: type[Exception]) -> None:
        self._failure = failure
        self._resting_until = 0.0

    def attempt(self, event: str, call: Callable[[], T], **noted: object) -> T | None:
        """The call's result; ``None`` during a rest, and for a failure, which the event logs."""
        if time.monotonic() < self._resting_until:
            return None
        try:
            return call()
        except self._failure as error:
            self._resting_until = time.monotonic() + REST_SECONDS
            log.warning(event, reason=type(error.__cause__ or error).__name__, **noted)
            return None
