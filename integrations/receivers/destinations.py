"""Checks the URLs to which webhooks are sent.

A webhook URL must match a strict pattern, so that all URL parsers agree on the host. Webhooks are
sent only to the checked IP addresses, because a second lookup could return other addresses.
"""

import ipaddress
import re
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from integrations.receivers.addresses import IpAddress, IpNetwork, is_callable, is_within

MAX_URL_CHARACTERS = 2_000
MAX_HOST_CHARACTERS = 253
_HTTPS_PORT = 443
# Public webhook URLs may use only port 443 and ports from 1024, because lower ports belong to
# system services.
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
# Matches the last label of a host name that most URL parsers would read as an IPv4 address.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
# A function that returns the IP addresses of a host and port, or raises ``OSError``.
Resolver = Callable[[str, int], Sequence[str]]


class DestinationRefused(Exception):
    """The exception's message completes the sentence "The URL …"."""


class HostUnknown(Exception):
    pass


@dataclass(frozen=True)
class Location:
    """``host`` is in lower case, or an IPv6 address without brackets."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def literal(self) -> IpAddress | None:
        """Return ``None`` if the host is a name."""
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None

    @property
    def authority(self) -> str:
        """Return the Host header for requests to the webhook URL."""
        host = _bracketed(self.host)
        default = {"http": 80, "https": _HTTPS_PORT}[self.scheme]
        return host if self.port == default else f"{host}:{self.port}"

    def pinned(self, address: IpAddress) -> str:
        """Return the webhook URL with an IP address instead of the host."""
        return f"{self.scheme}://{_bracketed(str(address))}:{self.port}{self.path}"


@dataclass(frozen=True)
class Destination:
    location: Location
    addresses: tuple[IpAddress, ...]


def parse_url(url: str) -> Location:
    """Raise ``DestinationRefused`` if the URL violates the strict pattern."""
    if len(url) > MAX_URL_CHARACTERS:
        raise DestinationRefused(f"must have at most {MAX_URL_CHARACTERS} characters")
    match = _URL.fullmatch(url)
    if match is None:
        raise DestinationRefused(
            "must be a URL such as https://example.com/hooks, in ASCII, without user name, password"
            " and fragment"
        )
    scheme = match["scheme"].lower()
    path = match["path"] or "/"
    port = int(match["port"] or {"http": 80, "https": _HTTPS_PORT}[scheme])
    if port > _MAX_PORT:
        raise DestinationRefused(f"must have a port of at most {_MAX_PORT}")
    host = _check_host(match["host"].lower())
    return Location(scheme, host, port, path if path.startswith("/") else f"/{path}")


def resolve_destination(
    location: Location, allowed: Sequence[IpNetwork], resolve: Resolver | None = None
) -> Destination:
    """Resolve a host, and check that webhooks may be sent to all its IP addresses.

    Raises ``DestinationRefused`` if one of the addresses is forbidden for webhooks. Raises
    ``HostUnknown`` if the host has no IP address. In the operator's networks ``allowed``, private
    addresses, http and all ports are allowed.
    """
    addresses = resolve_addresses(location, allowed, resolve)
    if not all(is_within(address, allowed) for address in addresses):
        require_public_form(location)
    return Destination(location, addresses)


def resolve_addresses(
    location: Location, allowed: Sequence[IpNetwork] = (), resolve: Resolver | None = None
) -> tuple[IpAddress, ...]:
    """Return all IP addresses of a host, and check that requests may be sent to each of them.

    Raises ``DestinationRefused`` for a private address that isn't in ``allowed``, and
    ``HostUnknown`` if the host has no IP address.
    """
    addresses: tuple[IpAddress, ...] = (location.literal,) if location.literal else ()
    if not addresses:
        with suppress(OSError, UnicodeError, ValueError):
            texts = (resolve or _look_up)(location.host, location.port)
            addresses = tuple(dict.fromkeys(map(ipaddress.ip_address, texts)))
    if not addresses:
        raise HostUnknown(location.host)
    if not all(is_callable(address, allowed) for address in addresses):
        raise DestinationRefused("must belong to a server with a public IP address")
    return addresses


def require_public_form(location: Location) -> None:
    if location.scheme != "https":
        raise DestinationRefused("must start with https://")
    if location.port != _HTTPS_PORT and location.port < _MIN_FREE_PORT:
        raise DestinationRefused(
            f"must have the port {_HTTPS_PORT} or a port of at least {_MIN_FREE_PORT}"
        )


def _check_host(host: str) -> str:
    if host.startswith("["):
        try:
            return str(ipaddress.IPv6Address(host[1:-1]))
        except ValueError:
            raise DestinationRefused("must have a valid host name or IP address") from None
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        try:
            # IPv4Address accepts only four decimal numbers without leading zeros.
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise DestinationRefused("must write an IPv4 address as four decimal numbers") from None
    if len(host) > MAX_HOST_CHARACTERS or not all(map(_LABEL.fullmatch, labels)):
        raise DestinationRefused("must have a valid host name or IP address")
    return host


def _look_up(host: str, port: int) -> list[str]:
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in entries]


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
