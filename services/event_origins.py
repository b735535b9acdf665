"""The origin of a request or command, which each event of it keeps.

The origin is not a parameter, since nearly every act on an account records an event, and none does
anything else with it. It belongs to the context of the request or command. The check of credentials
runs in another thread, with a copy of that context: so it adds the credential to the same object.
"""

from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum

MAX_USER_AGENT_CHARACTERS = 300


class CredentialKind(StrEnum):
    KEY = "key"
    SESSION = "session"
    GRANT = "grant"
    # An operator, by the command line or on the console's pages for operators.
    COMMAND = "command"


@dataclass(frozen=True)
class Credential:
    kind: CredentialKind
    id: int | None = None
    # The owner of the credential; ``None``: the operator.
    user_id: int | None = None


@dataclass
class Origin:
    ip: str | None = None
    user_agent: str | None = None
    credential: Credential | None = None


_origin: ContextVar[Origin | None] = ContextVar("origin", default=None)


def begin(origin: Origin) -> None:
    """Note where the acts of this context come from."""
    _origin.set(origin)


def current() -> Origin:
    """The origin; an empty one where no request and no command began, such as in a worker."""
    return _origin.get() or Origin()
