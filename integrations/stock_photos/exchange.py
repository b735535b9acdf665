"""A GET at a provider: bounded in time and size, to the origin of the settings and no other."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import Any

import orjson

from core.calls.breaker import Breaker
from core.errors import DomainError, ServerFailed
from core.errors import composer as errors
from core.logging import get_logger
from integrations import http_client
from integrations.stock_photos.port import PhotoProviderName, Quota

_MAX_CALL_SECONDS = 10.0
_MAX_CONNECT_SECONDS = 3.0
_MAX_REPLY_BYTES = 4 * 1024 * 1024
_RETRY_AFTER_SECONDS = 60
_TOLERATED_FAILURES = 2
_SERVER = "photo provider"
_MAX_RETRY_AFTER_SECONDS = 24 * 3600

# Unsplash has one window, an hour; Openverse names each of its own, as `…-Limit-anon_burst`.
_LIMIT = re.compile(r"x-ratelimit-limit(?:-(?P<window>[a-z0-9_]{1,40}))?\Z")
_REMAINING = ("x-ratelimit-remaining", "x-ratelimit-available")
_NUMBER = re.compile(r"\d{1,9}")
# With these statuses a provider finds fault with the request, rather than with us or itself.
_ABOUT_THE_REQUEST = {
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_URI_TOO_LONG,
    HTTPStatus.UNPROCESSABLE_ENTITY,
}

_FILE_URL = re.compile(r"https?://[^\s/]")

log = get_logger(__name__)

QuotaReport = Callable[[PhotoProviderName, tuple[Quota, ...]], None]


@dataclass
class Exchange:
    """A provider's API. ``report`` is told the quotas of every reply, errors included."""

    name: PhotoProviderName
    base: str
    headers: Mapping[str, str]
    report: QuotaReport

    def get(self, path: str, params: Mapping[str, str | int]) -> tuple[str, dict[str, Any]]:
        """The reply's JSON object, as text and read; raises what ``StockPhotos`` does."""
        # No parameter at all where there is none: an empty mapping would still add a question mark.
        headers = {"Accept": "application/json", **self.headers}
        try:
            with self._breaker.protect():
                reply = self._http.send(
                    "GET", self.base + path, params=params or None, headers=headers
                )
        except ServerFailed:
            raise errors.STOCKPHOTO_UNAVAILABLE(provider=self.name) from None
        except http_client.HttpTimeout:
            raise errors.STOCKPHOTO_TOO_SLOW(provider=self.name) from None
        except http_client.ReplyRefused as refused:
            raise self._failed(str(refused)) from None
        except http_client.HttpFailure as failure:
            log.warning("stockphoto.unreachable", reason=http_client.reason_of(failure))
            raise errors.STOCKPHOTO_UNAVAILABLE(provider=self.name) from None
        quotas = _quotas(reply.headers)
        self.report(self.name, quotas)
        if reply.status != HTTPStatus.OK:
            raise self._error(reply, quotas)
        try:
            document: object = orjson.loads(reply.body)
        except orjson.JSONDecodeError:
            raise self._failed("not JSON") from None
        if not isinstance(document, dict):
            raise self._failed("not an object")
        return reply.body.decode(), document

    def file_url(self, path: str, params: Mapping[str, str | int]) -> str:
        """The URL of the photo's file in the reply of either provider."""
        url = self.get(path, params)[1].get("url")
        if not isinstance(url, str) or not _FILE_URL.match(url):
            raise errors.STOCKPHOTO_FAILED(provider="The provider")
        return url

    @cached_property
    def _breaker(self) -> Breaker:
        return Breaker(_SERVER, http_client.HttpFailure, tolerated=_TOLERATED_FAILURES)

    @cached_property
    def _http(self) -> http_client.HttpClient:
        # Opened at the first call: a process that only names providers needs none.
        return http_client.HttpClient(
            http_client.HttpBounds(
                _MAX_CALL_SECONDS, _MAX_CONNECT_SECONDS, _MAX_REPLY_BYTES, provider=_SERVER
            )
        )

    def _error(self, reply: http_client.HttpReply, quotas: tuple[Quota, ...]) -> DomainError:
        status = reply.status
        spent = any(quota.remaining == 0 for quota in quotas)
        # Unsplash answers 403 both when no requests are left and when the caller may not ask.
        if status == HTTPStatus.TOO_MANY_REQUESTS or (status == HTTPStatus.FORBIDDEN and spent):
            log.warning("stockphoto.limit_reached", provider=self.name)
            header = reply.headers.get("Retry-After")
            seconds = http_client.retry_after(header, max_seconds=_MAX_RETRY_AFTER_SECONDS)
            # Unsplash doesn't say.
            after = _RETRY_AFTER_SECONDS if seconds is None else int(max(seconds, 1))
            return errors.STOCKPHOTO_LIMIT_REACHED(provider=self.name, retry_after=after)
        if status == HTTPStatus.NOT_FOUND:
            return errors.STOCKPHOTO_NOT_FOUND(provider=self.name)
        if status in _ABOUT_THE_REQUEST:
            return errors.STOCKPHOTO_REFUSED(provider=self.name)
        return self._failed(f"status {status}")

    def _failed(self, reason: str) -> DomainError:
        log.warning("stockphoto.failed", provider=self.name, reason=reason)
        return errors.STOCKPHOTO_FAILED(provider=self.name)


def _quotas(headers: http_client.HttpHeaders) -> tuple[Quota, ...]:
    quotas = []
    for name, value in headers.items():
        match = _LIMIT.match(name.lower())
        if not match:
            continue
        window = match["window"]
        left = [headers.get(f"{name}-{window}" if window else name, "") for name in _REMAINING]
        remaining = next(filter(None, map(_NUMBER.match, left)), None)
        if remaining and (limit := _NUMBER.match(value)):
            quotas.append(Quota(window or "hour", int(limit[0]), int(remaining[0])))
    return tuple(quotas)
