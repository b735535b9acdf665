"""What can go wrong, in the product's words.

A service raises a ``DomainError`` with a stable dotted ``code`` and a ``Kind`` that knows nothing
of HTTP; ``api.errors`` is the only place that turns a kind into a status.
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


def malformed(code: str, message: str) -> DomainError:
    return DomainError(Kind.MALFORMED, code, message)


def invalid(code: str, message: str, *, field: str | None = None) -> DomainError:
    """``field``: the one place that breaks the rule, such as ``body.slug``."""
    problems = () if field is None else (FieldProblem(field, code, message),)
    return DomainError(Kind.INVALID, code, message, problems=problems)


def unauthenticated(code: str, message: str) -> DomainError:
    return DomainError(Kind.UNAUTHENTICATED, code, message)


def forbidden(code: str, message: str) -> DomainError:
    return DomainError(Kind.FORBIDDEN, code, message)


def insufficient_scope(scope: str) -> DomainError:
    return DomainError(
        Kind.FORBIDDEN,
        "auth.insufficient_scope",
        f"This needs the scope {scope}.",
        needed_scope=scope,
    )


def not_found(code: str, message: str) -> DomainError:
    return DomainError(Kind.NOT_FOUND, code, message)


def conflict(code: str, message: str) -> DomainError:
    return DomainError(Kind.CONFLICT, code, message)


def too_large(code: str, message: str) -> DomainError:
    return DomainError(Kind.TOO_LARGE, code, message)


def unsupported_type(code: str, message: str) -> DomainError:
    return DomainError(Kind.UNSUPPORTED_TYPE, code, message)


def stalled(code: str, message: str) -> DomainError:
    return DomainError(Kind.STALLED, code, message)


def rate_limited(code: str, message: str, *, retry_after: int) -> DomainError:
    return DomainError(Kind.RATE_LIMITED, code, message, retry_after=retry_after)


def provider_failed(code: str, message: str) -> DomainError:
    return DomainError(Kind.PROVIDER_FAILED, code, message)


def unavailable(code: str, message: str, *, retry_after: int = 1) -> DomainError:
    return DomainError(Kind.UNAVAILABLE, code, message, retry_after=retry_after)


def too_slow(code: str, message: str) -> DomainError:
    return DomainError(Kind.TOO_SLOW, code, message)
