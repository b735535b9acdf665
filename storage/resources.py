from dataclasses import dataclass

import redis

from core.keyring import Keyring
from core.settings import Settings
from storage.broker import Broker
from storage.database import Database, open_database, open_replica
from storage.encryption import KeyWrapper
from storage.long_reads import LongReads
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
    long_reads: LongReads
    redis: redis.Redis
    cache: Cache
    broker: Broker
    notifier: Notifier
    objects: ObjectStore
    key_wrapper: KeyWrapper
    keyring: Keyring
    # The name by which this process is notified; ``None`` where no caller waits for work.
    waiter: str | None

    def unit_of_work(self) -> UnitOfWork:
        return UnitOfWork(self.database.sessions, self.broker, self.notifier, self.waiter)

    def close(self) -> None:
        self.broker.close()
        self.redis.close()
        self.database.close()


def open_resources(
    settings: Settings,
    *,
    concurrency: int,
    name: str,
    waiter: str | None = None,
    single_statements: int = 0,
) -> Resources:
    """Clients for ``concurrency`` threads at a time; nothing connects before its first use.

    ``single_statements``: how many connections more a process has that lives by these.
    """
    client = open_redis(settings)
    application_name = f"pressroom-{name}"
    database = open_database(
        settings,
        pool_size=concurrency,
        application_name=application_name,
        single_statements=single_statements,
    )
    replica = None
    if settings.read_database_url is not None:
        replica = open_replica(settings.read_database_url, application_name=application_name)
    return Resources(
        settings=settings,
        database=database,
        long_reads=LongReads(database.engine, replica),
        redis=client,
        cache=Cache(client),
        broker=Broker(settings),
        notifier=Notifier(client),
        objects=ObjectStore(settings, connections=concurrency),
        key_wrapper=KeyWrapper(settings.encryption_keyring),
        keyring=settings.keyring,
        waiter=waiter,
    )
