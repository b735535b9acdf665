"""Sends calls to the API, retries failed calls, and reads the responses."""

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, closing
from os import PathLike
from pathlib import Path
from typing import Any

import httpx2
from typing_extensions import Self

from pressroom_client.attempts import (
    KEY_HEADER,
    TIMEOUT,
    Accepted,
    Attempts,
    Operation,
    read_data,
)
from pressroom_client.environment import read_connection
from pressroom_client.errors import NotReached, create_api_error
from pressroom_client.events import ServerEvent, parse_events
from pressroom_client.ignored_names import IgnoredNames
from pressroom_client.pages import Page, change_arguments
from pressroom_client.retries import Retries, read_retry_after

__all__ = ["KEY_HEADER", "Accepted", "Calls", "Credentials", "Download", "Operation"]

# Credentials are an API key, an access token, or a function that returns the current key or token.
Credentials = str | Callable[[], str] | None


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
        base_url: the URL of the API. The default is the environment variable ``PRESSROOM_URL``.
        credentials: an API key, an access token, or a function that returns the current key or
            token. The function is called for each attempt. Without ``base_url``, the default is the
            environment variable ``PRESSROOM_KEY``.
        strict: whether the API rejects unknown parameters and fields. Otherwise, the API ignores
            them, and the client warns about each name once (``IgnoredNameWarning``).
    """

    def __init__(
        self,
        base_url: str | None = None,
        credentials: Credentials = None,
        *,
        retries: Retries | None = None,
        timeout: httpx2.Timeout | float | None = TIMEOUT,
        http: httpx2.Client | None = None,
        strict: bool = False,
    ) -> None:
        self._base_url, self._credentials = read_connection(base_url, credentials)
        self._retries = retries or Retries()
        self._timeout = timeout
        self._strict = strict
        self._ignored_names = IgnoredNames()
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
        return read_data(self._send(operation, **sent))

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
            changed = change_arguments(changes, query=query, content=content)
            return self._call_page(operation, **changed, **sent)

        response = self._send(operation, query=query, content=content, **sent)
        data = response.json()["data"]
        return Page(data["items"], data["pagination"], fetch_page)

    def _call_file(self, operation: Operation, **sent: Any) -> Download:
        return Download(self._send(operation, accept="*/*", is_streamed=True, **sent))

    def _download_url(self, url: str) -> Download:
        """Download a file with the signed URL from a job's result."""
        try:
            response = self._http.send(
                self._http.build_request("GET", url, timeout=self._timeout), stream=True
            )
            if not response.is_success:
                response.read()
                raise create_api_error(response, retry_after=read_retry_after(response))
        except httpx2.TransportError as error:
            raise NotReached(f"No answer from {self._base_url}: {error}") from error
        return Download(response)

    def _call_events(self, operation: Operation, **sent: Any) -> Generator[ServerEvent, None, None]:
        streamed = {**sent, "accept": "text/event-stream, */*", "is_streamed": True}
        with closing(self._send(operation, **streamed)) as response:
            try:
                yield from parse_events(response.iter_lines())
            except httpx2.TransportError as error:
                raise NotReached(f"The stream ended too soon: {error}") from error

    def _send(
        self, operation: Operation, *, is_streamed: bool = False, **sent: Any
    ) -> httpx2.Response:
        """Send a call to the API with retries, and return the successful response.

        The response's body has been read completely unless ``is_streamed`` is true. Raises
        ``ApiError`` or ``NotReached`` if the last attempt fails.
        """
        attempts = Attempts(self._retries, operation, strict=self._strict, **sent)
        while True:
            with ExitStack() as opened:
                request = self._http.build_request(
                    **attempts.create_request(
                        self._base_url, self._find_token(), self._timeout, opened
                    )
                )
                try:
                    response = self._http.send(request, stream=True)
                    if not (is_streamed and response.is_success):
                        response.read()
                except httpx2.TransportError as error:
                    pause = attempts.pause_after_lost_connection(error, self._base_url)
                else:
                    self._ignored_names.warn(f"{operation.method} {operation.path}", response)
                    if response.is_success:
                        return response
                    pause = attempts.pause_after_error(response)
            time.sleep(pause)

    def _find_token(self) -> str | None:
        return self._credentials() if callable(self._credentials) else self._credentials
