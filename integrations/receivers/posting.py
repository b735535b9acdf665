"""One POST to the receiver of a webhook: to an address that was checked, and to no other."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from integrations.http_client import (
    HttpBounds,
    HttpClient,
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
from integrations.receivers.ip_guard import IpNetwork

MAX_CALL_SECONDS = 15.0
MAX_ANSWER_BYTES = 4096
_MAX_CONNECT_SECONDS = 5.0
# A host with several addresses may have one that can't be reached from here.
_MAX_ADDRESSES_TRIED = 3


@dataclass(frozen=True)
class Answer:
    status: int
    # The first of it.
    body: bytes
    retry_after: str | None


class NoAnswer(Exception):
    """There was none; the text says why, without a secret."""


class ReceiverClient:
    """For any number of threads at once."""

    def __init__(self, allowed: Sequence[IpNetwork], resolve: Resolver | None = None) -> None:
        """``allowed``: networks of the operator's; ``resolve``: asked in place of the system."""
        self._allowed = tuple(allowed)
        self._resolve = resolve

    @cached_property
    def _http(self) -> HttpClient:
        return HttpClient(
            HttpBounds(
                max_seconds=MAX_CALL_SECONDS,
                max_connect_seconds=_MAX_CONNECT_SECONDS,
                max_reply_bytes=MAX_ANSWER_BYTES,
                cuts_replies=True,
                # Two hosts may have one address: a connection that was made for one of them, whose
                # certificate was checked, is never the other's.
                keeps_connections=False,
                tells_host=False,
                provider="webhook receiver",
            )
        )

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

    def post(self, url: str, content: bytes, headers: Mapping[str, str]) -> Answer:
        """Raises ``NoAnswer``; no redirect is followed."""
        try:
            to = destination.find(destination.read(url), self._allowed, self._resolve)
        except DestinationRefused as refused:
            raise NoAnswer(f"The URL is not called: it {refused}.") from None
        except HostUnknown:
            raise NoAnswer("The host has no address.") from None
        reply = self._first_reply(to, content, headers)
        return Answer(reply.status, reply.body, reply.headers.get("Retry-After"))

    def _first_reply(
        self, to: Destination, content: bytes, headers: Mapping[str, str]
    ) -> HttpReply:
        location = to.location
        sent = {**headers, "Host": location.authority}
        # The certificate has to be that of the host, not of its address.
        named = {} if location.literal else {"sni_hostname": location.host}
        ends_at = time.monotonic() + MAX_CALL_SECONDS
        reason = "no address answers"
        for address in to.addresses[:_MAX_ADDRESSES_TRIED]:
            left = ends_at - time.monotonic()
            if left <= 0:
                break
            try:
                return self._http.send(
                    "POST",
                    location.pinned(address),
                    max_seconds=left,
                    content=content,
                    headers=sent,
                    extensions=named,
                )
            except NotConnected as failure:
                reason = reason_of(failure)
            except HttpFailure as failure:
                raise NoAnswer(f"There was no answer: {reason_of(failure)}.") from None
        raise NoAnswer(f"There was no connection: {reason}.")
