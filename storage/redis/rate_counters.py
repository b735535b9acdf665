"""Counts calls in windows of time, for all processes together."""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Lock

from limits import RateLimitItem, parse_many
from limits.storage import MemoryStorage, RedisStorage
from redis.exceptions import RedisError

from core.calls.breaker import Breaker
from core.settings import Settings
from storage.redis.client import open_redis

# Counting a request must not delay it.
_FAST = {"socket_timeout": 0.5, "socket_connect_timeout": 0.25}
_PREFIX = "pressroom:rate"
_BLOCKS_PER_LIMIT = 300
_MAX_KEYS = 10_000


@dataclass(frozen=True)
class RateLimitStatus:
    """One caller's state of one limit: ``remaining`` of ``limit`` calls in ``window`` seconds.

    ``remaining`` is below 0 for a call over the limit. The window ends in ``reset`` seconds.
    """

    limit: int
    window: int
    remaining: int
    reset: int


class RateCounters:
    """Counts in Redis, shared by all processes; ``count_here`` counts in this process alone.

    Windows begin at multiples of their length on the clock, so one counter a window is enough. For
    a high limit each process reserves a block of the window's count with one INCR and counts inside
    it: a round trip for each call would cost a small request a tenth of its time, and Redis a write
    to its log. No limit is ever exceeded; with several processes it may trip up to 1/300 early for
    each of them.
    """

    def __init__(self, settings: Settings) -> None:
        self._client = open_redis(settings, **_FAST)
        url = settings.redis_url.get_secret_value()
        self._shared = RedisStorage(
            url, connection_pool=self._client.connection_pool, key_prefix=_PREFIX
        )
        self._own = MemoryStorage()
        self._breaker = Breaker("Redis", RedisError)
        self._blocks = _Blocks()

    def count(self, item: RateLimitItem, *names: str) -> RateLimitStatus | None:
        """Count one call; ``None`` while Redis is away."""
        key, reset = _window(item, names)
        number = self._blocks.take(key)
        if number is None:
            size = max(item.amount // _BLOCKS_PER_LIMIT, 1)
            last = self._breaker.attempt(
                "counters.unreachable", lambda: self._shared.incr(key, item.get_expiry(), size)
            )
            if last is None:
                return None
            number = last - size + 1
            if size > 1:
                self._blocks.put(key, range(number + 1, last + 1))
        return RateLimitStatus(item.amount, item.get_expiry(), item.amount - number, reset)

    def count_here(self, item: RateLimitItem, *names: str) -> RateLimitStatus:
        """Count one call in this process alone, against half the limit: others count too."""
        key, reset = _window(item, names)
        count = self._own.incr(key, item.get_expiry())
        limit = max(item.amount // 2, 1)
        return RateLimitStatus(limit, item.get_expiry(), limit - count, reset)

    def close(self) -> None:
        self._client.close()


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


def _window(item: RateLimitItem, names: tuple[str, ...]) -> tuple[str, int]:
    """The key of the current window, and in how many seconds it ends."""
    window = item.get_expiry()
    number, gone = divmod(int(time.time()), window)
    return ":".join((*names, str(window), str(number))), window - gone
