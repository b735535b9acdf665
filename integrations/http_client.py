"""HTTP to the servers of providers, which may be slow, broken or hostile.

Each call is bounded in time and in the bytes of its reply. It follows no redirect, keeps no cookie
and asks for no compression; proxies and other variables of the environment don't count.
"""

import asyncio
import math
import ssl
import threading
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractContextManager
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

# The library's errors by the names that adapters use: its timeouts are failures too.
HttpFailure = httpx2.HTTPError
HttpTimeout = httpx2.TimeoutException
# Nothing was sent.
NotConnected = (httpx2.ConnectError, httpx2.ConnectTimeout)
# The connection ended before the answer did.
ConnectionLost = (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError)
HttpHeaders = httpx2.Headers


class ReplyRefused(httpx2.ReadError):
    """A reply that could be more bytes than the call allows; the text says why."""


class ReplyTooSlow(httpx2.ReadTimeout):
    """A reply that did not end within the call's time."""


def reason_of(failure: HttpFailure) -> str:
    """The reason for a log. The library's own texts may quote URLs."""
    is_ours = isinstance(failure, ReplyRefused | ReplyTooSlow)
    return str(failure) if is_ours else type(failure).__name__


@dataclass(frozen=True)
class HttpBounds:
    max_seconds: float
    max_connect_seconds: float
    max_reply_bytes: int
    # A longer reply is cut, and read no further; otherwise it is refused.
    cuts_replies: bool = False
    # Spans say which host is called: one that the settings name, and not one of a caller's.
    tells_host: bool = True
    # The name of the calls in the metrics.
    provider: str = "other"

    @property
    def timeout(self) -> httpx2.Timeout:
        """The limit of each step. The library has none for their sum: replies may trickle."""
        connect = min(self.max_connect_seconds, self.max_seconds)
        return httpx2.Timeout(self.max_seconds, connect=connect)


@dataclass(frozen=True)
class HttpReply:
    status: int
    headers: HttpHeaders
    # As it was sent: decompressing could make far more of the bytes than what was counted.
    body: bytes


class AsyncHttpClient:
    """For one event loop."""

    def __init__(self, bounds: HttpBounds) -> None:
        self._bounds = bounds
        self._client = _async_client(bounds)
        initialize_provider_counters(bounds.provider)

    async def send(
        self, method: str, url: str, *, max_seconds: float | None = None, **content: Any
    ) -> HttpReply:
        """Raises ``HttpFailure``; ``max_seconds`` instead of the client's own."""
        began = time.perf_counter()
        outcome = ProviderOutcome.FAILED
        with call_span(method, url if self._bounds.tells_host else ""):
            try:
                async with (
                    asyncio.timeout(max_seconds or self._bounds.max_seconds),
                    self._client.stream(method, url, **content) as reply,
                ):
                    body = b"".join([part async for part in reply.aiter_raw()])
                    if reply.status_code == HTTPStatus.TOO_MANY_REQUESTS:
                        outcome = ProviderOutcome.LIMITED
                    elif reply.status_code < HTTPStatus.INTERNAL_SERVER_ERROR:
                        outcome = ProviderOutcome.ANSWERED
            except TimeoutError:
                raise ReplyTooSlow("timeout") from None
            finally:
                count_provider_call(self._bounds.provider, outcome, time.perf_counter() - began)
            spans.add_attributes({"http.response.status_code": reply.status_code})
        return HttpReply(reply.status_code, reply.headers, body)

    async def aclose(self) -> None:
        await self._client.aclose()


class CallLoop:
    """An event loop with a thread of its own, which makes the calls of any number of threads.

    Nothing but an event loop can end a wait for a reply whose head trickles.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._run, name="http-client", daemon=True).start()

    def wait_for(self, calls: Coroutine[Any, Any, T]) -> T:
        """Return or raise what the calls do; the thread that asks waits for it."""
        return asyncio.run_coroutine_threadsafe(calls, self._loop).result()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()


class HttpClient:
    """For any number of threads at once."""

    def __init__(self, bounds: HttpBounds) -> None:
        self._client = AsyncHttpClient(bounds)
        self._loop = CallLoop()

    def send(self, method: str, url: str, **content: Any) -> HttpReply:
        """Raises ``HttpFailure``."""
        return self._loop.wait_for(self._client.send(method, url, **content))

    def close(self) -> None:
        self._loop.wait_for(self._client.aclose())
        self._loop.stop()


def call_span(method: str, url: str) -> AbstractContextManager[None]:
    """Paths and queries have what people look for, and headers have keys: it tells none of them.

    No provider is sent our trace either.
    """
    host = urlsplit(url).hostname
    about: SpanAttributes = {"http.request.method": method}
    if host:
        about["server.address"] = host
    return spans.step_span(f"{method} {host}" if host else method, "client", about)


def retry_after(header: str | None, *, max_seconds: float = 3600.0) -> float | None:
    """Seconds from now by a ``Retry-After`` of seconds or of a date; None if it is neither."""
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


def open_client(bounds: HttpBounds) -> httpx2.AsyncClient:
    """A client whose callers see to the span and the time of a whole call.

    It decompresses replies that it reads as a whole, so compressed ones are refused.
    """

    async def refuse_compressed(reply: httpx2.Response) -> None:
        if reply.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
            raise ReplyRefused("compressed reply")

    client = _async_client(bounds)
    client.event_hooks["response"].append(refuse_compressed)
    return client


# The system's certificate authorities; reading them takes longer than the rest of a client.
_authorities = cache(ssl.create_default_context)


@dataclass(eq=False)
class _CountedStream(httpx2.AsyncByteStream):
    stream: httpx2.AsyncByteStream
    bounds: HttpBounds

    async def __aiter__(self) -> AsyncIterator[bytes]:
        bytes_left = self.bounds.max_reply_bytes
        async for part in self.stream:
            if len(part) > bytes_left and self.bounds.cuts_replies:
                yield part[:bytes_left]
                return
            bytes_left -= len(part)
            if bytes_left < 0:
                raise ReplyRefused("reply too long")
            yield part

    async def aclose(self) -> None:
        await self.stream.aclose()


def _async_client(bounds: HttpBounds) -> httpx2.AsyncClient:
    async def count(reply: httpx2.Response) -> None:
        stream = cast("httpx2.AsyncByteStream", reply.stream)
        reply.stream = _CountedStream(stream, bounds)

    return httpx2.AsyncClient(
        event_hooks={"response": [count]},
        verify=_authorities(),
        timeout=bounds.timeout,
        headers={"Accept-Encoding": "identity"},
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        follow_redirects=False,
        trust_env=False,
        limits=httpx2.Limits(max_connections=100, max_keepalive_connections=20),
    )
