"""How a call to a language model can go wrong, in words for the log: never the server's."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum

from core.errors import DomainError
from core.refusals.composer import LLM_FAILED, LLM_TOO_SLOW, LLM_UNAVAILABLE
from integrations.llm.circuit import Health

_RETRY_AFTER_SECONDS = 30
_MAX_RETRY_AFTER_SECONDS = 3600.0


class CallOutcome(StrEnum):
    FAILED = "failed"
    UNAVAILABLE = "unavailable"
    TOO_SLOW = "too_slow"


@dataclass(eq=False)
class Failure(Exception):
    """One request's.

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


class RequestRejected(Exception):
    """The server refuses the request as it is; ``text`` is its reason, to be matched only."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status)
        self.status = status
        self.text = text


def retry_after(header: str | None) -> float | None:
    """Seconds from now, at most an hour, of a header that holds seconds or a date."""
    if header is None:
        return None
    text = header.strip()
    try:
        seconds = float(text) if text[:1].isdigit() else _until(text)
    except (ValueError, OverflowError):
        return None
    if not math.isfinite(seconds):
        return None
    return min(max(seconds, 0.0), _MAX_RETRY_AFTER_SECONDS)


def _until(date: str) -> float:
    moment = parsedate_to_datetime(date)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - datetime.now(UTC)).total_seconds()
