"""Redis clients, which connect to a server or to the master of a Redis Sentinel."""

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
from storage.full_disks import Store, report_redis_error

# Use short timeouts and pings, because a process must notice a dead connection within seconds.
_CONNECTION_OPTIONS: dict[str, Any] = {
    "socket_timeout": 2,
    "socket_connect_timeout": 1,
    "socket_keepalive": True,
    "health_check_interval": 10,
}
# Hundreds of callers share a few connections, because a Redis command takes well under a
# millisecond.
_MAX_ASYNC_CONNECTIONS = 16
_FREE_CONNECTION_TIMEOUT_SECONDS = 5
# A failed command is retried once, because an idle connection fails at its first use after a
# restart of Redis. A command that timed out is not retried, because a retry would only double the
# wait.
_SINGLE_RETRY = (1, (redis.ConnectionError,))


class _ObservedRedis(redis.Redis):
    def execute_command(self, *arguments: Any, **options: Any) -> Any:
        with observe_redis(redis.RedisError):
            try:
                return super().execute_command(*arguments, **options)  # type: ignore[no-untyped-call]
            except redis.ResponseError as error:
                report_redis_error(Store.REDIS, error)
                raise


def open_redis(settings: CacheSettings, **options: float) -> redis.Redis:
    """The ``options`` override the default connection options."""
    retry = Retry(NoBackoff(), *_SINGLE_RETRY)
    connection_options = {"retry": retry, **_CONNECTION_OPTIONS, **options}
    sentinels = parse_sentinels(settings.cache)
    if sentinels is None:
        return _ObservedRedis.from_url(settings.cache, **connection_options)
    sentinel = _SharedSentinel(  # type: ignore[no-untyped-call]
        sentinels.hosts, sentinel_kwargs=build_sentinel_options(sentinels)
    )
    master: redis.Redis = sentinel.master_for(  # type: ignore[no-untyped-call]
        sentinels.master_name,
        redis_class=_ObservedRedis,
        connection_class=EncryptedMasterConnection if sentinels.is_encrypted else MasterConnection,
        **_build_master_options(sentinels),
        **connection_options,
    )
    return master


def open_async_redis(settings: CacheSettings) -> redis.asyncio.Redis:
    connection_options = {
        "max_connections": _MAX_ASYNC_CONNECTIONS,
        "timeout": _FREE_CONNECTION_TIMEOUT_SECONDS,
        "retry": redis.asyncio.retry.Retry(NoBackoff(), *_SINGLE_RETRY),
        **_CONNECTION_OPTIONS,
    }
    sentinels = parse_sentinels(settings.cache)
    if sentinels is None:
        pool = redis.asyncio.BlockingConnectionPool.from_url(settings.cache, **connection_options)
        return redis.asyncio.Redis(connection_pool=pool)
    no_retry = redis.asyncio.retry.Retry(NoBackoff(), 0)
    sentinel = _SharedAsyncSentinel(  # type: ignore[no-untyped-call]
        sentinels.hosts, sentinel_kwargs={**build_sentinel_options(sentinels), "retry": no_retry}
    )
    master: redis.asyncio.Redis = sentinel.master_for(
        sentinels.master_name,
        connection_pool_class=_BlockingSentinelPool,
        **_build_master_options(sentinels),
        **connection_options,
    )
    return master


def parse_sentinels(url: str) -> Sentinels | None:
    """Return ``None`` for the URL of a Redis server."""
    return Sentinels.parse(url) if url.partition("://")[0] in SENTINEL_SCHEMES else None


def build_sentinel_options(sentinels: Sentinels) -> dict[str, Any]:
    return {
        "username": sentinels.sentinel_user,
        "password": sentinels.sentinel_password,
        "socket_timeout": _CONNECTION_OPTIONS["socket_connect_timeout"],
        "socket_connect_timeout": _CONNECTION_OPTIONS["socket_connect_timeout"],
        # Don't retry, because the Redis library calls the next Sentinel.
        "retry": Retry(NoBackoff(), 0),
        **_build_tls_options(sentinels),
    }


def _build_master_options(sentinels: Sentinels) -> dict[str, Any]:
    return {
        "db": sentinels.database,
        "username": sentinels.user,
        "password": sentinels.password,
        **_build_tls_options(sentinels),
    }


def _build_tls_options(sentinels: Sentinels) -> dict[str, Any]:
    if not sentinels.is_encrypted:
        return {}
    # The Redis library checks certificates and host names by default.
    return {"ssl": True, "ssl_ca_certs": sentinels.ca_file}


class _ClosedByTimeout:
    """A mixin that closes a connection after a timeout.

    Without the mixin, the next command would read the late response to the earlier command.
    """

    def read_response(self, *arguments: Any, **options: Any) -> Any:
        closing_options = {"disconnect_on_error": True, **options}
        return super().read_response(*arguments, **closing_options)  # type: ignore[misc]


class MasterConnection(_ClosedByTimeout, redis.sentinel.SentinelManagedConnection):
    pass


class EncryptedMasterConnection(_ClosedByTimeout, redis.sentinel.SentinelManagedSSLConnection):
    pass


class _SharedSentinel(redis.sentinel.Sentinel):
    """A Sentinel client that several threads can use at the same time.

    The Redis library reorders its list of Sentinels when the first Sentinel doesn't respond. If two
    threads reordered the list at the same time, the list could lose a Sentinel.
    """

    def discover_master(self, service_name: str) -> Any:
        searcher = copy.copy(self)
        searcher.sentinels = list(self.sentinels)
        address = super(_SharedSentinel, searcher).discover_master(  # type: ignore[no-untyped-call]
            service_name
        )
        self.sentinels = searcher.sentinels
        return address


class _SharedAsyncSentinel(redis.asyncio.sentinel.Sentinel):
    async def discover_master(self, service_name: str) -> Any:
        searcher = copy.copy(self)
        searcher.sentinels = list(self.sentinels)
        address = await super(_SharedAsyncSentinel, searcher).discover_master(service_name)
        self.sentinels = searcher.sentinels
        return address


class _BlockingSentinelPool(
    redis.asyncio.sentinel.SentinelConnectionPool, redis.asyncio.BlockingConnectionPool
):
    """A pool in which callers wait if all connections are in use."""
