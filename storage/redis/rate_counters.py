"""Counts calls per time window across all processes, to enforce rate limits."""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Lock

from limits import RateLimitItem, parse_many
from limits.storage import MemoryStorage
from redis.exceptions import RedisError

from core.calls.breaker import Breaker
from core.settings import Settings
from storage.redis.client import open_redis

# The timeouts for Redis are short, because an API request waits while Redis counts the request.
_SHORT_TIMEOUTS = {"socket_timeout": 0.5, "socket_connect_timeout": 0.25}
_KEY_PREFIX = "pressroom:rates"
_BLOCKS_PER_LIMIT = 300
_MAX_BLOCK_KEYS = 10_000

# Reserves the next call numbers of a caller in the current time window. Returns the last reserved
# call number and the time of Redis. All callers under a rate limit share one Redis hash. The first
# call in a time window deletes the counts of the previous time window from the hash. The hash of a
# rate limit has no expiry, because a full Redis evicts keys with an expiry first, which would reset
# all counts.
_RESERVE_SCRIPT = """
local window, size, caller = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local time = redis.call('TIME')
local current = string.format('%d', math.floor(time[1] / window))
if redis.call('HGET', KEYS[1], ':window') ~= current then
  redis.call('UNLINK', KEYS[1])
  redis.call('HSET', KEYS[1], ':window', current)
end
local last = redis.call('HINCRBY', KEYS[1], caller, size)
return {last, time[1] * 1000 + math.floor(time[2] / 1000)}
"""


@dataclass(frozen=True)
class RateLimitStatus:
    """How much of a rate limit a caller has used.

    Attributes:
        window: the length of the time window in seconds.
        remaining: the number of calls left, which is negative if the limit is exceeded.
        reset: the seconds until the time window ends.
    """

    limit: int
    window: int
    remaining: int
    reset: int
    window_key: str = ""


class RateCounters:
    """Rate limit counters in Redis that all processes share, with a local fallback.

    Time windows start at multiples of their length by Redis's clock, so that all processes count in
    the same window. Between two responses, a process derives the Redis server's time from its own
    monotonic clock.

    The calls in a time window are numbered, and calls with a number above the rate limit are
    refused. If the rate limit is high, a process reserves 1/300 of the call numbers at once, and
    assigns them without asking Redis. No call number is assigned twice, so the number of accepted
    calls never exceeds the rate limit. A call can be refused before the limit is reached if other
    processes have reserved numbers that they haven't used.
    """

    def __init__(self, settings: Settings) -> None:
        self._client = open_redis(settings, **_SHORT_TIMEOUTS)
        self._reserve = self._client.register_script(_RESERVE_SCRIPT)
        # The difference in seconds between Redis's clock and this process's monotonic clock.
        self._clock_offset: float | None = None
        self._local_counts = MemoryStorage()
        self._breaker = Breaker("Redis", RedisError)
        self._reserved_numbers = _ReservedNumbers()

    def count(self, item: RateLimitItem, limit: str, caller: str) -> RateLimitStatus | None:
        """Return ``None`` while Redis is unreachable."""
        # Optimization: rate limits that ask Redis once per block of calls (decision 17).
        status = self.count_reserved(item, limit, caller)
        if status is not None:
            return status
        window = item.get_expiry()
        size = max(item.amount // _BLOCKS_PER_LIMIT, 1)
        reserved: list[int] | None = self._breaker.attempt(
            "counters.unreachable",
            lambda: self._reserve([_build_redis_key(window, limit)], [window, size, caller]),
        )
        if reserved is None:
            return None
        last, milliseconds = reserved
        now = milliseconds / 1000
        self._clock_offset = now - time.monotonic()
        number = last - size + 1
        window_key = _build_window_key(now, window, limit, caller)
        if size > 1:
            self._reserved_numbers.put(window_key, range(number + 1, last + 1))
        return _build_status(item, number, now, window_key)

    def count_reserved(
        self, item: RateLimitItem, limit: str, caller: str
    ) -> RateLimitStatus | None:
        """Return ``None`` if no call number is reserved."""
        now = self._now()
        window_key = _build_window_key(now, item.get_expiry(), limit, caller)
        number = self._reserved_numbers.take(window_key)
        return None if number is None else _build_status(item, number, now, window_key)

    def give_back(self, status: RateLimitStatus) -> None:
        """Let this process assign the call number again."""
        number = status.limit - status.remaining
        self._reserved_numbers.put(status.window_key, range(number, number + 1))

    def count_locally(self, item: RateLimitItem, limit: str, caller: str) -> RateLimitStatus:
        """Apply half the limit, because other processes may receive calls from the same caller."""
        window = item.get_expiry()
        now = self._now()
        count = self._local_counts.incr(_build_window_key(now, window, limit, caller), window)
        half = max(item.amount // 2, 1)
        return RateLimitStatus(half, window, half - count, _compute_seconds_left(now, window))

    def close(self) -> None:
        self._client.close()

    def _now(self) -> float:
        """Return Redis's time in seconds, or this process's time if Redis has never answered."""
        return time.monotonic() + (self._clock_offset or 0)


class _ReservedNumbers:
    def __init__(self) -> None:
        self._lock = Lock()
        self._blocks: dict[str, deque[Iterator[int]]] = {}

    def take(self, key: str) -> int | None:
        with self._lock:
            blocks = self._blocks.get(key)
            while blocks:
                for number in blocks[0]:
                    return number
                blocks.popleft()
            return None

    def put(self, key: str, numbers: range) -> None:
        with self._lock:
            if len(self._blocks) >= _MAX_BLOCK_KEYS:
                # Discard all reserved call numbers. This is safe, because most reserved call
                # numbers belong to time windows that have ended, and the process can reserve new
                # call numbers.
                self._blocks.clear()
            # Don't replace the key's other blocks, because several threads can reserve a block at
            # the same time.
            self._blocks.setdefault(key, deque()).append(iter(numbers))


def parse_limits(setting: str) -> tuple[RateLimitItem, ...]:
    return tuple(parse_many(setting)) if setting else ()


def _build_redis_key(window: int, limit: str) -> str:
    return f"{_KEY_PREFIX}:{limit}:{window}"


def _build_window_key(now: float, window: int, limit: str, caller: str) -> str:
    return f"{_build_redis_key(window, limit)}:{caller}:{int(now // window)}"


def _build_status(item: RateLimitItem, number: int, now: float, window_key: str) -> RateLimitStatus:
    window = item.get_expiry()
    seconds_left = _compute_seconds_left(now, window)
    return RateLimitStatus(item.amount, window, item.amount - number, seconds_left, window_key)


def _compute_seconds_left(now: float, window: int) -> int:
    return window - int(now) % window
