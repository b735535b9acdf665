"""Limits the rate of requests per user, or per IP address for requests without credentials.

All credentials of a user share a rate limit, because users can create any number of API keys.

While Redis is unavailable, only routes where callers could guess passwords or create orders without
credentials are limited. Each process then allows half of the rate limit.
"""

from collections.abc import MutableMapping
from enum import StrEnum
from typing import Any

from limits import RateLimitItem

from core.errors import DomainError, Kind
from core.errors.requests import RATE_LIMITED
from core.networks import network_of
from core.settings import Settings
from services.access.caller import Caller
from storage.redis.rate_counters import RateCounters, RateLimitStatus, parse_limits


class RateLimitName(StrEnum):
    """The names of the rate limits in the ``RateLimit`` headers."""

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

    def has_limit(self, rate: RateLimitName) -> bool:
        return bool(self._limits[rate])

    def count(self, scope: MutableMapping[str, Any], rate: RateLimitName, key: str) -> None:
        """Raise ``rate.limited`` if the rate limit is exceeded."""
        self.enforce(scope, rate, self.take(rate, key))

    def count_reserved(
        self, scope: MutableMapping[str, Any], rate: RateLimitName, key: str
    ) -> bool:
        """Count as ``count`` does, or return ``False`` if that needs a call to Redis."""
        statuses = []
        for item in self._limits[rate]:
            status = self._counters.count_reserved(item, rate, key)
            if status is None:
                return False
            statuses.append(status)
        self.enforce(scope, rate, statuses)
        return True

    def enforce(
        self, scope: MutableMapping[str, Any], rate: RateLimitName, statuses: list[RateLimitStatus]
    ) -> None:
        """Add the ``RateLimit`` headers, and raise ``rate.limited`` if a limit is exceeded."""
        if not statuses:
            return
        # draft-ietf-httpapi-ratelimit-headers defines the format of the ``RateLimit`` headers.
        policies = []
        remainders = []
        for status in statuses:
            name = rate if len(statuses) == 1 else f"{rate}-{status.window}"
            policies.append(f'"{name}";q={status.limit};w={status.window}')
            remainders.append(f'"{name}";r={max(status.remaining, 0)};t={status.reset}')
        scope["pressroom.headers"] += [
            (b"ratelimit-policy", ", ".join(policies).encode()),
            (b"ratelimit", ", ".join(remainders).encode()),
        ]
        resets = [status.reset for status in statuses if status.remaining < 0]
        if resets:
            raise RATE_LIMITED(retry_after=max(resets))

    def take(self, rate: RateLimitName, key: str) -> list[RateLimitStatus]:
        """Count a request under ``key``, without enforcing the rate limit."""
        statuses = []
        for item in self._limits[rate]:
            status = self._counters.count(item, rate, key)
            # Limit the rate of logins even while Redis is unavailable.
            if status is None and rate is RateLimitName.LOGIN:
                status = self._counters.count_locally(item, rate, key)
            if status is not None:
                statuses.append(status)
        return statuses

    def give_back(self, statuses: list[RateLimitStatus]) -> None:
        for status in statuses:
            self._counters.give_back(status)

    def has_just_exceeded(self, item: RateLimitItem, name: str, key: str) -> bool:
        """Count an event, and return whether it is the first one above the rate limit."""
        status = self._counters.count(item, name, key)
        return status is not None and status.remaining == -1

    def close(self) -> None:
        self._counters.close()


class RejectionCount:
    """Counts a request against a rate limit, unless the ``with`` block accepts the request.

    The request is counted before the ``with`` block verifies it. An authentication error in the
    block is replaced by ``rate.limited`` if the rate limit is exceeded.
    """

    def __init__(
        self,
        rates: RateLimiter,
        scope: MutableMapping[str, Any],
        rate: RateLimitName,
        key: str,
    ) -> None:
        self._rates = rates
        self._scope = scope
        self._rate = rate
        self._key = key
        self._statuses: list[RateLimitStatus] = []

    def begin(self) -> bool:
        """Count the request, and return whether the rate limit permits it."""
        self._statuses = self._rates.take(self._rate, self._key)
        return all(status.remaining >= 0 for status in self._statuses)

    def accept(self) -> None:
        self._rates.give_back(self._statuses)
        self._statuses = []

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, DomainError) and error.kind is Kind.UNAUTHENTICATED:
            self._rates.enforce(self._scope, self._rate, self._statuses)
        else:
            self.accept()


def build_caller_rate_key(caller: Caller) -> str:
    return f"user-{caller.account_id}"


def build_address_rate_key(address: str | None) -> str:
    """Share a key among the addresses of an IPv6 network, because a customer usually has 2**64."""
    network = network_of(address)
    return "nowhere" if network is None else str(network.network_address)
