"""Counts calls in windows of time, for all processes together."""

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

# Counting a request must not delay it.
_FAST = {"socket_timeout": 0.5, "socket_connect_timeout": 0.25}
_PREFIX = "pressroom:rates"
_BLOCKS_PER_LIMIT = 300

# Reserves the next numbers of the current window; returns the last of them, and the time. All
# callers of a limit count in one hash, which the first call of the next window empties: a key that
# expired would be the first that Redis drops when its memory is full, and all would count anew.
_RESERVE = """
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
_MAX_KEYS = 10_000


@dataclass(frozen=True)
class RateLimitStatus:
    """A caller's state of one limit: ``remaining`` of ``limit`` calls in ``window`` seconds.

    ``remaining`` is below 0 for a call over the limit. The window ends in ``reset`` seconds.
    """

    limit: int
    window: int
    remaining: int
    reset: int


class RateCounters:
    """Counts in Redis, shared by all processes; ``count_here`` counts in this process alone.

    Windows begin at multiples of their length on Redis' clock, so one counter a window is enough,
    and processes whose clocks differ count in the same one. Each answer of Redis brings its time,
    from which this process goes on by its own monotonic clock.

    The calls of a caller are numbered within a window, and a call is refused if its number is above
    the limit. For a high limit, a process reserves a block of numbers in one call to Redis, and
    then gives each call a number from this block. No limit is ever exceeded. If several processes
    hold unused numbers, calls may be refused before the limit is reached: up to 1/300 of the limit
    per process.
    """

    def __init__(self, settings: Settings) -> None:
        self._client = open_redis(settings, **_FAST)
        self._reserve = self._client.register_script(_RESERVE)
        # The seconds that Redis' clock is ahead of this process's monotonic one.
        self._ahead: float | None = None
        self._own = MemoryStorage()
        self._breaker = Breaker("Redis", RedisError)
        self._blocks = _Blocks()

    def count(self, item: RateLimitItem, limit: str, caller: str) -> RateLimitStatus | None:
        """Count one call; ``None`` while Redis is away."""
        window = item.get_expiry()
        now = self._now()
        # Optimization: call numbers reserved in blocks for rate limits (decision 17).
        number = self._blocks.take(_key(now, window, limit, caller))
        if number is None:
            size = max(item.amount // _BLOCKS_PER_LIMIT, 1)
            reserved: list[int] | None = self._breaker.attempt(
                "counters.unreachable",
                lambda: self._reserve([_hash(window, limit)], [window, size, caller]),
            )
            if reserved is None:
                return None
            last, milliseconds = reserved
            now = milliseconds / 1000
            self._ahead = now - time.monotonic()
            number = last - size + 1
            if size > 1:
                self._blocks.put(_key(now, window, limit, caller), range(number + 1, last + 1))
        return RateLimitStatus(item.amount, window, item.amount - number, _left(now, window))

    def count_here(self, item: RateLimitItem, limit: str, caller: str) -> RateLimitStatus:
        """Count one call in this process alone, against half the limit: others count too."""
        window, now = item.get_expiry(), self._now()
        count = self._own.incr(_key(now, window, limit, caller), window)
        half = max(item.amount // 2, 1)
        return RateLimitStatus(half, window, half - count, _left(now, window))

    def close(self) -> None:
        self._client.close()

    def _now(self) -> float:
        """Seconds on Redis' clock; before its first answer there is no window to share."""
        return time.monotonic() + (self._ahead or 0)


class _Blocks:
    """The numbers that this process has reserved and not used yet, by the key of their window."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._left: dict[str, deque[Iterator[int]]] = {}

    def take(self, key: str) -> int | None:
        with self._lock:
            left = self._left.get(key)
            while left:
                for number in left[0]:
                    return number
                left.popleft()
            return None

    def put(self, key: str, numbers: range) -> None:
        with self._lock:
            if len(self._left) >= _MAX_KEYS:
                # Windows end and their keys never return, so old blocks are of no use.
                self._left.clear()
            # Threads that find no block at the same time each reserve one.
            self._left.setdefault(key, deque()).append(iter(numbers))


def parse_limits(setting: str) -> tuple[RateLimitItem, ...]:
    return tuple(parse_many(setting)) if setting else ()


def _hash(window: int, limit: str) -> str:
    return f"{_PREFIX}:{limit}:{window}"


def _key(now: float, window: int, limit: str, caller: str) -> str:
    return f"{_hash(window, limit)}:{caller}:{int(now // window)}"


def _left(now: float, window: int) -> int:
    """In how many seconds the window ends."""
    return window - int(now) % window
