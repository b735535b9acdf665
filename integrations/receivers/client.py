"""Posts webhooks to the receivers that owners name."""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus

from integrations import http_client
from integrations.http_client import HttpFailure, HttpReply, NotConnected, reason_of
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
# Some addresses of a host may be unreachable from this machine, so a call tries several.
_MAX_ADDRESSES_TRIED = 3


@dataclass(frozen=True)
class SignedPost:
    """A signed webhook, ready to be sent."""

    content: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Outcome:
    """The result of one post.

    Attributes:
        status: the status of the answer. If it is ``None``, ``error`` says why, without a secret.
        body: the first 4 KB of the answer.
        retry_after: the header of that name.
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
    """Posts webhooks. Any number of threads may use one client at the same time."""

    def __init__(self, allowed: Sequence[IpNetwork], resolve: Resolver | None = None) -> None:
        """Create a client.

        ``allowed``: the operator's networks. ``resolve``: replaces the system's resolver.
        """
        self._allowed = tuple(allowed)
        self._resolve = resolve

    @cached_property
    def _loop(self) -> http_client.CallLoop:
        return http_client.CallLoop()

    def check(self, url: str) -> None:
        """Raise ``DestinationRefused`` for a URL that may not be called.

        A host without an address is treated as a host outside the operator's networks. It may get
        an address later, so each call checks the host again.
        """
        location = parse_url(url)
        try:
            resolve_destination(location, self._allowed, self._resolve)
        except HostUnknown:
            require_public_form(location)

    def post_each(self, url: str, posts: Iterable[SignedPost]) -> list[Outcome]:
        """Send the posts one after the other, up to the first failure.

        The addresses of the host are looked up and checked once, and all posts use one connection.
        If the receiver closes the connection between two posts, it may or may not have received
        the second post. The second post then has no outcome, and the caller sends it again.
        Redirects are not followed.
        """
        began = time.monotonic()
        try:
            destination = resolve_destination(parse_url(url), self._allowed, self._resolve)
        except DestinationRefused as refused:
            return [_unanswered(began, f"The URL is not called: it {refused}.")]
        except HostUnknown:
            return [_unanswered(began, "The host has no address.")]
        return self._loop.wait_for(_post_each(destination, posts, began))


async def _post_each(
    destination: Destination, posts: Iterable[SignedPost], began: float
) -> list[Outcome]:
    outcomes: list[Outcome] = []
    async with aclosing(_Connection(destination)) as connection:
        for post in posts:
            try:
                reply = await connection.post(post)
            except NotConnected as failure:
                reason = f"There was no connection: {reason_of(failure)}."
                outcomes.append(_unanswered(began, reason))
            except HttpFailure as failure:
                if outcomes and isinstance(failure, http_client.ConnectionLost):
                    break
                outcomes.append(_unanswered(began, f"There was no answer: {reason_of(failure)}."))
            else:
                outcomes.append(
                    Outcome(
                        milliseconds=_milliseconds_since(began),
                        status=reply.status,
                        body=reply.body,
                        retry_after=reply.headers.get("Retry-After"),
                    )
                )
            if not outcomes[-1].is_success:
                break
            began = time.monotonic()
    return outcomes


class _Connection:
    """Calls to one server, over a connection that is used for no other server.

    Two hosts may have the same address. A connection whose certificate was checked for one of them
    must never be used for the other one.
    """

    def __init__(self, destination: Destination) -> None:
        self._location = destination.location
        self._addresses = list(destination.addresses[:_MAX_ADDRESSES_TRIED])
        self._http = http_client.AsyncHttpClient(
            http_client.HttpBounds(
                max_seconds=MAX_CALL_SECONDS,
                max_connect_seconds=_MAX_CONNECT_SECONDS,
                max_reply_bytes=MAX_ANSWER_BYTES,
                cuts_replies=True,
                tells_host=False,
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
                    # The certificate must belong to the host, not to its address.
                    extensions={} if location.literal else {"sni_hostname": location.host},
                )
            except NotConnected:
                if len(self._addresses) == 1 or time.monotonic() >= ends_at:
                    raise
                del self._addresses[0]


def _unanswered(began: float, error: str) -> Outcome:
    return Outcome(_milliseconds_since(began), error=error)


def _milliseconds_since(began: float) -> int:
    return round((time.monotonic() - began) * 1000)
