"""A cache in Redis for results that are expensive to compute.

While Redis is unreachable, full or slow, the cache stores and returns nothing.
"""

import zlib
from typing import Any

import redis
from redis.exceptions import RedisError

from core.calls.breaker import Breaker
from core.telemetry import spans
from core.telemetry.attributes import SpanAttributes

# The maximum size of a compressed result in the cache. Large results are not cached, because the
# cache and the queues share the memory of Redis.
MAX_ENTRY_BYTES = 32 * 1024
_SPAN_ATTRIBUTES: SpanAttributes = {"db.system.name": "redis"}


class Cache:
    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._breaker = Breaker("Redis", RedisError)

    def get(self, key: str) -> str | None:
        redis_key = _build_key(key)
        with spans.step_span("cache get", "client", _SPAN_ATTRIBUTES):
            compressed: Any = self._breaker.attempt(
                "cache.not_read", lambda: self._client.get(redis_key)
            )
        return None if compressed is None else zlib.decompress(compressed).decode()

    def put(self, key: str, text: str, *, seconds: int) -> None:
        redis_key = _build_key(key)
        compressed = zlib.compress(text.encode())
        if len(compressed) <= MAX_ENTRY_BYTES:
            with spans.step_span("cache put", "client", _SPAN_ATTRIBUTES):
                self._breaker.attempt(
                    "cache.not_written",
                    lambda: self._client.set(redis_key, compressed, ex=seconds),
                )


def _build_key(key: str) -> str:
    return f"pressroom:cache:{key}"
