"""The errors, by what a caller can do about them.

PressroomError
├── ApiError         the API answered with an error: look at `code`
├── NotReached       no answer: the connection failed, each time that it was tried
├── JobFailed        a job that was waited for failed or was cancelled
└── WebhookInvalid   a message that claims to be of Pressroom, and isn't
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import httpx2

if TYPE_CHECKING:
    from pressroom_client.generated import types
    from pressroom_client.generated.contract import Code


class PressroomError(Exception):
    """The base of all errors of this package."""


class ApiError(PressroomError):
    """An answer of the API that is no success.

    ``code`` is stable and made to be compared; ``message`` is for people. ``errors`` has an entry
    for each place of the input that breaks a rule, ``problem`` is the whole answer, ``retry_after``
    the seconds after which the API takes such a call again.
    """

    def __init__(
        self, status: int, problem: Mapping[str, Any], *, retry_after: float | None = None
    ) -> None:
        # OAuth's own routes name their errors as RFC 6749 says.
        self.code: Code | str = problem.get("code") or problem.get("error") or f"http.{status}"
        self.message: str = (
            problem.get("detail") or problem.get("error_description") or f"Status {status}."
        )
        self.status = status
        self.problem = problem
        self.errors: list[dict[str, str]] = problem.get("errors") or []
        self.request_id: str | None = problem.get("request_id")
        self.retry_after = retry_after
        super().__init__(f"{self.message} ({self.code}, status {status})")


class NotReached(PressroomError):
    """The API did not answer. It may have done what it was asked to."""


class JobFailed(PressroomError):
    """A job ended, and did not succeed. ``job`` is its record, ``code`` says what ended it."""

    def __init__(self, job: "types.JobRecord") -> None:
        error = job["error"] or {}
        self.job = job
        self.code: str = error.get("code") or f"job.{job['status']}"
        super().__init__(error.get("message") or f"Job {job['id']} was {job['status']}.")


class WebhookInvalid(PressroomError):
    """A webhook's signature is missing, wrong or too old: do nothing of what it says."""


def api_error_of(response: httpx2.Response, *, retry_after: float | None) -> ApiError:
    """The error for an answer, whose body has been read."""
    try:
        problem = response.json()
    except ValueError:
        problem = None
    return ApiError(
        response.status_code,
        problem if isinstance(problem, dict) else {},
        retry_after=retry_after,
    )
