from typing import Any

import redis
import redis.asyncio
import redis.asyncio.retry
from redis.backoff import NoBackoff
from redis.retry import Retry

from core.settings.store_settings import BrokerSettings

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
# Retry once: a connection that was idle while the server restarted fails at its first use. A
# timeout is not retried, which would only double the wait.
_ONCE_MORE = (1, (redis.ConnectionError,))


def open_redis(settings: BrokerSettings, **options: float) -> redis.Redis:
    """With these options instead of our usual ones."""
    once_more = Retry(NoBackoff(), *_ONCE_MORE)
    url = settings.redis_url.get_secret_value()
    return redis.Redis.from_url(url, retry=once_more, **(_OPTIONS | options))


def open_async_redis(settings: BrokerSettings) -> redis.asyncio.Redis:
    pool = redis.asyncio.BlockingConnectionPool.from_url(
        settings.redis_url.get_secret_value(),
        max_connections=_ASYNC_CONNECTIONS,
        timeout=_ASYNC_TURN_SECONDS,
        retry=redis.asyncio.retry.Retry(NoBackoff(), *_ONCE_MORE),
        **_OPTIONS,
    )
    return redis.asyncio.Redis(connection_pool=pool)
