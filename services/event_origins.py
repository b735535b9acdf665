"""Stores the origin of the current request or command for security events.

The origin of a request is stored in a context variable, so that functions don't need a parameter
only to pass the origin on. A credential is checked in a separate thread with a copy of the
request's context. The thread that checks the credential shares the ``Origin`` object with the
request, so the thread can store the credential there.
"""

from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum

MAX_USER_AGENT_CHARACTERS = 300


class CredentialKind(StrEnum):
    KEY = "key"
    SESSION = "session"
    GRANT = "grant"
    # The credential of an operator who ran a command or used the operators' pages.
    COMMAND = "command"


@dataclass(frozen=True)
class Credential:
    """The credential that authenticated a request or a command.

    Attributes:
        user_id: the id of the user who owns the credential, or ``None`` if the operator used the
            command line.
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
