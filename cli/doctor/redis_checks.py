import secrets
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import redis

from cli.doctor.diagnoses import CheckAnswer, Part, fine, skipped, wrong
from core.lanes import Lane
from core.settings import Settings
from core.settings.store_settings import AMQP_SCHEMES
from storage.broker import Broker
from storage.redis.client import open_redis

_MIN_VERSION = (6, 2)
_MAX_MEMORY_SHARE = 0.9
# Others evict queues, which don't expire.
_POLICIES = ("volatile-lru", "volatile-lfu", "volatile-ttl", "volatile-random", "noeviction")


def _ask_redis(settings: Settings) -> Iterator[CheckAnswer]:
    with closing(open_redis(settings)) as client:
        yield from _answers(client)


def _ask_broker(settings: Settings) -> Iterator[CheckAnswer]:
    if settings.broker == settings.cache:
        yield skipped("connection", "it is the Redis above")
    elif settings.broker.partition("://")[0] in AMQP_SCHEMES:
        yield _rabbitmq(settings)
    else:
        as_cache = settings.model_copy(update={"cache_url": settings.broker_url})
        with closing(open_redis(as_cache)) as client:
            yield from _answers(client)


REDIS = Part("redis", _ask_redis)
BROKER = Part("broker", _ask_broker)


def _rabbitmq(settings: Settings) -> CheckAnswer:
    broker = Broker(settings)
    try:
        waiting = broker.waiting(Lane.UPKEEP)
    finally:
        broker.close()
    if waiting is None:
        return wrong("connection", "RabbitMQ does not answer", "Check PRESSROOM_BROKER_URL.")
    return fine("connection", "RabbitMQ takes messages")


def _answers(client: redis.Redis) -> Iterator[CheckAnswer]:
    key, value = f"doctor:{secrets.token_hex(8)}", secrets.token_hex(8)
    client.set(key, value, ex=60)
    found: Any = client.getdel(key)
    if found != value.encode():
        yield wrong("connection", "it forgets what it is given", "Look at its memory and its log.")
        return
    yield fine("connection", "it keeps a key and gives it back")
    try:
        info: dict[str, Any] = client.info()
    except redis.ResponseError:
        advice = "Let the user ask: ACL SETUSER … +info."
        yield skipped("version, policy, persistence", "its user may not ask (INFO)", advice)
        return
    yield _version(info)
    yield _policy(info)
    yield _memory(info)
    yield _persistence(info)


def _version(info: dict[str, Any]) -> CheckAnswer:
    name = "Valkey" if "valkey_version" in info else "Redis"
    shown = str(info.get("valkey_version") or info["redis_version"])
    protocol = tuple(int(each) for each in str(info["redis_version"]).split(".")[:2])
    if protocol < _MIN_VERSION:
        least = ".".join(map(str, _MIN_VERSION))
        return wrong("version", f"{name} {shown}", f"Use Redis {least} or later, or Valkey.")
    return fine("version", f"{name} {shown}")


def _policy(info: dict[str, Any]) -> CheckAnswer:
    policy = str(info.get("maxmemory_policy", "unknown"))
    if policy not in _POLICIES:
        advice = "Set maxmemory-policy volatile-lru: this one drops queues when memory is short."
        return wrong("policy", policy, advice)
    return fine("policy", policy)


def _memory(info: dict[str, Any]) -> CheckAnswer:
    used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    megabytes = f"{used / 2**20:.0f} MB"
    if not most:
        return fine("memory", f"{megabytes} without a bound", "Set maxmemory.")
    found = f"{megabytes} of {most / 2**20:.0f} MB"
    if used > most * _MAX_MEMORY_SHARE:
        return wrong("memory", found, "Raise maxmemory: it will refuse what it can't keep.")
    return fine("memory", found)


def _persistence(info: dict[str, Any]) -> CheckAnswer:
    if info.get("loading"):
        return wrong("persistence", "it is still loading its data", "Wait, and ask again.")
    if info.get("aof_last_write_status", "ok") != "ok":
        return wrong("persistence", "it could not write its file", "Look at its disk.")
    if not info.get("aof_enabled"):
        advice = "Set appendonly yes: after a restart counts begin anew and work is sent again."
        return fine("persistence", "it forgets all at a restart", advice)
    return fine("persistence", "each write goes to a file")
