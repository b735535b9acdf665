"""Counts how often something happens within a time, all processes together."""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Self

from limits import RateLimitItem, parse_many
from limits.storage import MemoryStorage, RedisStorage
from redis.exceptions import RedisError

from core.logging import get_logger
from core.settings import Settings
from storage.breaker import Breaker
from storage.redis.client import open_counting_redis

log = get_logger(__name__)

_PREFIX = "pressroom:rate"
_BLOCKS_PER_LIMIT = 300
_MAX_KEYS = 10_000


@dataclass(frozen=True)
class RateLimitStatus:
    """How somebody stands with a limit: of ``most`` in ``window`` seconds, what is ``left``.

    ``left`` is below 0 for what is beyond the limit; after ``reset`` seconds all is there again.
    """

    most: int
    window: int
    left: int
    reset: int

    @classmethod
    def of(cls, item: RateLimitItem, most: int, count: int, reset: int) -> Self:
        return cls(most, item.get_expiry(), most - count, reset)


class RateCounters:
    """In Redis, all processes together; in this process alone while Redis is away.

    The windows are those of the clock, so that the count alone says how somebody stands. Of a high
    limit a process takes a block of numbers at a time, and gives them out by itself: a round trip
    for each would cost a small request a tenth of its time, and Redis a write to its log. So no
    limit is ever exceeded, and with several processes it may be reached by a few hundredths early.
    """

    def __init__(self, settings: Settings) -> None:
        self._client = open_counting_redis(settings)
        url = settings.redis_url.get_secret_value()
        self._shared = RedisStorage(
            url, connection_pool=self._client.connection_pool, key_prefix=_PREFIX
        )
        self._own = MemoryStorage()
        self._breaker = Breaker()
        self._blocks = _Blocks()

    def count(self, item: RateLimitItem, *names: str) -> RateLimitStatus | None:
        """One more; ``None`` when Redis can't be asked."""
        key, reset = _window(item, names)
        number = self._blocks.take(key)
        if number is None:
            number = self._ask(item, key)
        return None if number is None else RateLimitStatus.of(item, item.amount, number, reset)

    def _ask(self, item: RateLimitItem, key: str) -> int | None:
        if self._breaker.is_open:
            return None
        size = max(item.amount // _BLOCKS_PER_LIMIT, 1)
        try:
            last = self._shared.incr(key, item.get_expiry(), size)
        except RedisError as error:
            self._breaker.trip()
            log.warning("counters.unreachable", reason=f"{type(error).__name__}: {error}")
            return None
        first = last - size + 1
        if size > 1:
            self._blocks.put(key, range(first + 1, last + 1))
        return first

    def count_here(self, item: RateLimitItem, *names: str) -> RateLimitStatus:
        """One more in this process, which allows half: it does not know of the others."""
        key, reset = _window(item, names)
        count = self._own.incr(key, item.get_expiry())
        return RateLimitStatus.of(item, max(item.amount // 2, 1), count, reset)

    def close(self) -> None:
        self._client.close()


class _Blocks:
    """Numbers that this process may still give out, by the key of their window."""

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
                # Windows end, and their keys never come again.
                self._left.clear()
            # Threads that ask at the same time each bring a block.
            self._left.setdefault(key, deque()).append(iter(numbers))


def parse_limits(setting: str) -> tuple[RateLimitItem, ...]:
    return tuple(parse_many(setting)) if setting else ()


def _window(item: RateLimitItem, names: tuple[str, ...]) -> tuple[str, int]:
    """The key of the window that is open now, and in how many seconds it ends."""
    window = item.get_expiry()
    number, gone = divmod(int(time.time()), window)
    return ":".join((*names, str(window), str(number))), window - gone
