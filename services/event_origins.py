"""Stores the origin of the current request or command for security events.

A context variable contains the origin, so that functions don't need a parameter only to pass the
origin on. The thread that checks the credential has a copy of the context. The copy shares the
``Origin`` object with the request, so the thread can store the credential there.
"""

from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum

from core.ids import AccountId, PersonId

MAX_USER_AGENT_CHARACTERS = 300


class CredentialKind(StrEnum):
    KEY = "key"
    SESSION = "session"
    GRANT = "grant"
    # The credential of an operator who ran a command or used the operators' pages.
    COMMAND = "command"


@dataclass(frozen=True)
class Credential:
    """The credential of a request or a command. A command has no account and no person."""

    kind: CredentialKind
    id: int | None = None
    account_id: AccountId | None = None
    person_id: PersonId | None = None


@dataclass
class Origin:
    ip: str | None = None
    user_agent: str | None = None
    credential: Credential | None = None


_origin: ContextVar[Origin | None] = ContextVar("origin", default=None)


def set_origin(origin: Origin) -> None:
    _origin.set(origin)


def current_origin() -> Origin:
    """Return the origin of the current request or command, or an empty origin in a worker."""
    return _origin.get() or Origin()
