"""Sends GET requests to the API of a stock photo provider."""

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
from core.errors.media import ATTACHMENT_TOO_LARGE
from core.logging import get_logger
from core.upload_limits import MAX_IMAGE_BYTES
from integrations import http_client
from integrations.stock_photos.port import PhotoProviderName, Quota

_MAX_CALL_SECONDS = 10.0
_MAX_CONNECT_SECONDS = 3.0
_RETRY_AFTER_SECONDS = 60
_TOLERATED_FAILURES = 2
_SERVER = "photo provider"
_MAX_RETRY_AFTER_SECONDS = 24 * 3600

# Matches the names of the headers that contain a provider's request limit per time window. Unsplash
# has only one limit, for the requests per hour. Openverse has request limits for several time
# windows. Openverse adds the name of the time window to the header, as in `…-Limit-anon_burst`.
_LIMIT_HEADER = re.compile(r"x-ratelimit-limit(?:-(?P<window>[a-z0-9_]{1,40}))?\Z")
_REMAINING_HEADERS = ("x-ratelimit-remaining", "x-ratelimit-available")
_NUMBER = re.compile(r"\d{1,9}")
# The HTTP statuses for an invalid request.
_INVALID_REQUEST_STATUSES = {
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_URI_TOO_LONG,
    HTTPStatus.UNPROCESSABLE_ENTITY,
}

_FILE_URL = re.compile(r"https?://[^\s/]")

log = get_logger(__name__)

QuotaReport = Callable[[PhotoProviderName, tuple[Quota, ...]], None]


@dataclass
class Exchange:
    """The HTTP API of a stock photo provider.

    ``report`` records the remaining request quota, which is part of each reply.
    """

    name: PhotoProviderName
    base: str
    headers: Mapping[str, str]
    report: QuotaReport

    def get(self, path: str, params: Mapping[str, str | int]) -> tuple[str, dict[str, Any]]:
        """Return the reply's JSON both as text and parsed."""
        try:
            body = self._send(path, params, "application/json")
        except http_client.ReplyRefused as refused:
            raise self._create_failure(str(refused)) from None
        try:
            document: object = orjson.loads(body)
        except orjson.JSONDecodeError:
            raise self._create_failure("not JSON") from None
        if not isinstance(document, dict):
            raise self._create_failure("not an object")
        return body.decode(), document

    def fetch_file(self, path: str, params: Mapping[str, str | int]) -> bytes:
        try:
            return self._send(path, params, "image/*")
        except http_client.ReplyTooLong:
            raise ATTACHMENT_TOO_LARGE() from None
        except http_client.ReplyRefused as refused:
            raise self._create_failure(str(refused)) from None

    def fetch_file_url(self, path: str, params: Mapping[str, str | int]) -> str:
        """Return a photo's file URL, which all providers report in the same field."""
        url = self.get(path, params)[1].get("url")
        if not isinstance(url, str) or not _FILE_URL.match(url):
            raise errors.STOCKPHOTO_FAILED(provider="The provider")
        return url

    @cached_property
    def _breaker(self) -> Breaker:
        return Breaker(_SERVER, http_client.HttpFailure, tolerated=_TOLERATED_FAILURES)

    @cached_property
    def _http(self) -> http_client.HttpClient:
        # Create the HTTP client at the first call, because many processes never call a provider.
        return http_client.HttpClient(
            http_client.HttpBounds(
                _MAX_CALL_SECONDS, _MAX_CONNECT_SECONDS, MAX_IMAGE_BYTES, provider=_SERVER
            )
        )

    def _send(self, path: str, params: Mapping[str, str | int], accept: str) -> bytes:
        headers = {"Accept": accept, **self.headers}
        try:
            with self._breaker.protect():
                # Use None instead of an empty mapping, for which the HTTP library would add a
                # question mark to the URL.
                reply = self._http.send(
                    "GET", self.base + path, params=params or None, headers=headers
                )
        except ServerFailed:
            raise errors.STOCKPHOTO_UNAVAILABLE(provider=self.name) from None
        except http_client.HttpTimeout:
            raise errors.STOCKPHOTO_TOO_SLOW(provider=self.name) from None
        except http_client.ReplyRefused:
            raise
        except http_client.HttpFailure as failure:
            log.warning("stockphoto.unreachable", reason=http_client.describe_failure(failure))
            raise errors.STOCKPHOTO_UNAVAILABLE(provider=self.name) from None
        quotas = _parse_quotas(reply.headers)
        self.report(self.name, quotas)
        if reply.status != HTTPStatus.OK:
            raise self._translate_status(reply, quotas)
        return reply.body

    def _translate_status(
        self, reply: http_client.HttpReply, quotas: tuple[Quota, ...]
    ) -> DomainError:
        status = reply.status
        is_used_up = any(quota.remaining == 0 for quota in quotas)
        # Unsplash responds with 403 if the request quota is used up or the access key is invalid.
        if status == HTTPStatus.TOO_MANY_REQUESTS or (
            status == HTTPStatus.FORBIDDEN and is_used_up
        ):
            log.warning("stockphoto.limit_reached", provider=self.name)
            header = reply.headers.get("Retry-After")
            seconds = http_client.parse_retry_after(header, max_seconds=_MAX_RETRY_AFTER_SECONDS)
            # Unsplash sends no Retry-After header, so a fixed delay is used.
            after = _RETRY_AFTER_SECONDS if seconds is None else int(max(seconds, 1))
            return errors.STOCKPHOTO_LIMIT_REACHED(provider=self.name, retry_after=after)
        if status == HTTPStatus.NOT_FOUND:
            return errors.STOCKPHOTO_NOT_FOUND(provider=self.name)
        if status in _INVALID_REQUEST_STATUSES:
            return errors.STOCKPHOTO_REFUSED(provider=self.name)
        return self._create_failure(f"status {status}")

    def _create_failure(self, reason: str) -> DomainError:
        log.warning("stockphoto.failed", provider=self.name, reason=reason)
        return errors.STOCKPHOTO_FAILED(provider=self.name)


def _parse_quotas(headers: http_client.HttpHeaders) -> tuple[Quota, ...]:
    quotas = []
    for name, value in headers.items():
        match = _LIMIT_HEADER.match(name.lower())
        if not match:
            continue
        window = match["window"]
        texts = [
            headers.get(f"{header}-{window}" if window else header, "")
            for header in _REMAINING_HEADERS
        ]
        remaining = next(filter(None, map(_NUMBER.match, texts)), None)
        if remaining and (limit := _NUMBER.match(value)):
            quotas.append(Quota(window or "hour", int(limit[0]), int(remaining[0])))
    return tuple(quotas)
