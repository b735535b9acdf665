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
SEEN = {
    "ip": "127.0.0.1",
    "port": 1,
    "is_master": True,
    "is_sdown": False,
    "is_odown": False,
    "num-other-sentinels": 2,
}


def _silent() -> Any:
    raise redis.ConnectionError


def test_concurrent_threads_that_skip_a_silent_sentinel_keep_it_in_the_list() -> None:
    both = Barrier(2)

    def answer() -> Any:
        both.wait(10)
        return {"main": SEEN}

    client: Any = open_redis(SETTINGS)
    manager = client.connection_pool.sentinel_manager
    known = [SimpleNamespace(sentinel_masters=say) for say in (_silent, answer, _silent)]
    manager.sentinels = list(known)
    threads = [Thread(target=manager.discover_master, args=("main",)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {id(each) for each in manager.sentinels} == {id(each) for each in known}
    assert manager.sentinels[0] is known[1]


def test_concurrent_async_calls_that_skip_a_silent_sentinel_keep_it_in_the_list() -> None:
    async def silent() -> Any:
        return _silent()

    async def ask() -> None:
        both = asyncio.Barrier(2)

        async def answer() -> Any:
            await both.wait()
            return {"main": SEEN}

        client: Any = open_async_redis(SETTINGS)
        manager = client.connection_pool.sentinel_manager
        known = [SimpleNamespace(sentinel_masters=say) for say in (silent, answer, silent)]
        manager.sentinels = list(known)
        await asyncio.gather(*(manager.discover_master("main") for _ in range(2)))
        assert {id(each) for each in manager.sentinels} == {id(each) for each in known}

    asyncio.run(ask())
