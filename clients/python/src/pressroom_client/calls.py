"""Sends calls to the API, retries failed calls, and reads the responses."""

import json
import secrets
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

import httpx2
from typing_extensions import Self

from pressroom_client.errors import NotReached, create_api_error
from pressroom_client.events import ServerEvent, parse_events
from pressroom_client.generated.contract import VERSION
from pressroom_client.pages import Page
from pressroom_client.retries import Retries, can_retry, read_retry_after
from pressroom_client.uploads import Body

KEY_HEADER = "Idempotency-Key"
_JSON = "application/json, application/problem+json"
_ACCEPTED = 202
# The idempotent HTTP methods: a repeated call has no further effect.
_REPEATABLE_METHODS = {"GET", "HEAD", "PUT", "DELETE"}
# The default timeout of a call, which must exceed the 60 s for which the API may let a call wait.
_TIMEOUT = httpx2.Timeout(70.0, connect=10.0)

# Credentials are an API key, an access token, or a function that returns the current key or token.
Credentials = str | Callable[[], str] | None


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


class Download:
    """A file that the API returns. The content of a download can be read only once."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self.headers: Mapping[str, str] = response.headers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._response.close()

    def __iter__(self) -> Iterator[bytes]:
        with closing(self._response):
            try:
                yield from self._response.iter_bytes()
            except httpx2.TransportError as error:
                raise NotReached(f"The file ended too soon: {error}") from error

    def read(self) -> bytes:
        return b"".join(self)

    def save(self, path: "str | PathLike[str]") -> None:
        """Write the file to ``path``, and replace an existing file."""
        with Path(path).open("wb") as target:
            for chunk in self:
                target.write(chunk)


class Calls:
    """A caller's connection to the Pressroom API. Several threads can share a connection.

    Args:
        credentials: an API key, an access token, or a function that returns the current key or
            token. The function is called for each attempt.
    """

    def __init__(
        self,
        base_url: str,
        credentials: Credentials = None,
        *,
        retries: Retries | None = None,
        timeout: httpx2.Timeout | float | None = _TIMEOUT,
        http: httpx2.Client | None = None,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._credentials = credentials
        self._retries = retries or Retries()
        self._timeout = timeout
        # ``close`` must not close an HTTP client that the caller passed.
        self._own_http = None if http else httpx2.Client()
        self._http: httpx2.Client = http or self._own_http  # type: ignore[assignment]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._own_http:
            self._own_http.close()

    def _call_data(self, operation: Operation, **sent: Any) -> Any:
        response = self._send(operation, **sent)
        data = response.json()["data"]
        if response.status_code == _ACCEPTED and isinstance(data, int):
            return Accepted(data)
        return data

    def _call_plain(self, operation: Operation, **sent: Any) -> Any:
        return self._send(operation, **sent).json()

    def _call_page(
        self,
        operation: Operation,
        *,
        query: Mapping[str, Any],
        content: Mapping[str, Any] | None = None,
        **sent: Any,
    ) -> Page[Any]:
        def fetch_page(changes: Mapping[str, Any]) -> Page[Any]:
            if "cursor" in query or "offset" in query:
                new_query = {name: changes.get(name, query[name]) for name in query}
                return self._call_page(operation, query=new_query, content=content, **sent)
            # A search request has the cursor in the body, next to the filter.
            values = {**(content or {}), **changes}
            new_content = {name: value for name, value in values.items() if value is not None}
            return self._call_page(operation, query=query, content=new_content, **sent)

        response = self._send(operation, query=query, content=content, **sent)
        data = response.json()["data"]
        return Page(data["items"], data["pagination"], fetch_page)

    def _call_file(self, operation: Operation, **sent: Any) -> Download:
        return Download(self._send(operation, accept="*/*", is_streamed=True, **sent))

    def _call_events(self, operation: Operation, **sent: Any) -> Generator[ServerEvent, None, None]:
        streamed = {**sent, "accept": "text/event-stream, */*", "is_streamed": True}
        with closing(self._send(operation, **streamed)) as response:
            try:
                yield from parse_events(response.iter_lines())
            except httpx2.TransportError as error:
                raise NotReached(f"The stream ended too soon: {error}") from error

    def _send(
        self,
        operation: Operation,
        *,
        path: Mapping[str, Any],
        query: Mapping[str, Any],
        header: Mapping[str, Any],
        content: Any = None,
        accept: str = _JSON,
        is_streamed: bool = False,
        timeout: float | None = None,
    ) -> httpx2.Response:
        """Send a call to the API with retries, and return the successful response.

        The response's body has been read completely unless ``is_streamed`` is true. Raises
        ``ApiError`` or ``NotReached`` if the last attempt fails.
        """
        body = Body(operation.body, content)
        headers = {"Accept": accept, "Pressroom-Version": VERSION}
        headers |= {name: str(value) for name, value in header.items() if value is not None}
        if operation.takes_key:
            # Send the same idempotency key in all attempts, so that the API executes the call only
            # once.
            headers.setdefault(KEY_HEADER, secrets.token_urlsafe(24))
        values = dict(query)
        if body.filename and values.get("filename", "") is None:
            values["filename"] = body.filename
        has_key = KEY_HEADER in headers
        attempts = _Attempts(self._retries, operation, has_key=has_key, body=body)
        while True:
            with ExitStack() as opened:
                arguments = body.create_arguments(opened)
                request = self._http.build_request(
                    operation.method,
                    self._base_url + _fill_path(operation.path, path),
                    params=_build_query(values),
                    timeout=self._timeout if timeout is None else timeout,
                    **{**arguments, "headers": self._headers(headers, arguments)},
                )
                try:
                    response = self._http.send(request, stream=True)
                    if not (is_streamed and response.is_success):
                        response.read()
                except httpx2.TransportError as error:
                    attempts.after_lost_connection(error)
                    continue
            if response.is_success:
                return response
            attempts.after_error(response)

    def _headers(self, headers: Mapping[str, str], arguments: Mapping[str, Any]) -> dict[str, str]:
        token = self._credentials() if callable(self._credentials) else self._credentials
        identity = {"Authorization": f"Bearer {token}"} if token else {}
        return {**identity, **arguments.get("headers", {}), **headers}


class _Attempts:
    """Counts the attempts of one API call, and sleeps between two attempts."""

    def __init__(
        self, retries: Retries, operation: Operation, *, has_key: bool, body: Body
    ) -> None:
        self._retries = retries
        self._has_key = has_key
        self._is_repeatable = has_key or operation.method in _REPEATABLE_METHODS
        self._can_be_sent_again = body.can_be_sent_again
        self._failed = 0

    def after_lost_connection(self, error: httpx2.TransportError) -> None:
        """Sleep before a call's next attempt. Raise ``NotReached`` if the call can't be retried."""
        # If no connection was established, the API can't have received the call.
        was_not_sent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
        may_repeat = was_not_sent or (self._is_repeatable and self._can_be_sent_again)
        pause = self._retries.pause(self._failed) if may_repeat else None
        if pause is None:
            raise NotReached(f"No answer: {error or type(error).__name__}") from error
        self._wait(pause)

    def after_error(self, response: httpx2.Response) -> None:
        """Sleep before a call's next attempt, or raise ``ApiError`` if none is possible."""
        required_pause = read_retry_after(response)
        if not self._can_be_sent_again or not can_retry(
            response, is_repeatable=self._is_repeatable, has_key=self._has_key
        ):
            _raise_error(response, required_pause)
        pause = self._retries.pause(self._failed, required=required_pause)
        if pause is None:
            _raise_error(response, required_pause)
        self._wait(pause)

    def _wait(self, seconds: float) -> None:
        self._failed += 1
        time.sleep(seconds)


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
