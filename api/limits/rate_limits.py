"""Rate limits of calls: by user, or by address for a call without credentials.

All credentials of a user count together: keys are free, and each could have had the whole limit.

While Redis is away, calls are not counted, except at the routes where a caller could guess
passwords or open orders as a stranger: there each process counts by itself, with half the limit.
"""

from collections.abc import MutableMapping
from enum import StrEnum
from typing import Any

from limits import RateLimitItem

from core.errors.requests import RATE_LIMITED
from core.networks import network_of
from core.settings import Settings
from services.access.caller import Caller
from storage.redis.rate_counters import RateCounters, parse_limits


class RateLimitName(StrEnum):
    """The limits that a call can count against, by their names in the ``RateLimit`` headers."""

    DEFAULT = "default"
    ANONYMOUS = "anonymous"
    LOGIN = "login"


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

    def count(self, scope: MutableMapping[str, Any], rate: RateLimitName, key: str) -> None:
        """Count a call of the caller with this key; raises ``rate.limited`` beyond the limit."""
        statuses = []
        for item in self._limits[rate]:
            status = self._counters.count(item, rate, key)
            # This limit holds even while Redis is away.
            if status is None and rate is RateLimitName.LOGIN:
                status = self._counters.count_locally(item, rate, key)
            if status is not None:
                statuses.append(status)
        if not statuses:
            return
        # draft-ietf-httpapi-ratelimit-headers
        names = [rate if len(statuses) == 1 else f"{rate}-{each.window}" for each in statuses]
        named = list(zip(names, statuses, strict=True))
        policy = ", ".join(f'"{name}";q={each.limit};w={each.window}' for name, each in named)
        left = ", ".join(
            f'"{name}";r={max(each.remaining, 0)};t={each.reset}' for name, each in named
        )
        scope["pressroom.headers"] += [
            (b"ratelimit-policy", policy.encode()),
            (b"ratelimit", left.encode()),
        ]
        exceeded = [each.reset for each in statuses if each.remaining < 0]
        if exceeded:
            raise RATE_LIMITED(retry_after=max(exceeded))

    def is_first_beyond(self, item: RateLimitItem, name: str, key: str) -> bool:
        """Count what is not refused, and return whether it is the first beyond the limit."""
        status = self._counters.count(item, name, key)
        return status is not None and status.remaining == -1

    def close(self) -> None:
        self._counters.close()


def rate_key_of_caller(caller: Caller) -> str:
    return f"user-{caller.user_id}"


def rate_key_of_address(address: str | None) -> str:
    """Count IPv6 by its network: a customer who has one address of it has 2 to the power of 64."""
    network = network_of(address)
    return "nowhere" if network is None else str(network.network_address)
