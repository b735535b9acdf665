"""What can go wrong, in the product's words.

A service raises a ``DomainError`` with a stable dotted ``code`` and a ``Kind`` that knows nothing
of HTTP; ``api.errors`` is the only place that turns a kind into a status. What can be raised is
declared in ``core.refusals``.
"""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    MALFORMED = "malformed"
    INVALID = "invalid"
    UNAUTHENTICATED = "unauthenticated"
    PAYMENT_NEEDED = "payment_needed"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    NOT_ALLOWED = "not_allowed"
    STALLED = "stalled"
    CONFLICT = "conflict"
    RANGE = "range"
    TOO_LARGE = "too_large"
    UNSUPPORTED_TYPE = "unsupported_type"
    RATE_LIMITED = "rate_limited"
    PROVIDER_FAILED = "provider_failed"
    UNAVAILABLE = "unavailable"
    TOO_SLOW = "too_slow"
    DAMAGED = "damaged"


@dataclass(frozen=True)
class FieldProblem:
    """One rule broken at one place, such as ``body.members[3].email``."""

    field: str
    code: str
    message: str


class DomainError(Exception):
    """A refusal the caller can act on. ``message`` names the rule and the place, never a secret."""

    def __init__(
        self,
        kind: Kind,
        code: str,
        message: str,
        *,
        retry_after: int | None = None,
        problems: tuple[FieldProblem, ...] = (),
        needed_scope: str | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.code = code
        self.message = message
        self.retry_after = retry_after
        self.problems = problems
        # What a credential would need for it not to be refused.
        self.needed_scope = needed_scope


class TransientError(Exception):
    """A failure that may pass by itself: the only one that makes a job try again."""
