"""Clients of a Redis, which is named by its own address or by its Sentinels."""

import copy
from typing import Any

import redis
import redis.asyncio
import redis.asyncio.retry
import redis.asyncio.sentinel
import redis.sentinel
from redis.backoff import NoBackoff
from redis.retry import Retry

from core.counters.store_metrics import observe_redis
from core.settings.store_settings import SENTINEL_SCHEMES, CacheSettings, Sentinels

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


class _ObservedRedis(redis.Redis):
    def execute_command(self, *arguments: Any, **options: Any) -> Any:
        with observe_redis(redis.RedisError):
            return super().execute_command(*arguments, **options)  # type: ignore[no-untyped-call]


def open_redis(settings: CacheSettings, **options: float) -> redis.Redis:
    """The cache's client, with these options instead of our usual ones."""
    found = {"retry": Retry(NoBackoff(), *_ONCE_MORE), **_OPTIONS, **options}
    sentinels = sentinels_of(settings.cache)
    if sentinels is None:
        return _ObservedRedis.from_url(settings.cache, **found)
    asked = _SharedSentinel(  # type: ignore[no-untyped-call]
        sentinels.hosts, sentinel_kwargs=sentinel_options(sentinels)
    )
    master: redis.Redis = asked.master_for(  # type: ignore[no-untyped-call]
        sentinels.master_name,
        redis_class=_ObservedRedis,
        connection_class=EncryptedMasterConnection if sentinels.is_encrypted else MasterConnection,
        **_master_options(sentinels),
        **found,
    )
    return master


def open_async_redis(settings: CacheSettings) -> redis.asyncio.Redis:
    found = {
        "max_connections": _ASYNC_CONNECTIONS,
        "timeout": _ASYNC_TURN_SECONDS,
        "retry": redis.asyncio.retry.Retry(NoBackoff(), *_ONCE_MORE),
        **_OPTIONS,
    }
    sentinels = sentinels_of(settings.cache)
    if sentinels is None:
        pool = redis.asyncio.BlockingConnectionPool.from_url(settings.cache, **found)
        return redis.asyncio.Redis(connection_pool=pool)
    no_more = redis.asyncio.retry.Retry(NoBackoff(), 0)
    asked = _SharedAsyncSentinel(  # type: ignore[no-untyped-call]
        sentinels.hosts, sentinel_kwargs={**sentinel_options(sentinels), "retry": no_more}
    )
    master: redis.asyncio.Redis = asked.master_for(
        sentinels.master_name,
        connection_pool_class=_BlockingSentinelPool,
        **_master_options(sentinels),
        **found,
    )
    return master


def sentinels_of(url: str) -> Sentinels | None:
    """The Sentinels that the URL names; ``None`` where it names the server itself."""
    return Sentinels.parse(url) if url.partition("://")[0] in SENTINEL_SCHEMES else None


def sentinel_options(sentinels: Sentinels) -> dict[str, Any]:
    """Options of a connection to a Sentinel, by the names of the Redis library."""
    return {
        "username": sentinels.sentinel_user,
        "password": sentinels.sentinel_password,
        "socket_timeout": _OPTIONS["socket_connect_timeout"],
        "socket_connect_timeout": _OPTIONS["socket_connect_timeout"],
        # Another Sentinel is asked at once.
        "retry": Retry(NoBackoff(), 0),
        **_tls_options(sentinels),
    }


def _master_options(sentinels: Sentinels) -> dict[str, Any]:
    return {
        "db": sentinels.database,
        "username": sentinels.user,
        "password": sentinels.password,
        **_tls_options(sentinels),
    }


def _tls_options(sentinels: Sentinels) -> dict[str, Any]:
    if not sentinels.is_encrypted:
        return {}
    # The library checks certificates and host names unless it is told not to.
    return {"ssl": True, "ssl_ca_certs": sentinels.ca_file}


class _ClosedByTimeout:
    """The library keeps such a connection when an answer does not come in time, unlike every other.

    The late answer would be taken for that to the next command.
    """

    def read_response(self, *arguments: Any, **options: Any) -> Any:
        closed = {"disconnect_on_error": True, **options}
        return super().read_response(*arguments, **closed)  # type: ignore[misc]


class MasterConnection(_ClosedByTimeout, redis.sentinel.SentinelManagedConnection):
    pass


class EncryptedMasterConnection(_ClosedByTimeout, redis.sentinel.SentinelManagedSSLConnection):
    pass


class _SharedSentinel(redis.sentinel.Sentinel):
    """A Sentinel client that several threads can use at the same time.

    The Redis library has a list of Sentinels. If the first Sentinel doesn't respond, the library
    swaps two entries of the list. If two threads swapped entries at the same time, an entry would
    be lost, so each search for the master uses a copy of the list.
    """

    def discover_master(self, service_name: str) -> Any:
        mine = copy.copy(self)
        mine.sentinels = list(self.sentinels)
        found = super(_SharedSentinel, mine).discover_master(  # type: ignore[no-untyped-call]
            service_name
        )
        self.sentinels = mine.sentinels
        return found


class _SharedAsyncSentinel(redis.asyncio.sentinel.Sentinel):
    async def discover_master(self, service_name: str) -> Any:
        mine = copy.copy(self)
        mine.sentinels = list(self.sentinels)
        found = await super(_SharedAsyncSentinel, mine).discover_master(service_name)
        self.sentinels = mine.sentinels
        return found


class _BlockingSentinelPool(
    redis.asyncio.sentinel.SentinelConnectionPool, redis.asyncio.BlockingConnectionPool
):
    """Waits for a free connection, as the pool of a Redis without Sentinels does."""
