"""Posts to the receiver of a webhook: to an address that was checked, and to no other."""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus

from integrations.http_client import (
    AsyncHttpClient,
    CallLoop,
    ConnectionLost,
    HttpBounds,
    HttpFailure,
    HttpReply,
    NotConnected,
    reason_of,
)
from integrations.receivers import destination
from integrations.receivers.destination import (
    Destination,
    DestinationRefused,
    HostUnknown,
    Resolver,
)
from integrations.receivers.ip_guard import IpAddress, IpNetwork

MAX_CALL_SECONDS = 15.0
MAX_ANSWER_BYTES = 4096
_MAX_CONNECT_SECONDS = 5.0
# A host with several addresses may have one that can't be reached from here.
_MAX_ADDRESSES_TRIED = 3


@dataclass(frozen=True)
class SignedPost:
    content: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Outcome:
    """What became of one post.

    Attributes:
        status: of the answer; ``None``: there was none, and ``error`` says why, without a secret.
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
        first, after = HTTPStatus.OK, HTTPStatus.MULTIPLE_CHOICES
        return self.status is not None and first <= self.status < after


class ReceiverClient:
    """For any number of threads at once."""

    def __init__(self, allowed: Sequence[IpNetwork], resolve: Resolver | None = None) -> None:
        """``allowed``: networks of the operator's; ``resolve``: asked in place of the system."""
        self._allowed = tuple(allowed)
        self._resolve = resolve

    @cached_property
    def _loop(self) -> CallLoop:
        return CallLoop()

    def check(self, url: str) -> None:
        """Raises ``DestinationRefused`` for a URL that may not be called.

        A host that has no address now may have one later, and is checked again at each call. Until
        then it is in no network of the operator's.
        """
        location = destination.read(url)
        try:
            destination.find(location, self._allowed, self._resolve)
        except HostUnknown:
            destination.require_public_form(location)

    def post_each(self, url: str, posts: Iterable[SignedPost]) -> list[Outcome]:
        """Post one after the other, up to the first that is no success.

        The host's addresses are looked up and checked once, and a connection that stays open takes
        the next post. Where the receiver closes it between two posts, nobody knows whether it saw
        the second one, which then has no outcome: it is the first of other posts. No redirect is
        followed.
        """
        began = time.monotonic()
        try:
            to = destination.find(destination.read(url), self._allowed, self._resolve)
        except DestinationRefused as refused:
            return [_unanswered(began, f"The URL is not called: it {refused}.")]
        except HostUnknown:
            return [_unanswered(began, "The host has no address.")]
        return self._loop.wait_for(_post_each(to, posts, began))


async def _post_each(to: Destination, posts: Iterable[SignedPost], began: float) -> list[Outcome]:
    outcomes: list[Outcome] = []
    async with aclosing(_Line(to)) as line:
        for post in posts:
            try:
                reply = await line.post(post)
            except NotConnected as failure:
                outcomes.append(
                    _unanswered(began, f"There was no connection: {reason_of(failure)}.")
                )
            except HttpFailure as failure:
                if outcomes and isinstance(failure, ConnectionLost):
                    break
                outcomes.append(_unanswered(began, f"There was no answer: {reason_of(failure)}."))
            else:
                outcomes.append(_answered(began, reply))
            if not outcomes[-1].is_success:
                break
            began = time.monotonic()
    return outcomes


class _Line:
    """Calls to one server, over a connection that no call to another one takes.

    Two hosts may have one address: a connection that was made for one of them, whose certificate
    was checked, is never the other's.
    """

    def __init__(self, to: Destination) -> None:
        self._location = to.location
        self._addresses = list(to.addresses[:_MAX_ADDRESSES_TRIED])
        self._http = AsyncHttpClient(
            HttpBounds(
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
        """Raises ``HttpFailure``."""
        ends_at = time.monotonic() + MAX_CALL_SECONDS
        while True:
            try:
                return await self._post_to(self._addresses[0], post, ends_at - time.monotonic())
            except NotConnected:
                if len(self._addresses) == 1 or time.monotonic() >= ends_at:
                    raise
                del self._addresses[0]

    async def _post_to(self, address: IpAddress, post: SignedPost, max_seconds: float) -> HttpReply:
        location = self._location
        return await self._http.send(
            "POST",
            location.pinned(address),
            max_seconds=max_seconds,
            content=post.content,
            headers={**post.headers, "Host": location.authority},
            # The certificate has to be that of the host, not of its address.
            extensions={} if location.literal else {"sni_hostname": location.host},
        )


def _answered(began: float, reply: HttpReply) -> Outcome:
    retry_after = reply.headers.get("Retry-After")
    return Outcome(_milliseconds_since(began), reply.status, reply.body, retry_after)


def _unanswered(began: float, error: str) -> Outcome:
    return Outcome(_milliseconds_since(began), error=error)


def _milliseconds_since(began: float) -> int:
    return round((time.monotonic() - began) * 1000)
