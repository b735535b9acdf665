"""The receivers of webhooks: servers that strangers name, so that each call to one is guarded.

A URL is compared as a whole with the one form that is allowed, so no two readers of it can disagree
about the host. The addresses that were checked are the ones that are called.
"""

import ipaddress
import re
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus

from integrations import http_client
from integrations.http_client import HttpFailure, HttpReply, NotConnected, reason_of

# Python's ``is_global`` is no rule for what may be called. It takes for global what embeds an IPv4
# address (NAT64 ``64:ff9b::/96``, 6to4 ``2002::/16``, compatible ``::/96``, translated
# ``::ffff:0:0:0/96``), some multicast, ``fec0::/10`` and, before 3.13, what was reserved since.
# Therefore IPv6 allows global unicast alone, less what is reserved in it, and IPv4 all but this
# list.

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

# https://www.iana.org/assignments/iana-ipv4-special-registry, multicast, and what is reserved.
_RESERVED_V4 = tuple(
    ipaddress.IPv4Network(each)
    for each in (
        *("0.0.0.0/8", "10.0.0.0/8"),
        "100.64.0.0/10",  # shared, and the metadata service of a cloud
        "127.0.0.0/8",
        "168.63.129.16/32",  # the host agent of a cloud, under an address that looks public
        "169.254.0.0/16",  # link-local, and most metadata services
        *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24"),
        *("192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15"),
        *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
    )
)
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_RESERVED_V6 = tuple(
    ipaddress.IPv6Network(each)
    for each in (
        "2001::/23",  # protocol assignments, Teredo among them
        "2002::/16",  # 6to4
        *("2001:db8::/32", "2620:4f:8000::/48", "3fff::/20"),
    )
)
# The interface identifier of ISATAP (RFC 5214), which an IPv4 address follows.
_ISATAP = (0x00005EFE, 0x02005EFE)


def is_callable(address: IpAddress, allowed: Iterable[IpNetwork]) -> bool:
    """Return whether a call may go there: a public address, or one of an allowed network."""
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
        return False
    return is_within(address, allowed) or is_public(address)


def is_within(address: IpAddress, networks: Iterable[IpNetwork]) -> bool:
    """An IPv6 address that embeds an IPv4 address is in no network of IPv4."""
    return any(address in network for network in networks if network.version == address.version)


def is_public(address: IpAddress) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _RESERVED_V4)
    return (
        address in _GLOBAL_UNICAST
        and not any(address in network for network in _RESERVED_V6)
        and (int(address) >> 32) & 0xFFFFFFFF not in _ISATAP
    )


MAX_URL_CHARACTERS = 2_000
MAX_HOST_CHARACTERS = 253
_HTTPS_PORT = 443
# Below are the ports of other protocols.
_MIN_FREE_PORT = 1024
_MAX_PORT = 65_535

_URL = re.compile(
    r"(?P<scheme>https?)://"
    r"(?P<host>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_.-]{1,253})"
    r"(?::(?P<port>[1-9][0-9]{0,4}))?"
    r"(?P<path>[/?][!$-;=?-Z_a-z~\[\]]*)?",
    re.ASCII | re.IGNORECASE,
)
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)", re.ASCII)
# A last label like these makes most readers take the whole host for an IPv4 address.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)

# The addresses of a host, as texts; raises ``OSError``.
Resolver = Callable[[str, int], Sequence[str]]


class DestinationRefused(Exception):
    """A URL that may not be called; the text names the rule."""


class HostUnknown(Exception):
    """A host that has no address now."""


@dataclass(frozen=True)
class Location:
    """A URL as it was read."""

    scheme: str
    # In lower case; of IPv6 without the brackets.
    host: str
    port: int
    # Begins with a slash; with the query.
    path: str

    @property
    def literal(self) -> IpAddress | None:
        """The address that the host is, if it is no name."""
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = _bracketed(self.host)
        default = {"http": 80, "https": _HTTPS_PORT}[self.scheme]
        return host if self.port == default else f"{host}:{self.port}"

    def pinned(self, address: IpAddress) -> str:
        """The URL with this address in the host's place."""
        return f"{self.scheme}://{_bracketed(str(address))}:{self.port}{self.path}"


@dataclass(frozen=True)
class Destination:
    location: Location
    # Each of them may be called.
    addresses: tuple[IpAddress, ...]


def read(url: str) -> Location:
    """Raises ``DestinationRefused``."""
    if len(url) > MAX_URL_CHARACTERS:
        raise DestinationRefused(f"has at most {MAX_URL_CHARACTERS} characters")
    found = _URL.fullmatch(url)
    if found is None:
        raise DestinationRefused(
            "is written https://host/path, in ASCII, without a user, a password or a fragment"
        )
    scheme, path = found["scheme"].lower(), found["path"] or "/"
    port = int(found["port"] or {"http": 80, "https": _HTTPS_PORT}[scheme])
    if port > _MAX_PORT:
        raise DestinationRefused(f"has a port up to {_MAX_PORT}")
    return Location(
        scheme, _host(found["host"].lower()), port, path if path.startswith("/") else f"/{path}"
    )


def find(
    location: Location, allowed: Sequence[IpNetwork], resolve: Resolver | None = None
) -> Destination:
    """The addresses of a host, each of which may be called.

    ``allowed``: networks of the operator's, in which private addresses, http and all ports are
    allowed. Raises ``DestinationRefused`` when one of the addresses may not be called, and
    ``HostUnknown``.
    """
    addresses: tuple[IpAddress, ...] = (location.literal,) if location.literal else ()
    if not addresses:
        with suppress(OSError, UnicodeError, ValueError):
            found = (resolve or _resolve)(location.host, location.port)
            addresses = tuple(dict.fromkeys(map(ipaddress.ip_address, found)))
    if not addresses:
        raise HostUnknown(location.host)
    if not all(is_callable(address, allowed) for address in addresses):
        raise DestinationRefused("names a server with a public address")
    if not all(is_within(address, allowed) for address in addresses):
        require_public_form(location)
    return Destination(location, addresses)


def require_public_form(location: Location) -> None:
    """Raises ``DestinationRefused`` for what is only called in networks of the operator's."""
    if location.scheme != "https":
        raise DestinationRefused("begins with https://")
    if location.port != _HTTPS_PORT and location.port < _MIN_FREE_PORT:
        raise DestinationRefused(f"has the port {_HTTPS_PORT}, or one from {_MIN_FREE_PORT} on")


def _host(host: str) -> str:
    if host.startswith("["):
        try:
            return str(ipaddress.IPv6Address(host[1:-1]))
        except ValueError:
            raise DestinationRefused("has a host that is a name or an IP address") from None
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        try:
            # Four decimal numbers without zeros in front, and nothing else that is read as one.
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise DestinationRefused("has an IPv4 address of four decimal numbers") from None
    if len(host) > MAX_HOST_CHARACTERS or not all(map(_LABEL.fullmatch, labels)):
        raise DestinationRefused("has a host that is a name or an IP address")
    return host


def _resolve(host: str, port: int) -> list[str]:
    return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


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
    """The result of one post.

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
    def _loop(self) -> http_client.CallLoop:
        return http_client.CallLoop()

    def check(self, url: str) -> None:
        """Raises ``DestinationRefused`` for a URL that may not be called.

        A host that has no address now may have one later, and is checked again at each call. Until
        then it is in no network of the operator's.
        """
        location = read(url)
        try:
            find(location, self._allowed, self._resolve)
        except HostUnknown:
            require_public_form(location)

    def post_each(self, url: str, posts: Iterable[SignedPost]) -> list[Outcome]:
        """Post one after the other, up to the first that is no success.

        The host's addresses are looked up and checked once, and a connection that stays open takes
        the next post. Where the receiver closes it between two posts, nobody knows whether it saw
        the second one, which then has no outcome: it is the first of other posts. No redirect is
        followed.
        """
        began = time.monotonic()
        try:
            to = find(read(url), self._allowed, self._resolve)
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
                reason = f"There was no connection: {reason_of(failure)}."
                outcomes.append(_unanswered(began, reason))
            except HttpFailure as failure:
                if outcomes and isinstance(failure, http_client.ConnectionLost):
                    break
                outcomes.append(_unanswered(began, f"There was no answer: {reason_of(failure)}."))
            else:
                after, took = reply.headers.get("Retry-After"), _milliseconds_since(began)
                outcomes.append(Outcome(took, reply.status, reply.body, after))
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
        """Raises ``HttpFailure``."""
        ends_at, location = time.monotonic() + MAX_CALL_SECONDS, self._location
        while True:
            try:
                return await self._http.send(
                    "POST",
                    location.pinned(self._addresses[0]),
                    max_seconds=ends_at - time.monotonic(),
                    content=post.content,
                    headers={**post.headers, "Host": location.authority},
                    # The certificate has to be that of the host, not of its address.
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
