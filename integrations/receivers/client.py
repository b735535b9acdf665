"""Sends webhooks to the receivers that list owners have configured."""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus

from integrations import http_client
from integrations.http_client import HttpFailure, HttpReply, NotConnected, describe_failure
from integrations.receivers.addresses import IpNetwork
from integrations.receivers.destinations import (
    Destination,
    DestinationRefused,
    HostUnknown,
    Resolver,
    parse_url,
    require_public_form,
    resolve_destination,
)

MAX_CALL_SECONDS = 15.0
MAX_ANSWER_BYTES = 4096
_MAX_CONNECT_SECONDS = 5.0
# The maximum number of IP addresses to try per host.
_MAX_ADDRESSES_TRIED = 3


@dataclass(frozen=True)
class SignedPost:
    """A signed webhook, ready to be sent."""

    content: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Outcome:
    """The result of sending a webhook.

    Attributes:
        status: the HTTP status, or ``None`` without a response.
        body: the first 4 KB of the response body.
        retry_after: the Retry-After header of the response.
        error: why there is no response. The text contains no secrets.
    """

    milliseconds: int
    status: int | None = None
    body: bytes = b""
    retry_after: str | None = None
    error: str | None = None

    @property
    def is_success(self) -> bool:
        if self.status is None:
            return False
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES


class ReceiverClient:
    """A thread-safe client that sends webhooks.

    Args:
        allowed: the operator's networks, to which webhooks may be sent even if they are private.
        resolve: a function that resolves host names instead of the system's resolver.
    """

    def __init__(self, allowed: Sequence[IpNetwork], resolve: Resolver | None = None) -> None:
        self._allowed = tuple(allowed)
        self._resolve = resolve

    @cached_property
    def _loop(self) -> http_client.CallLoop:
        return http_client.CallLoop()

    def check(self, url: str) -> None:
        """Raise ``DestinationRefused`` for a URL to which webhooks may not be sent.

        An unresolvable host counts as outside the operator's networks. Each webhook call checks the
        host again, because an unresolvable host may get an IP address later.
        """
        location = parse_url(url)
        try:
            resolve_destination(location, self._allowed, self._resolve)
        except HostUnknown:
            require_public_form(location)

    def post_each(self, url: str, posts: Iterable[SignedPost]) -> list[Outcome]:
        """Send webhooks in order until one fails, and return the outcomes.

        All webhooks in ``posts`` are sent over one connection, so the receiver's IP addresses are
        looked up and checked only once. The function doesn't follow redirects. If the connection
        breaks during a webhook, the receiver may or may not have processed the webhook. The result
        contains no outcome for a webhook whose connection broke, so that the caller sends the
        webhook again.
        """
        started_at = time.monotonic()
        try:
            destination = resolve_destination(parse_url(url), self._allowed, self._resolve)
        except DestinationRefused as refused:
            return [_fail(started_at, f"The webhook was not sent because its URL {refused}.")]
        except HostUnknown:
            return [_fail(started_at, "The host name has no IP address.")]
        return self._loop.wait_for(_post_each(destination, posts, started_at))


async def _post_each(
    destination: Destination, posts: Iterable[SignedPost], started_at: float
) -> list[Outcome]:
    outcomes: list[Outcome] = []
    async with aclosing(_Connection(destination)) as connection:
        for post in posts:
            try:
                reply = await connection.post(post)
            except NotConnected as failure:
                reason = f"The connection failed: {describe_failure(failure)}."
                outcomes.append(_fail(started_at, reason))
            except HttpFailure as failure:
                if outcomes and isinstance(failure, http_client.ConnectionLost):
                    break
                reason = f"No response was received: {describe_failure(failure)}."
                outcomes.append(_fail(started_at, reason))
            else:
                outcomes.append(
                    Outcome(
                        milliseconds=_milliseconds_since(started_at),
                        status=reply.status,
                        body=reply.body,
                        retry_after=reply.headers.get("Retry-After"),
                    )
                )
            if not outcomes[-1].is_success:
                break
            started_at = time.monotonic()
    return outcomes


class _Connection:
    """A connection to a webhook receiver, used for only one host.

    Two hosts with the same IP address need separate connections, because the certificate is checked
    for only one host.
    """

    def __init__(self, destination: Destination) -> None:
        self._location = destination.location
        self._addresses = list(destination.addresses[:_MAX_ADDRESSES_TRIED])
        self._http = http_client.AsyncHttpClient(
            http_client.HttpBounds(
                max_seconds=MAX_CALL_SECONDS,
                max_connect_seconds=_MAX_CONNECT_SECONDS,
                max_reply_bytes=MAX_ANSWER_BYTES,
                truncates_replies=True,
                has_traced_host=False,
                provider="webhook receiver",
            )
        )

    async def aclose(self) -> None:
        await self._http.aclose()

    async def post(self, post: SignedPost) -> HttpReply:
        """Send one post. Raises ``HttpFailure``."""
        ends_at = time.monotonic() + MAX_CALL_SECONDS
        location = self._location
        while True:
            try:
                return await self._http.send(
                    "POST",
                    location.pinned(self._addresses[0]),
                    max_seconds=ends_at - time.monotonic(),
                    content=post.content,
                    headers={**post.headers, "Host": location.authority},
                    # Verify the certificate for the host name, because the URL contains an IP
                    # address.
                    extensions={} if location.literal else {"sni_hostname": location.host},
                )
            except NotConnected:
                if len(self._addresses) == 1 or time.monotonic() >= ends_at:
                    raise
                del self._addresses[0]


def _fail(started_at: float, error: str) -> Outcome:
    return Outcome(_milliseconds_since(started_at), error=error)


def _milliseconds_since(started_at: float) -> int:
    return round((time.monotonic() - started_at) * 1000)
