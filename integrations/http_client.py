"""HTTP clients for external servers, which may be slow, broken or hostile.

Each HTTP call has a time limit and a size limit for the reply. The HTTP clients don't follow
redirects, store cookies or request compression. The HTTP clients ignore environment variables, such
as proxy settings.
"""

import asyncio
import math
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from http import HTTPStatus
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

import httpx2

from core.counters.work_metrics import (
    ProviderOutcome,
    count_provider_call,
    initialize_provider_counters,
)
from core.telemetry import spans
from core.telemetry.attributes import SpanAttributes

T = TypeVar("T")

# Aliases for exceptions of the HTTP library, for use in adapters. ``HttpTimeout`` is a subclass of
# ``HttpFailure``.
HttpFailure = httpx2.HTTPError
HttpTimeout = httpx2.TimeoutException
# The exceptions that are raised before any part of the request was sent.
NotConnected = (httpx2.ConnectError, httpx2.ConnectTimeout)
HttpHeaders = httpx2.Headers


class ReplyRefused(httpx2.ReadError):
    """Raised if an HTTP reply is too long or is compressed."""


class ReplyTooLong(ReplyRefused):
    pass


class ReplyTooSlow(httpx2.ReadTimeout):
    pass


def describe_failure(failure: HttpFailure) -> str:
    """Omit the messages of the HTTP library, because they may contain URLs."""
    is_own_error = isinstance(failure, ReplyRefused | ReplyTooSlow)
    return str(failure) if is_own_error else type(failure).__name__


@dataclass(frozen=True)
class HttpBounds:
    """The time and size limits of an HTTP client.

    Attributes:
        provider: the name of the external service in the metrics.
    """

    max_seconds: float
    max_connect_seconds: float
    max_reply_bytes: int
    provider: str = "other"

    @property
    def timeout(self) -> httpx2.Timeout:
        """Return limits per network operation, which a server that replies byte by byte never
        exceeds. Callers must therefore limit the total time of a call.
        """
        connect = min(self.max_connect_seconds, self.max_seconds)
        return httpx2.Timeout(self.max_seconds, connect=connect)


@dataclass(frozen=True)
class HttpReply:
    """A complete HTTP reply, whose body is still compressed if the server has compressed it."""

    status: int
    headers: HttpHeaders
    body: bytes


class AsyncHttpClient:
    """An asynchronous HTTP client for a single event loop."""

    def __init__(self, bounds: HttpBounds) -> None:
        self._bounds = bounds
        self._client = _create_client(bounds)
        initialize_provider_counters(bounds.provider)

    async def send(self, method: str, url: str, **content: Any) -> HttpReply:
        """Raise ``HttpFailure`` unless the reply is complete."""
        with record_call(self._bounds.provider, method, url) as record_status:
            try:
                async with (
                    asyncio.timeout(self._bounds.max_seconds),
                    self._client.stream(method, url, **content) as reply,
                ):
                    body = b"".join([part async for part in reply.aiter_raw()])
            except TimeoutError:
                raise ReplyTooSlow("timeout") from None
            record_status(reply.status_code)
        return HttpReply(reply.status_code, reply.headers, body)

    async def aclose(self) -> None:
        await self._client.aclose()


class CallLoop:
    """A thread with an event loop that runs the HTTP calls of all threads.

    Without an event loop, the HTTP library can't limit the total time of a call.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._run, name="http-client", daemon=True).start()

    def wait_for(self, calls: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(calls, self._loop).result()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()


class HttpClient:
    """A thread-safe HTTP client."""

    def __init__(self, bounds: HttpBounds) -> None:
        self._client = AsyncHttpClient(bounds)
        self._loop = CallLoop()

    def send(self, method: str, url: str, **content: Any) -> HttpReply:
        return self._loop.wait_for(self._client.send(method, url, **content))

    def close(self) -> None:
        self._loop.wait_for(self._client.aclose())
        self._loop.stop()


@contextmanager
def record_call(provider: str, method: str, url: str = "") -> Iterator[Callable[[int], None]]:
    """Record the ``with`` block as a call to an external server, in the trace and the metrics.

    When the server's reply is complete, the ``with`` block must pass the HTTP status to the yielded
    function. Omit the ``url`` of a webhook, because its host may be confidential.
    """
    started_at = time.perf_counter()
    outcome = ProviderOutcome.FAILED

    def record_status(status: int) -> None:
        nonlocal outcome
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            outcome = ProviderOutcome.LIMITED
        elif status < HTTPStatus.INTERNAL_SERVER_ERROR:
            outcome = ProviderOutcome.ANSWERED
        spans.add_attributes({"http.response.status_code": status})

    with open_call_span(method, url):
        try:
            yield record_status
        finally:
            count_provider_call(provider, outcome, time.perf_counter() - started_at)


@cache
def load_authorities() -> ssl.SSLContext:
    """Load the system's authorities only once per process, because loading certificates is slow."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def open_call_span(method: str, url: str) -> AbstractContextManager[None]:
    """Return a trace span with only the HTTP method and the host.

    Paths, queries and headers are not traced, because they may contain search terms or API keys.
    The trace context isn't sent to the external server.
    """
    host = urlsplit(url).hostname
    attributes: SpanAttributes = {"http.request.method": method}
    if host:
        attributes["server.address"] = host
    return spans.step_span(f"{method} {host}" if host else method, "client", attributes)


def parse_retry_after(header: str | None, *, max_seconds: float = 3600.0) -> float | None:
    """Return the number of seconds in a ``Retry-After`` header, or ``None`` if it is invalid."""
    text = (header or "").strip()
    try:
        if text.isascii() and text[:1].isdigit():
            seconds = float(text)
        else:
            date = parsedate_to_datetime(text)
            moment = date if date.tzinfo else date.replace(tzinfo=UTC)
            seconds = (moment - datetime.now(UTC)).total_seconds()
    except (ValueError, OverflowError):
        return None
    return min(max(seconds, 0.0), max_seconds) if math.isfinite(seconds) else None


def open_async_client(bounds: HttpBounds) -> httpx2.AsyncClient:
    """Refuse compressed replies, which the HTTP library would decompress without a size limit.

    Each caller must add a trace span and a total time limit.
    """

    async def refuse_compressed(reply: httpx2.Response) -> None:
        if reply.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
            raise ReplyRefused("compressed reply")

    client = _create_client(bounds)
    client.event_hooks["response"].append(refuse_compressed)
    return client


@dataclass(eq=False)
class _LimitedStream(httpx2.AsyncByteStream):
    stream: httpx2.AsyncByteStream
    bounds: HttpBounds

    async def __aiter__(self) -> AsyncIterator[bytes]:
        bytes_left = self.bounds.max_reply_bytes
        async for part in self.stream:
            bytes_left -= len(part)
            if bytes_left < 0:
                raise ReplyTooLong("response too long")
            yield part

    async def aclose(self) -> None:
        await self.stream.aclose()


def _create_client(bounds: HttpBounds) -> httpx2.AsyncClient:
    async def limit_size(reply: httpx2.Response) -> None:
        stream = cast("httpx2.AsyncByteStream", reply.stream)
        reply.stream = _LimitedStream(stream, bounds)

    return httpx2.AsyncClient(
        event_hooks={"response": [limit_size]},
        verify=load_authorities(),
        timeout=bounds.timeout,
        headers={"Accept-Encoding": "identity"},
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        follow_redirects=False,
        trust_env=False,
        limits=httpx2.Limits(max_connections=100, max_keepalive_connections=20),
    )
