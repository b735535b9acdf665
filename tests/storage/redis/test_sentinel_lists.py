"""Tests that concurrent calls to Redis Sentinels keep the list of Sentinels complete."""

import asyncio
from threading import Barrier, Thread
from types import SimpleNamespace
from typing import Any

import redis
from pydantic import SecretStr

from core.settings.store_settings import CacheSettings
from storage.redis.client import open_async_redis, open_redis

SETTINGS = CacheSettings(
    redis_url=SecretStr("sentinel://one/0?master_name=main;sentinel://two;sentinel://three")
)
PRIMARY_STATE = {
    "ip": "127.0.0.1",
    "port": 1,
    "is_master": True,
    "is_sdown": False,
    "is_odown": False,
    "num-other-sentinels": 2,
}


def _fail() -> Any:
    raise redis.ConnectionError


def test_concurrent_threads_that_skip_a_silent_sentinel_keep_it_in_the_list() -> None:
    barrier = Barrier(2)

    def answer() -> Any:
        barrier.wait(10)
        return {"main": PRIMARY_STATE}

    client: Any = open_redis(SETTINGS)
    manager = client.connection_pool.sentinel_manager
    sentinels = [SimpleNamespace(sentinel_masters=reply) for reply in (_fail, answer, _fail)]
    manager.sentinels = list(sentinels)
    threads = [Thread(target=manager.discover_master, args=("main",)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {id(each) for each in manager.sentinels} == {id(each) for each in sentinels}
    assert manager.sentinels[0] is sentinels[1]


def test_concurrent_async_calls_that_skip_a_silent_sentinel_keep_it_in_the_list() -> None:
    async def fail() -> Any:
        return _fail()

    async def discover_concurrently() -> None:
        barrier = asyncio.Barrier(2)

        async def answer() -> Any:
            await barrier.wait()
            return {"main": PRIMARY_STATE}

        client: Any = open_async_redis(SETTINGS)
        manager = client.connection_pool.sentinel_manager
        sentinels = [SimpleNamespace(sentinel_masters=reply) for reply in (fail, answer, fail)]
        manager.sentinels = list(sentinels)
        await asyncio.gather(*(manager.discover_master("main") for _ in range(2)))
        assert {id(each) for each in manager.sentinels} == {id(each) for each in sentinels}

    asyncio.run(discover_concurrently())
