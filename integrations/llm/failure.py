"""Failures of calls to a language model. Their reasons, for the log, never quote the server."""

import math
from dataclasses import dataclass
from enum import StrEnum

from core.errors import DomainError, provider_failed, too_slow, unavailable
from integrations.llm.circuit import Health

_RETRY_AFTER_SECONDS = 30


class CallOutcome(StrEnum):
    FAILED = "failed"
    UNAVAILABLE = "unavailable"
    TOO_SLOW = "too_slow"


@dataclass(eq=False)
class Failure(Exception):
    """The failure of one request.

    Attributes:
        may_pass: the server asks to come back; ``retry_after`` is when, if it says so.
    """

    reason: str
    outcome: CallOutcome = CallOutcome.FAILED
    health: Health = Health.FAILS
    may_pass: bool = False
    tokens: tuple[int, int] = (0, 0)
    retry_after: float | None = None

    def told(self) -> DomainError:
        if self.outcome is CallOutcome.TOO_SLOW:
            return too_slow("llm.too_slow", "The language model took too long.")
        if self.outcome is CallOutcome.UNAVAILABLE:
            after = _RETRY_AFTER_SECONDS if self.retry_after is None else self.retry_after
            return unavailable(
                "llm.unavailable",
                "The language model takes no questions at the moment.",
                retry_after=max(1, math.ceil(after)),
            )
        return provider_failed("llm.failed", "The language model gave no usable answer.")


class RequestRejected(Exception):
    """The server refuses the request as it is; ``text`` is its reason, to be matched only."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status)
        self.status = status
        self.text = text
