"""Failures of calls to a language model. Their reasons, for the log, never quote the server."""

import math
from dataclasses import dataclass
from enum import StrEnum

from core.errors import DomainError
from core.refusals.composer import LLM_FAILED, LLM_TOO_SLOW, LLM_UNAVAILABLE
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
            return LLM_TOO_SLOW()
        if self.outcome is CallOutcome.UNAVAILABLE:
            after = _RETRY_AFTER_SECONDS if self.retry_after is None else self.retry_after
            return LLM_UNAVAILABLE(retry_after=max(1, math.ceil(after)))
        return LLM_FAILED()


@dataclass(eq=False)
class RequestRejected(Exception):
    """The server refuses the request as it is; ``text`` is its reason, to be matched only."""

    status: int
    text: str
