"""The exceptions of the client.

PressroomError
├── ApiError         an error response of the API, identified by `code`
├── NotReached       a lost connection, after all retries
├── JobFailed        a failed or cancelled job
├── SettingMissing   a missing URL or API key
├── SecretInvalid    a malformed API key, token or webhook secret
├── WebhookInvalid   a forged or outdated webhook
├── AttachmentFailed an uploaded image that can't be converted
├── SendingStopped   an issue that can't be sent now
├── MailRefused      a mail that the mail server will never accept
│   └── AddressUnsupported  an address to which the mail server can't send
└── MailDelayed      a mail that the mail server doesn't accept now
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import httpx2

if TYPE_CHECKING:
    from pressroom_client.generated import types
    from pressroom_client.generated.contract import Code


class PressroomError(Exception):
    """The base class of all exceptions of this package."""


class ApiError(PressroomError):
    """An error response of the API.

    Attributes:
        code: the stable, machine-readable code of the error.
        message: a human-readable description of the error.
        errors: an entry for each invalid field of the request.
        problem: the complete body of the response.
        retry_after: the number of seconds to wait before repeating the call.
    """

    def __init__(
        self,
        status: int,
        problem: Mapping[str, Any],
        *,
        retry_after: float | None = None,
        url: str = "The server",
    ) -> None:
        # Error responses of the OAuth routes have the format of RFC 6749.
        self.code: Code | str = problem.get("code") or problem.get("error") or f"http.{status}"
        detail = problem.get("detail") or problem.get("error_description")
        if self.code.startswith("http.") or not detail:
            # Another server, such as a proxy, may have sent the response.
            detail = f"{url} responded with status {status}{f': {detail}' if detail else '.'}"
        self.message: str = detail
        self.status = status
        self.problem = problem
        self.errors: list[dict[str, str]] = problem.get("errors") or []
        self.request_id: str | None = problem.get("request_id")
        self.retry_after = retry_after
        super().__init__(f"{self.message} ({self.code}, status {status})")


class NotReached(PressroomError):
    """An error for a call to which the API sent no response.

    The API may have executed the call, even though no response arrived.
    """


class JobFailed(PressroomError):
    """An error for a job that failed or was cancelled.

    Attributes:
        job: the record of the job.
        code: the code of the job's error.
    """

    def __init__(self, job: "types.JobRecord") -> None:
        error = job["error"] or {}
        self.job = job
        self.code: str = error.get("code") or f"job.{job['status']}"
        super().__init__(error.get("message") or f"Job {job['id']} was {job['status']}.")


class SettingMissing(PressroomError):
    """An error for a client without arguments, if an environment variable is missing."""


class SecretInvalid(PressroomError, ValueError):
    """A malformed API key, access token or webhook secret. The message doesn't quote the secret."""


class WebhookInvalid(PressroomError):
    """A webhook with a missing, invalid or outdated signature.

    Programs must not process a webhook that raises this error.
    """


class AttachmentFailed(PressroomError):
    """An error for an uploaded image that can't be converted.

    Attributes:
        attachment: the record of the attachment.
        code: the code of the attachment's error.
    """

    def __init__(self, attachment: "types.AttachmentRecord") -> None:
        error = attachment["error"] or {}
        self.attachment = attachment
        self.code: str = error.get("code") or "attachment.failed"
        super().__init__(error.get("message") or "The image could not be converted.")


class SendingStopped(PressroomError):
    """An error for an issue that ``send_issue`` can't send now."""


class MailRefused(PressroomError):
    """Raised by a program's function for ``send_issue``: the server will never accept the mail."""


class AddressUnsupported(MailRefused):
    """Raised by a program's function for ``send_issue``: the server can't send to the address."""


class MailDelayed(PressroomError):
    """Raised by a program's function for ``send_issue``: the server doesn't accept the mail now.

    Attributes:
        retry_after: the seconds until the server may accept the mail, as in the header
            ``Retry-After``.
    """

    def __init__(self, reason: str, retry_after: "str | int | None" = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


def create_api_error(response: httpx2.Response, *, retry_after: float | None) -> ApiError:
    """Return the exception for an error response of the API.

    Read the response's body before calling this function.
    """
    try:
        problem = response.json()
    except ValueError:
        problem = None
    return ApiError(
        response.status_code,
        problem if isinstance(problem, dict) else {},
        retry_after=retry_after,
        # The query of a signed URL is secret.
        url=str(response.url.copy_with(query=None)),
    )
