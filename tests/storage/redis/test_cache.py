import random

import pytest
import redis

from core.keyring import Key, Keyring
from devstack.harness.stack import Stack
from services.composer import requests
from storage.redis.cache import Cache


@pytest.fixture
def cache(stack: Stack) -> Cache:
    return Cache(stack.resources.redis)


def test_cached_text_is_returned_until_it_expires(cache: Cache, stack: Stack) -> None:
    assert cache.get("of-a-test") is None
    cache.put("of-a-test", "ünïcödé 🍞", seconds=100)
    assert cache.get("of-a-test") == "ünïcödé 🍞"
    assert 0 < int(str(stack.resources.redis.ttl("pressroom:cache:of-a-test"))) <= 100


def test_text_that_stays_large_after_compression_is_not_cached(cache: Cache) -> None:
    noise = random.Random(1).randbytes(40_000).hex()
    cache.put("noise", noise, seconds=100)
    assert cache.get("noise") is None
    cache.put("repetitive", "repetitive " * 10_000, seconds=100)
    assert cache.get("repetitive") == "repetitive " * 10_000


@pytest.mark.slow
def test_cache_returns_nothing_and_raises_nothing_when_redis_is_down() -> None:
    unreachable_cache = Cache(redis.Redis(host="127.0.0.1", port=9, socket_connect_timeout=1))
    unreachable_cache.put("name", "text", seconds=100)
    assert unreachable_cache.get("name") is None


def test_cache_key_depends_on_each_part_their_boundaries_and_the_secret_key() -> None:
    def build_key(secret: bytes, *parts: str) -> str:
        return requests.build_cache_key(Keyring([Key("k", secret)]), *parts)

    secret = b"1" * 32
    other_secret = b"2" * 32
    assert build_key(secret, "ab", "c") == build_key(secret, "ab", "c")
    different_keys = {
        build_key(secret, "ab", "c"),
        build_key(secret, "a", "bc"),
        build_key(secret, "abc"),
        build_key(other_secret, "ab", "c"),
    }
    assert len(different_keys) == 4
