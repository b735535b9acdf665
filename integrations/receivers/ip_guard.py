"""Which IP addresses may be called, when a stranger names the server.

Python's ``is_global`` is no such rule. It takes for global what embeds an IPv4 address (NAT64
``64:ff9b::/96``, 6to4 ``2002::/16``, compatible ``::/96``, translated ``::ffff:0:0:0/96``), some
multicast, ``fec0::/10`` and, before 3.13, what was reserved since. So of IPv6 only global unicast
is allowed, less what is reserved in it; of IPv4 all but what is listed here.
"""

import ipaddress
from collections.abc import Iterable

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

# https://www.iana.org/assignments/iana-ipv4-special-registry, multicast, and what is reserved.
_RESERVED_V4 = tuple(
    map(
        ipaddress.IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",  # shared, and the metadata service of a cloud
            "127.0.0.0/8",
            "168.63.129.16/32",  # the host agent of a cloud, under an address that looks public
            "169.254.0.0/16",  # link-local, and most metadata services
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
        ),
    )
)
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_RESERVED_V6 = tuple(
    map(
        ipaddress.IPv6Network,
        (
            "2001::/23",  # protocol assignments, Teredo among them
            "2001:db8::/32",
            "2002::/16",  # 6to4
            "2620:4f:8000::/48",
            "3fff::/20",
        ),
    )
)
# The interface identifier of ISATAP (RFC 5214), which an IPv4 address follows.
_ISATAP = (0x00005EFE, 0x02005EFE)


def is_callable(address: IpAddress, allowed: Iterable[IpNetwork]) -> bool:
    """Whether a call may go there: a public address, or one of the networks that are allowed."""
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
