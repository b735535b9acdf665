"""When a call is tried again, and after how long."""

import random
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

import httpx2

from pressroom_client.errors import api_error_of

TOO_MANY = 429
UNAVAILABLE = 503
CONFLICT = 409
_FIRST_PAUSE_SECONDS = 0.5
_MAX_PAUSE_SECONDS = 8.0


@dataclass(frozen=True)
class Retries:
    """How often a call is tried again (0: never), and the longest pause it is worth, in seconds.

    Where the API asks for a longer pause, the error is raised at once; its ``retry_after`` says
    how long.
    """

    max_retries: int = 2
    max_wait: float = 60.0

    def pause(self, attempt: int, *, asked: float | None = None) -> float | None:
        """The seconds before the next try; ``None``: there is none. ``attempt`` counts from 0."""
        if attempt >= self.max_retries:
            return None
        if asked is not None:
            return asked if asked <= self.max_wait else None
        # Callers who failed together come back apart.
        longest = min(_FIRST_PAUSE_SECONDS * 2**attempt, _MAX_PAUSE_SECONDS)
        return min(random.uniform(longest / 2, longest), self.max_wait)  # noqa: S311


def retry_after(response: httpx2.Response) -> float | None:
    """The seconds that an answer asks to wait, which it may say as a time too."""
    value = response.headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        at = parsedate_to_datetime(value)
    except ValueError:
        return None
    # A date that names no zone ("-0000") is UTC too.
    at = at if at.tzinfo else at.replace(tzinfo=timezone.utc)
    return max(0.0, (at - datetime.now(timezone.utc)).total_seconds())


def is_worth_another_try(response: httpx2.Response, *, is_repeatable: bool, has_key: bool) -> bool:
    """Return whether the same call may succeed later.

    An error that says when to come back changed nothing, so that any call may be sent again.
    """
    status = response.status_code
    if status == CONFLICT and has_key:
        # The first of two calls with this key is still at work.
        return api_error_of(response, retry_after=None).code == "idempotency.in_progress"
    if status == UNAVAILABLE:
        return is_repeatable or "retry-after" in response.headers
    return status == TOO_MANY
