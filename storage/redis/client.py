from typing import Any

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from core.settings import Settings

# Commands fail fast and idle connections are pinged, so that a dead connection is noticed.
_OPTIONS: dict[str, Any] = {
    "socket_timeout": 2,
    "socket_connect_timeout": 1,
    "socket_keepalive": True,
    "health_check_interval": 10,
}
# Commands take well under a millisecond, so hundreds of callers share these connections: a caller
# waits for one that is free and opens none of its own.
_ASYNC_CONNECTIONS = 16
_ASYNC_TURN_SECONDS = 5
# Counting a request must not delay it.
_COUNTING = {**_OPTIONS, "socket_timeout": 0.5, "socket_connect_timeout": 0.25}


def open_redis(settings: Settings) -> redis.Redis:
    return _open(settings, _OPTIONS)


def open_counting_redis(settings: Settings) -> redis.Redis:
    return _open(settings, _COUNTING)


def _open(settings: Settings, options: dict[str, Any]) -> redis.Redis:
    # Retry once: a connection that was idle while the server restarted fails at its first use. A
    # timeout is not retried, which would only double the wait.
    once_more = Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,))
    return redis.Redis.from_url(settings.redis_url.get_secret_value(), retry=once_more, **options)


def open_async_redis(settings: Settings) -> redis.asyncio.Redis:
    pool = redis.asyncio.BlockingConnectionPool.from_url(
        settings.redis_url.get_secret_value(),
        max_connections=_ASYNC_CONNECTIONS,
        timeout=_ASYNC_TURN_SECONDS,
        **_OPTIONS,
    )
    return redis.asyncio.Redis(connection_pool=pool)
