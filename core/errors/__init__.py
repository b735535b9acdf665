"""The errors of the product.

A service raises a ``DomainError`` with a stable dotted ``code`` and a ``Kind`` that knows nothing
of HTTP; ``api.errors`` is the only place that turns a kind into a status.

The modules of this package declare every error once, one module an area. Code raises an entry
(``raise LIST_NOT_FOUND()``) and routes document it (``refuses(LIST_NOT_FOUND)``), so that the
document and the reply can't say different sentences.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


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
    PATH_TOO_LONG = "path_too_long"
    UNSUPPORTED_TYPE = "unsupported_type"
    RATE_LIMITED = "rate_limited"
    PROVIDER_FAILED = "provider_failed"
    UNAVAILABLE = "unavailable"
    TOO_SLOW = "too_slow"
    DAMAGED = "damaged"


@dataclass(frozen=True)
class FieldProblem:
    """A rule broken at one place, such as ``body.members[3].email``."""

    field: str
    code: str
    message: str


@dataclass(eq=False)
class DomainError(Exception):
    """An error the caller can act on. ``message`` names the rule and the place, never a secret."""

    kind: Kind
    code: str
    message: str
    retry_after: int | None = None
    problems: tuple[FieldProblem, ...] = ()
    # The scope that a credential would need.
    needed_scope: str | None = None
    # Values of the sentence that programs read by their names, beside the code.
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.message


class SettingsError(Exception):
    """Raised for unusable settings; the message names each one, never its value."""


def own_words(message: str) -> str:
    """Return the message of a validator of ours, without the words that pydantic puts before it."""
    return message.removeprefix("Value error, ").removeprefix("Assertion failed, ")


class TransientError(Exception):
    """A failure that may pass by itself: the only one that makes a job try again."""


class ServerFailed(TransientError):
    """A server doesn't work for us: a timeout, a connection that is refused or broken, a 5xx.

    An answer that a server gives on purpose is no such failure: a missing key, a 4xx. Breakers
    count these failures, so every client decides by this rule which of the two an error is.
    """

    def __init__(self, server: str, detail: str) -> None:
        super().__init__(f"The {server} does not answer ({detail}).")
