"""Where a webhook goes: its URL read strictly, and the addresses of its host, resolved once.

The URL is compared as a whole with the one form that is allowed, so no two readers of it can
disagree about the host. The addresses that were checked are the ones that are called.
"""

import ipaddress
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from integrations.receivers.ip_guard import IpAddress, IpNetwork, is_callable, is_within

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
    literal = location.literal
    addresses = (literal,) if literal is not None else _resolved(location, resolve or _resolve)
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


def _resolved(location: Location, resolve: Resolver) -> tuple[IpAddress, ...]:
    try:
        found = resolve(location.host, location.port)
        addresses = tuple(dict.fromkeys(map(ipaddress.ip_address, found)))
    except (OSError, UnicodeError, ValueError):
        addresses = ()
    if not addresses:
        raise HostUnknown(location.host)
    return addresses


def _resolve(host: str, port: int) -> list[str]:
    return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
