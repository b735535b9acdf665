"""Stores the origin of the current request or command, which every security event contains.

The origin is a context variable and not a parameter, because almost every change of an account
needs the origin only to record an event. Credentials are checked in a separate thread, which has a
copy of the request's context. The thread that checks a credential adds it to the shared ``Origin``
object, so that the request sees the credential.
"""

from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum

MAX_USER_AGENT_CHARACTERS = 300


class CredentialKind(StrEnum):
    KEY = "key"
    SESSION = "session"
    GRANT = "grant"
    # The credential of an operator who used the command line or the operators' pages of the
    # console.
    COMMAND = "command"


@dataclass(frozen=True)
class Credential:
    """The credential with which a person or program sent a request or ran a command.

    Attributes:
        user_id: the id of the credential's owner, or ``None`` for a credential of the operator.
    """

    kind: CredentialKind
    id: int | None = None
    user_id: int | None = None


@dataclass
class Origin:
    ip: str | None = None
    user_agent: str | None = None
    credential: Credential | None = None


_origin: ContextVar[Origin | None] = ContextVar("origin", default=None)


def set_origin(origin: Origin) -> None:
    """Set the origin of the current request or command."""
    _origin.set(origin)


def current_origin() -> Origin:
    """Return the origin of the current request or command, or an empty origin in a worker."""
    return _origin.get() or Origin()
