from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

# The smallest network that a provider gives to one customer.
_IPV6_PREFIX = 64


def network_of(ip: str | None, *, ipv4_prefix: int = 32) -> IPv4Network | IPv6Network | None:
    """The network as whose a client's address counts; ``None`` for a text that is no address.

    An IPv4 address that is written as one of IPv6 counts as itself.
    """
    try:
        address = ip_address(ip or "")
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    prefix = _IPV6_PREFIX if isinstance(address, IPv6Address) else ipv4_prefix
    return ip_network((int(address), prefix), strict=False)
