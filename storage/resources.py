from dataclasses import dataclass

import redis

from core.keyring import Keyring
from core.settings import Settings
from storage.broker import Broker
from storage.database import Database, open_database
from storage.encryption import KeyWrapper
from storage.objects import ObjectStore
from storage.redis.cache import Cache
from storage.redis.client import open_redis
from storage.redis.notifications import Notifier
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class Resources:
    """The connections of one process to its services; made once a process, after any fork."""

    settings: Settings
    database: Database
    redis: redis.Redis
    cache: Cache
    broker: Broker
    notifier: Notifier
    objects: ObjectStore
    key_wrapper: KeyWrapper
    keyring: Keyring

    def unit_of_work(self) -> UnitOfWork:
        return UnitOfWork(self.database.sessions, self.broker, self.notifier)

    def close(self) -> None:
        self.broker.close()
        self.redis.close()
        self.database.close()


def open_resources(settings: Settings, *, concurrency: int, name: str) -> Resources:
    """Clients for ``concurrency`` threads at a time; nothing connects before its first use."""
    client = open_redis(settings)
    return Resources(
        settings=settings,
        database=open_database(
            settings, pool_size=concurrency, application_name=f"pressroom-{name}"
        ),
        redis=client,
        cache=Cache(client),
        broker=Broker(settings),
        notifier=Notifier(client),
        objects=ObjectStore(settings, connections=concurrency),
        key_wrapper=KeyWrapper(settings.encryption_keyring),
        keyring=settings.keyring,
    )
