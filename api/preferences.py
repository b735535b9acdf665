"""Reads the ``Prefer`` header of a request (RFC 7240)."""

import re
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

MAX_PREFERRED_WAIT_SECONDS = 60

_WAIT = re.compile(r"\s*wait\s*=\s*\"?(\d{1,4})\"?\s*\Z", re.IGNORECASE)
_HANDLING = re.compile(r"\s*handling\s*=\s*\"?(\w+)\"?\s*\Z", re.IGNORECASE)


@dataclass(frozen=True)
class Preference:
    """The preferences in the ``Prefer`` header of a request.

    Attributes:
        wait: the number of seconds to wait for slow work, or ``None`` without ``wait=N``.
        respond_async: whether the header contains ``respond-async``. With it but without
            ``wait=N``, a request doesn't wait for its job.
        is_strict: whether to refuse unknown query parameters and body fields (``handling=strict``).
    """

    wait: int | None
    respond_async: bool
    is_strict: bool = False

    def seconds(self, default: float) -> float:
        if self.wait is None:
            return 0 if self.respond_async else default
        return self.wait

    def seconds_at_most(self, limit: float) -> float:
        """Return how many seconds a request waits for its work, which can't outlive the request."""
        return limit if self.wait is None else min(self.wait, limit)


async def read_preference(request: Request) -> Preference:
    return preference_of(request)


PreferenceOf = Annotated[Preference, Depends(read_preference)]


def preference_of(request: Request) -> Preference:
    """Ignore unknown preferences. The first value of a repeated preference applies."""
    wait: int | None = None
    respond_async = False
    handling: str | None = None
    for part in ",".join(request.headers.getlist("prefer")).split(","):
        preference = part.partition(";")[0]
        respond_async |= preference.strip().lower() == "respond-async"
        if wait is None and (match := _WAIT.match(preference)):
            wait = min(int(match[1]), MAX_PREFERRED_WAIT_SECONDS)
        if handling is None and (match := _HANDLING.match(preference)):
            handling = match[1].lower()
    return Preference(wait, respond_async, handling == "strict")
