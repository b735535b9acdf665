"""Decides whether webhooks may be sent to an IP address.

Python's ``is_global`` is too lenient to decide which addresses are public. ``is_global`` accepts
``fec0::/10``, some multicast addresses, and IPv6 addresses with an embedded IPv4 address. Embedded
IPv4 addresses occur in NAT64 addresses (``64:ff9b::/96``), 6to4 addresses (``2002::/16``),
IPv4-compatible addresses (``::/96``) and IPv4-translated addresses (``::ffff:0:0:0/96``). Before
Python 3.13, ``is_global`` accepts even some reserved networks.
"""

import ipaddress
from collections.abc import Iterable

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
# The reserved IPv4 networks, mostly from
# https://www.iana.org/assignments/iana-ipv4-special-registry.
_RESERVED_V4 = tuple(
    ipaddress.IPv4Network(each)
    for each in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",  # Shared address space, where one cloud has its metadata service.
        "127.0.0.0/8",
        "168.63.129.16/32",  # The host agent of Azure, at an address that looks public.
        "169.254.0.0/16",  # Link-local addresses, where most clouds have their metadata service.
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_RESERVED_V6 = tuple(
    ipaddress.IPv6Network(each)
    for each in (
        "2001::/23",  # IETF protocol assignments, including Teredo.
        "2002::/16",  # 6to4
        "2001:db8::/32",
        "2620:4f:8000::/48",
        "3fff::/20",
    )
)
# The ISATAP interface identifiers (RFC 5214) that precede an embedded IPv4 address.
_ISATAP = (0x00005EFE, 0x02005EFE)


def is_callable(address: IpAddress, allowed: Iterable[IpNetwork]) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
        return False
    return is_within(address, allowed) or is_public(address)


def is_within(address: IpAddress, networks: Iterable[IpNetwork]) -> bool:
    """Don't compare an IPv4 address embedded in an IPv6 address with the IPv4 networks."""
    return any(address in network for network in networks if network.version == address.version)


def is_public(address: IpAddress) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _RESERVED_V4)
    return (
        address in _GLOBAL_UNICAST
        and not any(address in network for network in _RESERVED_V6)
        and (int(address) >> 32) & 0xFFFFFFFF not in _ISATAP
    )
