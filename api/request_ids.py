import random
import re
from contextvars import ContextVar

_SANE = re.compile(r"[A-Za-z0-9._-]{1,128}\Z")

_request_id: ContextVar[str | None] = ContextVar("request_id", default=None)


def current_request_id() -> str | None:
    return _request_id.get()


def adopt_request_id(sent: str | None) -> str:
    """Keep for this request's context the caller's id if it is a sane token, else a new one."""
    # No secret, so no system randomness: asking the system lets other threads run, which in a busy
    # process takes longer than all the rest of a small request.
    request_id = sent if sent and _SANE.match(sent) else f"{random.getrandbits(128):032x}"
    _request_id.set(request_id)
    return request_id
