"""A cache in Redis for results that are expensive to make again.

While Redis is away, full or slow, nothing is cached; that is never an error.
"""

import zlib
from typing import Any

import redis
from redis.exceptions import RedisError

from core.calls.breaker import Breaker
from core.telemetry import spans
from core.telemetry.attributes import SpanAttributes

# Compressed. The queues share the memory, so larger results are not cached.
MAX_ENTRY_BYTES = 32 * 1024
_ABOUT: SpanAttributes = {"db.system.name": "redis"}


class Cache:
    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._breaker = Breaker("Redis", RedisError)

    def get(self, key: str) -> str | None:
        name = f"pressroom:cache:{key}"
        with spans.step_span("cache get", "client", _ABOUT):
            kept: Any = self._breaker.attempt("cache.not_read", lambda: self._client.get(name))
        return None if kept is None else zlib.decompress(kept).decode()

    def put(self, key: str, text: str, *, seconds: int) -> None:
        name, packed = f"pressroom:cache:{key}", zlib.compress(text.encode())
        if len(packed) <= MAX_ENTRY_BYTES:
            with spans.step_span("cache put", "client", _ABOUT):
                self._breaker.attempt(
                    "cache.not_written", lambda: self._client.set(name, packed, ex=seconds)
                )
