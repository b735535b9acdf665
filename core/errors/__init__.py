"""The errors that Pressroom reports to callers and operators.

A service raises a ``DomainError`` with a stable ``code``, such as ``list.not_found``, and a
``Kind``. The error kinds are independent of HTTP. Only ``api.errors`` maps an error kind to an HTTP
status.

Each module in ``core.errors`` declares the errors of one area, such as payments. The API document
is generated from the declarations in ``core.errors``, so that the document and the API's responses
contain the same messages.
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
    """An invalid field of a request, such as ``body.members[3].email``."""

    field: str
    code: str
    message: str


@dataclass(eq=False)
class DomainError(Exception):
    """An error that a caller can act on.

    The error's ``message`` contains the broken rule and the invalid field, but never a secret.
    """

    kind: Kind
    code: str
    message: str
    retry_after: int | None = None
    problems: tuple[FieldProblem, ...] = ()
    # The scope that the request requires and the credential lacks.
    needed_scope: str | None = None
    # Maps names to the values in the error message, such as the tags in use, so that programs don't
    # have to parse the message.
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.message


class SettingsError(Exception):
    """An error for invalid settings.

    The error message names each invalid setting, but never quotes a setting's value.
    """


def strip_pydantic_prefix(message: str) -> str:
    """Return a validator's error message without the prefix that pydantic adds."""
    return message.removeprefix("Value error, ").removeprefix("Assertion failed, ")


class TransientError(Exception):
    """A temporary failure. Only a temporary failure causes a retry of a job."""


class ServerFailed(TransientError):
    """A failure of a remote server, such as a timeout, a lost connection or a 5xx response.

    A server that rejects an invalid request, for example with a 4xx response, hasn't failed. All
    clients must report a failure of their server as ``ServerFailed``, because circuit breakers
    count this exception.
    """

    def __init__(self, server: str, detail: str) -> None:
        super().__init__(f"The {server} does not answer ({detail}).")
