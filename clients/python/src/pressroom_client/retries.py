"""Decides whether a failed call is retried, and how long the client waits before the retry."""

import random
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

import httpx2

from pressroom_client.errors import create_api_error

TOO_MANY = 429
UNAVAILABLE = 503
CONFLICT = 409
_FIRST_PAUSE_SECONDS = 0.5
_MAX_PAUSE_SECONDS = 8.0


@dataclass(frozen=True)
class Retries:
    """The maximum number of retries and the longest pause before a retry.

    If the API requires a longer pause than ``max_wait``, the client raises the error immediately.
    The ``retry_after`` of the raised error contains the pause that the API requires.

    Attributes:
        max_retries: the maximum number of retries of a call. 0 disables retries.
        max_wait: the longest pause before a retry, in seconds.
    """

    max_retries: int = 2
    max_wait: float = 60.0

    def pause(self, attempt: int, *, required: float | None = None) -> float | None:
        """Return the seconds before the next attempt, or ``None`` if no attempt is left.

        Args:
            attempt: the number of previous retries.
            required: the pause that the API requires, in seconds.
        """
        if attempt >= self.max_retries:
            return None
        if required is not None:
            return required if required <= self.max_wait else None
        # Choose a random pause, so that clients that failed together don't retry at the same time.
        longest = min(_FIRST_PAUSE_SECONDS * 2**attempt, _MAX_PAUSE_SECONDS)
        return min(random.uniform(longest / 2, longest), self.max_wait)  # noqa: S311


def read_retry_after(response: httpx2.Response) -> float | None:
    """Return the seconds that the header ``Retry-After`` tells the client to wait.

    The header ``Retry-After`` may contain a number of seconds or a time.
    """
    value = response.headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        at = parsedate_to_datetime(value)
    except ValueError:
        return None
    # A date with the unknown time zone "-0000" is in UTC.
    at = at if at.tzinfo else at.replace(tzinfo=timezone.utc)
    return max(0.0, (at - datetime.now(timezone.utc)).total_seconds())


def can_retry(response: httpx2.Response, *, is_repeatable: bool, has_key: bool) -> bool:
    """Return whether retrying a failed call is safe and may succeed.

    An error response with ``Retry-After`` means that the API didn't execute the call, so the client
    can retry any call.

    Args:
        is_repeatable: whether the call has the same effect if the API executes the call twice.
        has_key: whether the call has an idempotency key.
    """
    status = response.status_code
    if status == CONFLICT and has_key:
        # Retry only if the API is still executing an earlier attempt with the same idempotency key.
        return create_api_error(response, retry_after=None).code == "idempotency.in_progress"
    if status == UNAVAILABLE:
        return is_repeatable or "retry-after" in response.headers
    return status == TOO_MANY
