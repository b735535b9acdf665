"""How long may be asked: 20 seconds a call, and so many in all."""

import time

from core.refusals.composer import LLM_TOO_SLOW

MAX_CALL_SECONDS = 20.0
# A call with less than this is not worth its tokens.
_MIN_CALL_SECONDS = 1.0


class TimeBudget:
    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return self._ends - time.monotonic()

    def has(self, seconds: float = _MIN_CALL_SECONDS) -> bool:
        return self.left >= seconds

    def for_a_call(self) -> float:
        """Raises ``llm.too_slow`` when nothing is left."""
        if not self.has():
            raise LLM_TOO_SLOW()
        return min(self.left, MAX_CALL_SECONDS)
