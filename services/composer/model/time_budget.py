"""The time that a language model may take: 20 seconds a call, and a budget for all calls."""

import time

from core.refusals.composer import LLM_TOO_SLOW

MAX_CALL_SECONDS = 20.0
# A call with less than this is not worth its tokens.
MIN_CALL_SECONDS = 1.0


class TimeBudget:
    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return self._ends - time.monotonic()

    def for_a_call(self) -> float:
        """Raises ``llm.too_slow`` when nothing is left."""
        if self.left < MIN_CALL_SECONDS:
            raise LLM_TOO_SLOW()
        return min(self.left, MAX_CALL_SECONDS)
