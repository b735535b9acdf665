"""One GET at a provider: bounded in time and size, to the origin of the settings and no other."""

import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from http import HTTPStatus
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx
import orjson

from core.errors import DomainError
from core.logging import get_logger
from core.refusals.composer import (
    STOCKPHOTO_FAILED,
    STOCKPHOTO_LIMIT_REACHED,
    STOCKPHOTO_NOT_FOUND,
    STOCKPHOTO_REFUSED,
    STOCKPHOTO_TOO_SLOW,
    STOCKPHOTO_UNAVAILABLE,
)
from integrations.stock_photos.port import PhotoProviderName, Quota

_MAX_CALL_SECONDS = 10.0
_CONNECT_SECONDS = 3.0
_MAX_REPLY_BYTES = 4 * 1024 * 1024
_RETRY_AFTER_SECONDS = 60
_MAX_RETRY_AFTER_SECONDS = 24 * 3600

# Unsplash has one window, an hour; Openverse names each of its own, as `…-Limit-anon_burst`.
_LIMIT = re.compile(r"x-ratelimit-limit(?:-(?P<window>[a-z0-9_]{1,40}))?\Z")
_REMAINING = ("x-ratelimit-remaining", "x-ratelimit-available")
_NUMBER = re.compile(r"\d{1,9}")
# What a provider says of a request, rather than of us or of itself.
_ABOUT_THE_REQUEST = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.REQUEST_URI_TOO_LONG,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    }
)

log = get_logger(__name__)

QuotaReport = Callable[[PhotoProviderName, tuple[Quota, ...]], None]


class Exchange:
    """``report`` is told of the quotas in every reply, refusals included."""

    def __init__(
        self, name: PhotoProviderName, base: str, headers: Mapping[str, str], report: QuotaReport
    ) -> None:
        self._name = name
        self._base = base
        self._headers = {"Accept-Encoding": "identity", "Accept": "application/json", **headers}
        self._report = report

    def get(self, path: str, params: Mapping[str, str | int]) -> tuple[str, dict[str, Any]]:
        """The reply's JSON object, as text and read; raises what ``StockPhotos`` does."""
        try:
            status, headers, body = self._fetch(path, params)
        except httpx.TimeoutException:
            raise STOCKPHOTO_TOO_SLOW(provider=self._name) from None
        except httpx.HTTPError as error:
            log.warning("stockphoto.unreachable", reason=type(error).__name__)
            raise STOCKPHOTO_UNAVAILABLE(provider=self._name) from None
        quotas = _quotas(headers)
        self._report(self._name, quotas)
        if status != HTTPStatus.OK:
            raise self._refusal(status, headers, quotas)
        return self._object(body)

    @cached_property
    def _client(self) -> httpx.Client:
        return httpx.Client(
            timeout=httpx.Timeout(_MAX_CALL_SECONDS, connect=_CONNECT_SECONDS),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
            follow_redirects=False,
            trust_env=False,
        )

    def _fetch(
        self, path: str, params: Mapping[str, str | int]
    ) -> tuple[int, httpx.Headers, bytes]:
        # Httpx bounds each step, not their sum: a reply may come byte by byte.
        deadline = time.monotonic() + _MAX_CALL_SECONDS
        body = bytearray()
        # No parameter at all where there is none: an empty mapping would still add a question mark.
        with self._client.stream(
            "GET", self._base + path, params=params or None, headers=self._headers
        ) as reply:
            # Raw: decompressing could make far more of the bytes than what was counted.
            for part in reply.iter_raw():
                body += part
                if len(body) > _MAX_REPLY_BYTES:
                    raise self._failed("reply too long")
                if time.monotonic() > deadline:
                    raise STOCKPHOTO_TOO_SLOW(provider=self._name)
            return reply.status_code, reply.headers, bytes(body)

    def _object(self, body: bytes) -> tuple[str, dict[str, Any]]:
        try:
            found: object = orjson.loads(body)
        except orjson.JSONDecodeError:
            raise self._failed("not JSON") from None
        if not isinstance(found, dict):
            raise self._failed("not an object")
        return body.decode(), found

    def _refusal(
        self, status: int, headers: httpx.Headers, quotas: tuple[Quota, ...]
    ) -> DomainError:
        spent = any(quota.remaining == 0 for quota in quotas)
        # Unsplash refuses with 403 both who has no more requests left and who may not ask.
        if status == HTTPStatus.TOO_MANY_REQUESTS or (status == HTTPStatus.FORBIDDEN and spent):
            log.warning("stockphoto.limit_reached", provider=self._name)
            return STOCKPHOTO_LIMIT_REACHED(provider=self._name, retry_after=_retry_after(headers))
        if status == HTTPStatus.NOT_FOUND:
            return STOCKPHOTO_NOT_FOUND(provider=self._name)
        if status in _ABOUT_THE_REQUEST:
            return STOCKPHOTO_REFUSED(provider=self._name)
        return self._failed(f"status {status}")

    def _failed(self, reason: str) -> DomainError:
        log.warning("stockphoto.failed", provider=self._name, reason=reason)
        return STOCKPHOTO_FAILED(provider=self._name)


def _quotas(headers: httpx.Headers) -> tuple[Quota, ...]:
    quotas = []
    for name, value in headers.items():
        match = _LIMIT.match(name.lower())
        if not match:
            continue
        window = match["window"]
        remaining = _remaining(headers, window)
        limit = _NUMBER.match(value)
        if limit and remaining is not None:
            quotas.append(Quota(window or "hour", int(limit[0]), remaining))
    return tuple(quotas)


def _remaining(headers: httpx.Headers, window: str | None) -> int | None:
    for name in _REMAINING:
        number = _NUMBER.match(headers.get(f"{name}-{window}" if window else name, ""))
        if number:
            return int(number[0])
    return None


def _retry_after(headers: httpx.Headers) -> int:
    """Seconds; the header has them, or a date, or is missing, as at Unsplash."""
    value = headers.get("retry-after", "").strip()
    seconds: float = _RETRY_AFTER_SECONDS
    if value.isascii() and value.isdigit():
        seconds = int(value[:9])
    elif value:
        try:
            at = parsedate_to_datetime(value)
        except ValueError:
            return _RETRY_AFTER_SECONDS
        seconds = (at.astimezone(UTC) - datetime.now(UTC)).total_seconds()
    return int(min(max(seconds, 1), _MAX_RETRY_AFTER_SECONDS))
