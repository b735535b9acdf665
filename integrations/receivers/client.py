"""Sends webhooks to the receivers that list owners have configured."""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus

from core.counters.work_metrics import initialize_provider_counters
from integrations.http_client import record_call
from integrations.receivers.addresses import IpNetwork
from integrations.receivers.connection import (
    ConnectionLost,
    NotConnected,
    PostFailed,
    ReceiverConnection,
)
from integrations.receivers.destinations import (
    DestinationRefused,
    HostUnknown,
    Resolver,
    parse_url,
    require_public_form,
    resolve_destination,
)

MAX_CALL_SECONDS = 15.0
MAX_ANSWER_BYTES = 4096
_PROVIDER = "webhook receiver"


@dataclass(frozen=True)
class SignedPost:
    content: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Outcome:
    """``status`` is ``None`` without a response. ``error`` states why there is no response, and
    contains no secrets. ``body`` contains the first 4 KB of the response body.
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
    """A thread-safe client that sends webhooks, even to private addresses in the networks
    ``allowed``.
    """

    def __init__(self, allowed: Sequence[IpNetwork], resolve: Resolver | None = None) -> None:
        self._allowed = tuple(allowed)
        self._resolve = resolve

    def check(self, url: str) -> None:
        """Raise ``DestinationRefused`` for a URL to which webhooks may not be sent.

        Each webhook call checks the host again, because an unresolvable host may get an IP address
        later.
        """
        location = parse_url(url)
        try:
            resolve_destination(location, self._allowed, self._resolve)
        except HostUnknown:
            require_public_form(location)

    def post_each(self, url: str, posts: Iterable[SignedPost]) -> list[Outcome]:
        """Send webhooks in order until one fails, and return the outcomes.

        All webhooks in ``posts`` are sent over one connection, so the receiver's IP addresses are
        looked up and checked only once. The result contains no outcome for a webhook whose
        connection broke, so that the caller sends the webhook again.
        """
        started_at = time.monotonic()
        try:
            destination = resolve_destination(parse_url(url), self._allowed, self._resolve)
        except DestinationRefused as refused:
            return [_fail(started_at, f"The webhook was not sent because its URL {refused}.")]
        except HostUnknown:
            return [_fail(started_at, "The host name has no IP address.")]
        initialize_provider_counters(_PROVIDER)
        outcomes: list[Outcome] = []
        with closing(
            ReceiverConnection(destination, max_body_bytes=MAX_ANSWER_BYTES)
        ) as connection:
            for post in posts:
                try:
                    outcomes.append(_send_post(connection, post, started_at))
                except ConnectionLost as failure:
                    if outcomes:
                        break
                    outcomes.append(_fail(started_at, f"No response was received: {failure}."))
                if not outcomes[-1].is_success:
                    break
                started_at = time.monotonic()
        return outcomes


def _send_post(connection: ReceiverConnection, post: SignedPost, started_at: float) -> Outcome:
    try:
        with record_call(_PROVIDER, "POST") as record_status:
            ends_at = time.monotonic() + MAX_CALL_SECONDS
            response = connection.post(post.content, post.headers, ends_at=ends_at)
            record_status(response.status)
    except NotConnected as failure:
        return _fail(started_at, f"The connection failed: {failure}.")
    except ConnectionLost:
        raise
    except PostFailed as failure:
        return _fail(started_at, f"No response was received: {failure}.")
    return Outcome(
        milliseconds=_milliseconds_since(started_at),
        status=response.status,
        body=response.body,
        retry_after=response.retry_after,
    )


def _fail(started_at: float, error: str) -> Outcome:
    return Outcome(_milliseconds_since(started_at), error=error)


def _milliseconds_since(started_at: float) -> int:
    return round((time.monotonic() - started_at) * 1000)
