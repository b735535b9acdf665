"""Maps a client's IP address to its network, because one client often has many IP addresses."""

from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

# The prefix length of an IPv6 network that belongs to one customer. Internet providers assign at
# least a /64 network to each customer.
_IPV6_PREFIX = 64


def network_of(ip: str | None, *, ipv4_prefix: int = 32) -> IPv4Network | IPv6Network | None:
    """Return the network that contains an IP address, or ``None`` for an invalid IP address.

    An IPv4-mapped IPv6 address counts as the IPv4 address that it contains.
    """
    try:
        address = ip_address(ip or "")
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    prefix = _IPV6_PREFIX if isinstance(address, IPv6Address) else ipv4_prefix
    return ip_network((int(address), prefix), strict=False)
