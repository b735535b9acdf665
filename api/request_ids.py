import random
import re
from contextvars import ContextVar

_SANE = re.compile(rb"[A-Za-z0-9._-]{1,128}\Z")

_request_id: ContextVar[str | None] = ContextVar("request_id", default=None)


def current_request_id() -> str | None:
    return _request_id.get()


def adopt_request_id(sent: bytes | None) -> str:
    """The caller's id where it is a sane token, else a new one; kept for this request's context."""
    request_id = sent.decode() if sent and _SANE.match(sent) else _new_id()
    _request_id.set(request_id)
    return request_id


def _new_id() -> str:
    # No secret: to ask the system for randomness lets other threads run, in a busy process for
    # longer than all the rest of a small request takes.
    return f"{random.getrandbits(128):032x}"
