"""Sends calls to the API without blocking the event loop of asyncio."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import ExitStack, aclosing
from os import PathLike
from pathlib import Path
from typing import Any

import httpx2
from typing_extensions import Self

from pressroom_client.async_pages import AsyncPage, AsyncPages
from pressroom_client.attempts import TIMEOUT, Attempts, Operation, read_data
from pressroom_client.environment import read_connection
from pressroom_client.errors import NotReached
from pressroom_client.events import EventParser, ServerEvent
from pressroom_client.ignored_names import IgnoredNames
from pressroom_client.pages import change_arguments
from pressroom_client.retries import Retries
from pressroom_client.uploads import read_chunks, read_into_memory

# Credentials are an API key, an access token, or a function that returns the current key or token.
AsyncCredentials = str | Callable[[], str | Awaitable[str]] | None


class AsyncDownload:
    """A file that the API returns. The content of a download can be read only once."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self.headers: Mapping[str, str] = response.headers

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._response.aclose()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.aiter_bytes():
                yield chunk
        except httpx2.TransportError as error:
            raise NotReached(f"The file ended too soon: {error}") from error
        finally:
            await self._response.aclose()

    async def read(self) -> bytes:
        return b"".join([chunk async for chunk in self])

    async def save(self, path: "str | PathLike[str]") -> None:
        """Write the file to ``path``, and replace an existing file."""
        with await asyncio.to_thread(Path(path).open, "wb") as target:
            async for chunk in self:
                await asyncio.to_thread(target.write, chunk)


class AsyncCalls:
    """A caller's connection to the Pressroom API. Several asyncio tasks can share a connection.

    Args:
        base_url: the URL of the API. The default is the environment variable ``PRESSROOM_URL``.
        credentials: an API key, an access token, or a function that returns the current key or
            token. The function is called for each attempt, and may be a coroutine function. Without
            ``base_url``, the default is the environment variable ``PRESSROOM_KEY``.
        strict: whether the API rejects unknown parameters and fields. Otherwise, the API ignores
            them, and the client warns about each name once (``IgnoredNameWarning``).
    """

    def __init__(
        self,
        base_url: str | None = None,
        credentials: AsyncCredentials = None,
        *,
        retries: Retries | None = None,
        timeout: httpx2.Timeout | float | None = TIMEOUT,
        http: httpx2.AsyncClient | None = None,
        strict: bool = False,
    ) -> None:
        self._base_url, self._credentials = read_connection(base_url, credentials)
        self._retries = retries or Retries()
        self._timeout = timeout
        self._strict = strict
        self._ignored_names = IgnoredNames()
        # ``aclose`` must not close an HTTP client that the caller passed.
        self._own_http = None if http else httpx2.AsyncClient()
        self._http: httpx2.AsyncClient = http or self._own_http  # type: ignore[assignment]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        if self._own_http:
            await self._own_http.aclose()

    async def _call_data(self, operation: Operation, **sent: Any) -> Any:
        return read_data(await self._send(operation, **sent))

    async def _call_plain(self, operation: Operation, **sent: Any) -> Any:
        return (await self._send(operation, **sent)).json()

    def _call_page(
        self,
        operation: Operation,
        *,
        query: Mapping[str, Any],
        content: Mapping[str, Any] | None = None,
        **sent: Any,
    ) -> AsyncPages[Any]:
        async def fetch_page(changes: Mapping[str, Any]) -> AsyncPage[Any]:
            changed = change_arguments(changes, query=query, content=content)
            return await self._call_page(operation, **changed, **sent)

        async def fetch_first() -> AsyncPage[Any]:
            response = await self._send(operation, query=query, content=content, **sent)
            data = response.json()["data"]
            return AsyncPage(data["items"], data["pagination"], fetch_page)

        return AsyncPages(fetch_first)

    async def _call_file(self, operation: Operation, **sent: Any) -> AsyncDownload:
        return AsyncDownload(await self._send(operation, accept="*/*", is_streamed=True, **sent))

    async def _call_events(
        self, operation: Operation, **sent: Any
    ) -> AsyncGenerator[ServerEvent, None]:
        accept = "text/event-stream, */*"
        response = await self._send(operation, accept=accept, is_streamed=True, **sent)
        parser = EventParser()
        async with aclosing(response):
            try:
                async for line in response.aiter_lines():
                    event = parser.read_line(line)
                    if event:
                        yield event
            except httpx2.TransportError as error:
                raise NotReached(f"The stream ended too soon: {error}") from error

    async def _send(
        self, operation: Operation, *, content: Any = None, is_streamed: bool = False, **sent: Any
    ) -> httpx2.Response:
        """Send a call to the API with retries, and return the successful response.

        The response's body has been read completely unless ``is_streamed`` is true. Raises
        ``ApiError`` or ``NotReached`` if the last attempt fails.
        """
        if operation.body == "multipart":
            content = await read_into_memory(content)
        attempts = Attempts(self._retries, operation, strict=self._strict, content=content, **sent)
        while True:
            token = await self._find_token()
            with ExitStack() as opened:
                arguments = attempts.create_request(self._base_url, token, self._timeout, opened)
                if not isinstance(arguments.get("content", b""), bytes):
                    arguments["content"] = read_chunks(arguments["content"])
                request = self._http.build_request(**arguments)
                try:
                    response = await self._http.send(request, stream=True)
                    if not (is_streamed and response.is_success):
                        await response.aread()
                except httpx2.TransportError as error:
                    pause = attempts.pause_after_lost_connection(error, self._base_url)
                else:
                    self._ignored_names.warn(f"{operation.method} {operation.path}", response)
                    if response.is_success:
                        return response
                    pause = attempts.pause_after_error(response)
            await asyncio.sleep(pause)

    async def _find_token(self) -> str | None:
        token = self._credentials() if callable(self._credentials) else self._credentials
        return await token if inspect.isawaitable(token) else token
