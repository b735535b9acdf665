"""The origin of a request or command, which is stored in every security event.

The origin is a context variable instead of a parameter, because nearly every change of an account
records an event and uses the origin for nothing else. Credentials are checked in another thread,
with a copy of the request's context. The check adds the credential to the same ``Origin`` object,
so the request sees the credential.
"""

from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum

MAX_USER_AGENT_CHARACTERS = 300


class CredentialKind(StrEnum):
    KEY = "key"
    SESSION = "session"
    GRANT = "grant"
    # An operator, who used the command line or the console's pages for operators.
    COMMAND = "command"


@dataclass(frozen=True)
class Credential:
    """The credential of a request or command.

    Attributes:
        user_id: the owner of the credential, or ``None`` for the operator.
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
