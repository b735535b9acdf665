import time

REST_SECONDS = 1.0


class Breaker:
    """A circuit breaker: after a failure, no thread calls the server for a second.

    So a server that hangs costs its clients one timeout a second, and not one for each call.
    """

    def __init__(self, rest_seconds: float = REST_SECONDS) -> None:
        self._rest_seconds = rest_seconds
        self._resting_until = 0.0

    @property
    def is_open(self) -> bool:
        return time.monotonic() < self._resting_until

    def trip(self) -> None:
        self._resting_until = time.monotonic() + self._rest_seconds
