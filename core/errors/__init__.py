"""The errors that Pressroom reports to callers and operators.

A service raises a ``DomainError`` with a ``Kind`` and a stable ``code``, such as
``list.not_found``. Only ``api.errors`` maps an error kind to an HTTP status.

Each module in ``core.errors`` declares the errors of one area, such as payments. The API document
is generated from the declared errors, so that its error messages match the API's responses.
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
    field: str
    code: str
    message: str


@dataclass(eq=False)
class DomainError(Exception):
    """An error that a caller can act on. The error message never contains a secret."""

    kind: Kind
    code: str
    message: str
    retry_after: int | None = None
    problems: tuple[FieldProblem, ...] = ()
    # The required scope that the credential lacks.
    needed_scope: str | None = None
    # The values that the error message contains, so that programs don't have to parse the message.
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.message


class SettingsError(Exception):
    """The error message names each invalid setting, but never quotes a setting's value."""


def strip_pydantic_prefix(message: str) -> str:
    return message.removeprefix("Value error, ").removeprefix("Assertion failed, ")


class TransientError(Exception):
    """A temporary failure. Jobs are retried after a temporary failure."""


class MachineBusy(TransientError):
    """Work wasn't finished in time, although it didn't exceed its limit of CPU time."""

    def __init__(self) -> None:
        super().__init__("The server is busy.")


class ServerFailed(TransientError):
    """A failure of a remote server, such as a timeout, a lost connection or a 5xx response.

    A server that rejects a request, for example with a 4xx response, hasn't failed. Every client
    must raise ``ServerFailed`` when its server fails, because circuit breakers count this
    exception.
    """

    def __init__(self, server: str, detail: str) -> None:
        super().__init__(f"The {server} is not responding ({detail}).")
