"""Prepares the attempts of a call to the API, and decides about retries."""

import json
import secrets
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.parse import quote

import httpx2

from pressroom_client.errors import (
    NotReached,
    PressroomError,
    SecretInvalid,
    create_api_error,
)
from pressroom_client.generated.contract import VERSION
from pressroom_client.retries import Retries, can_retry, read_retry_after
from pressroom_client.uploads import Body

KEY_HEADER = "Idempotency-Key"
# The default timeout of a call, which must exceed the 60 s for which the API may let a call wait.
TIMEOUT = httpx2.Timeout(70.0, connect=10.0)
_JSON = "application/json, application/problem+json"
_ACCEPTED = 202
# The idempotent HTTP methods: a repeated call has no further effect.
_REPEATABLE_METHODS = {"GET", "HEAD", "PUT", "DELETE"}


@dataclass(frozen=True)
class Operation:
    method: str
    path: str
    # The format of the request body: json, form, bytes or multipart.
    body: str | None = None
    takes_key: bool = False


@dataclass(frozen=True)
class Accepted:
    """The job that continues the work of an API call after the call has returned."""

    job_id: int


class Attempts:
    """The attempts of one API call. All attempts send the same headers and the same body."""

    def __init__(
        self,
        retries: Retries,
        operation: Operation,
        *,
        strict: bool,
        path: Mapping[str, Any],
        query: Mapping[str, Any],
        header: Mapping[str, Any],
        content: Any = None,
        accept: str = _JSON,
        timeout: float | None = None,
    ) -> None:
        self._retries = retries
        self._operation = operation
        self._timeout = timeout
        self._failed = 0
        self._path = _fill_path(operation.path, path)
        self._body = Body(operation.body, content)
        self._headers = {"Accept": accept, "Pressroom-Version": VERSION}
        self._headers |= {name: str(value) for name, value in header.items() if value is not None}
        if strict:
            preferences = (self._headers.get("Prefer"), "handling=strict")
            self._headers["Prefer"] = ", ".join(filter(None, preferences))
        if operation.takes_key:
            # Send the same idempotency key in all attempts, so that the API executes the call only
            # once.
            self._headers.setdefault(KEY_HEADER, secrets.token_urlsafe(24))
        values = dict(query)
        if self._body.filename and values.get("filename", "") is None:
            values["filename"] = self._body.filename
        self._query = _build_query(values)
        self._has_key = KEY_HEADER in self._headers
        self._is_repeatable = self._has_key or operation.method in _REPEATABLE_METHODS

    def create_request(
        self,
        base_url: str,
        token: str | None,
        timeout: httpx2.Timeout | float | None,
        opened: ExitStack,
    ) -> dict[str, Any]:
        """Return the arguments with which httpx2 builds the request of the next attempt.

        Args:
            timeout: the timeout of the client, which applies unless the call has its own timeout.
            opened: an exit stack, which closes the files that this method opens.

        Raises ``SecretInvalid`` for a malformed token.
        """
        arguments = self._body.create_arguments(opened)
        identity = {"Authorization": f"Bearer {_tidy_token(token)}"} if token else {}
        return {
            **arguments,
            "method": self._operation.method,
            "url": base_url + self._path,
            "params": self._query,
            "timeout": timeout if self._timeout is None else self._timeout,
            "headers": {**identity, **arguments.get("headers", {}), **self._headers},
        }

    def pause_after_lost_connection(self, error: httpx2.TransportError, base_url: str) -> float:
        """Return the seconds to wait before the next attempt.

        Raises ``NotReached`` if the call can't be retried.
        """
        if isinstance(error, httpx2.LocalProtocolError):
            # The library's text quotes the header, which may contain a key.
            raise PressroomError("A header contains a character that HTTP forbids.") from None
        # If no connection was established, the API can't have received the call.
        was_not_sent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
        can_repeat = was_not_sent or (self._is_repeatable and self._body.can_be_sent_again)
        pause = self._retries.pause(self._failed) if can_repeat else None
        if pause is None:
            reason = str(error) or type(error).__name__
            raise NotReached(f"No answer from {base_url}: {reason}") from error
        self._failed += 1
        return pause

    def pause_after_error(self, response: httpx2.Response) -> float:
        """Return the seconds to wait before the next attempt.

        Raises ``ApiError`` if the call can't be retried.
        """
        required_pause = read_retry_after(response)
        if not self._body.can_be_sent_again or not can_retry(
            response, is_repeatable=self._is_repeatable, has_key=self._has_key
        ):
            _raise_error(response, required_pause)
        pause = self._retries.pause(self._failed, required=required_pause)
        if pause is None:
            _raise_error(response, required_pause)
        self._failed += 1
        return pause


def read_data(response: httpx2.Response) -> Any:
    """Return the ``data`` of a response's envelope, or ``Accepted`` for the id of a job."""
    data = response.json()["data"]
    if response.status_code == _ACCEPTED and isinstance(data, int):
        return Accepted(data)
    return data


def _tidy_token(token: str) -> str:
    """Return an API key or token without the blanks, line ends and byte order marks around it."""
    tidied = token.strip().strip("\ufeff").strip() if isinstance(token, str) else ""
    if not tidied or not all("!" <= character <= "~" for character in tidied):
        raise SecretInvalid(
            "The API key or token contains a character that no key has, such as a blank or a line"
            " end, or it is empty or isn't a text."
        )
    return tidied


def _raise_error(response: httpx2.Response, required_pause: float | None) -> NoReturn:
    raise create_api_error(response, retry_after=required_pause)


def _fill_path(template: str, values: Mapping[str, Any]) -> str:
    """Insert values into the placeholders of a URL path.

    Raises ``ValueError`` if a value is empty, ``.`` or ``..``, because such a value would change
    the path.
    """
    for name, value in values.items():
        text = str(value)
        if text in {"", ".", ".."}:
            raise ValueError(f"{name} must not be {text!r}")
        template = template.replace(f"{{{name}}}", quote(text, safe=""))
    return template


def _build_query(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _format_value(value) for name, value in values.items() if value is not None}


def _format_value(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, dict) else value
