"""A cache in Redis for results that are expensive to make again.

While Redis is away, full or slow, nothing is cached; that is never an error.
"""

import zlib
from typing import Any

import redis
from redis.exceptions import RedisError

from core.logging import get_logger
from storage.breaker import Breaker

log = get_logger(__name__)

# Compressed. The queues share the memory, so larger results are not cached.
MAX_ENTRY_BYTES = 32 * 1024


class Cache:
    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._breaker = Breaker()

    def get(self, key: str) -> str | None:
        if self._breaker.is_open:
            return None
        try:
            kept: Any = self._client.get(_name(key))
        except RedisError as error:
            self._give_up("cache.not_read", error)
            return None
        return None if kept is None else zlib.decompress(kept).decode()

    def put(self, key: str, text: str, *, seconds: int) -> None:
        packed = zlib.compress(text.encode())
        if self._breaker.is_open or len(packed) > MAX_ENTRY_BYTES:
            return
        try:
            self._client.set(_name(key), packed, ex=seconds)
        except RedisError as error:
            self._give_up("cache.not_written", error)

    def _give_up(self, event: str, error: RedisError) -> None:
        self._breaker.trip()
        log.warning(event, reason=type(error).__name__)


def _name(key: str) -> str:
    return f"pressroom:cache:{key}"
