"""The addresses to which webhooks may be sent: public addresses, and allowed networks.

Python's ``is_global`` is not strict enough for such calls. It is true for IPv6 addresses that embed
an IPv4 address (NAT64 ``64:ff9b::/96``, 6to4 ``2002::/16``, compatible ``::/96``, translated
``::ffff:0:0:0/96``), for some multicast addresses, and for ``fec0::/10``. Before Python 3.13, it is
also true for networks that were reserved later. This module therefore allows global unicast for
IPv6, without the reserved networks in it. For IPv4 it allows everything except a list of networks.
"""

import ipaddress
from collections.abc import Iterable

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
# The networks of https://www.iana.org/assignments/iana-ipv4-special-registry, multicast, and
# reserved networks.
_RESERVED_V4 = tuple(
    ipaddress.IPv4Network(each)
    for each in (
        *("0.0.0.0/8", "10.0.0.0/8"),
        "100.64.0.0/10",  # shared, and the metadata service of a cloud provider
        "127.0.0.0/8",
        "168.63.129.16/32",  # the host agent of a cloud provider, whose address looks public
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
        "2001::/23",  # protocol assignments, including Teredo
        "2002::/16",  # 6to4
        *("2001:db8::/32", "2620:4f:8000::/48", "3fff::/20"),
    )
)
# The interface identifier of ISATAP (RFC 5214), which an IPv4 address follows.
_ISATAP = (0x00005EFE, 0x02005EFE)


def is_callable(address: IpAddress, allowed: Iterable[IpNetwork]) -> bool:
    """Return whether an address is public or in an allowed network."""
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
        return False
    return is_within(address, allowed) or is_public(address)


def is_within(address: IpAddress, networks: Iterable[IpNetwork]) -> bool:
    """Return whether an address is in one of the networks.

    An IPv6 address that embeds an IPv4 address is never in an IPv4 network.
    """
    return any(address in network for network in networks if network.version == address.version)


def is_public(address: IpAddress) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _RESERVED_V4)
    return (
        address in _GLOBAL_UNICAST
        and not any(address in network for network in _RESERVED_V6)
        and (int(address) >> 32) & 0xFFFFFFFF not in _ISATAP
    )
