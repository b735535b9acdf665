"""How often anybody may call: by credential, or by address where there is none.

While Redis is away, calls are not counted, but for those that guess at passwords or open orders
for strangers: each process allows these half as often by a count of its own.
"""

import ipaddress
from collections.abc import MutableMapping
from enum import StrEnum
from typing import Any

from core.refusals.requests import RATE_LIMITED
from core.settings import Settings
from services.access.caller import Caller
from storage.redis.rate_counters import RateCounters, RateLimitStatus, parse_limits

# One customer of a network has at least this much of IPv6.
_IPV6_PREFIX = 64


class RateLimitName(StrEnum):
    """Which limit a call counts against; its name in the ``RateLimit`` headers too."""

    DEFAULT = "default"
    ANONYMOUS = "anonymous"
    LOGIN = "login"


# Those that are kept even when Redis is away.
_STRICT = frozenset({RateLimitName.LOGIN})


class RateLimiter:
    def __init__(self, settings: Settings) -> None:
        self._counters = RateCounters(settings)
        self._limits = {
            RateLimitName.DEFAULT: parse_limits(settings.rate_limit_default),
            RateLimitName.ANONYMOUS: parse_limits(settings.rate_limit_anonymous),
            RateLimitName.LOGIN: parse_limits(settings.rate_limit_login),
        }

    def counts(self, rate: RateLimitName) -> bool:
        return bool(self._limits[rate])

    def count(self, scope: MutableMapping[str, Any], rate: RateLimitName, who: str) -> None:
        """Count a call; raises ``rate.limited`` where it is one too many."""
        standings = []
        for item in self._limits[rate]:
            standing = self._counters.count(item, rate, who)
            if standing is None and rate in _STRICT:
                standing = self._counters.count_here(item, rate, who)
            if standing is not None:
                standings.append(standing)
        scope["pressroom.headers"].extend(_headers(rate, standings))
        exceeded = [each.reset for each in standings if each.remaining < 0]
        if exceeded:
            raise RATE_LIMITED(retry_after=max(exceeded))

    def close(self) -> None:
        self._counters.close()


def rate_key_of_caller(caller: Caller) -> str:
    for kind, found in (
        ("key", caller.key_id),
        ("session", caller.session_id),
        ("grant", caller.grant_id),
    ):
        if found is not None:
            return f"{kind}-{found}"
    return f"user-{caller.user_id}"


def rate_key_of_address(address: str | None) -> str:
    """IPv6 by its network: whoever has one address of it has 2 to the power of 64."""
    try:
        parsed = ipaddress.ip_address(address or "")
    except ValueError:
        return "nowhere"
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed), _IPV6_PREFIX), strict=False).network_address)


def _headers(rate: RateLimitName, standings: list[RateLimitStatus]) -> list[tuple[bytes, bytes]]:
    """``RateLimit-Policy`` and ``RateLimit``, as draft-ietf-httpapi-ratelimit-headers has them."""
    if not standings:
        return []
    names = [rate if len(standings) == 1 else f"{rate}-{each.window}" for each in standings]
    named = list(zip(names, standings, strict=True))
    policy = ", ".join(f'"{name}";q={each.limit};w={each.window}' for name, each in named)
    state = ", ".join(f'"{name}";r={max(each.remaining, 0)};t={each.reset}' for name, each in named)
    return [(b"ratelimit-policy", policy.encode()), (b"ratelimit", state.encode())]
