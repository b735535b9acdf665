from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

from core.keyring import Keyring
from core.settings import Settings
from storage.database import Database, open_database, open_replica
from storage.long_reads import LongReads
from storage.unit_of_work import UnitOfWork

if TYPE_CHECKING:
    from redis import Redis

    from storage.broker import Broker
    from storage.encryption import KeyWrapper
    from storage.objects import ObjectStore
    from storage.redis.cache import Cache
    from storage.redis.notifier import Notifier


T = TypeVar("T")


@dataclass(frozen=True)
class Resources:
    """The connections of one process to its services; made once a process, after any fork.

    All but the database's are made, and their libraries imported, at the first use: most commands
    need the database alone, and a third of their start was this.
    """

    settings: Settings
    database: Database
    long_reads: LongReads
    # The name by which this process is notified; ``None`` where no caller waits for work.
    waiter: str | None
    # How many threads use the clients at a time.
    concurrency: int
    # Where all keys begin in the bucket.
    object_prefix: str
    _shared: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    _making: Any = field(default_factory=RLock, init=False, repr=False, compare=False)

    @property
    def keyring(self) -> Keyring:
        return self.settings.keyring

    @cached_property
    def redis(self) -> "Redis":
        from storage.redis.client import open_redis

        return open_redis(self.settings)

    @cached_property
    def cache(self) -> "Cache":
        from storage.redis.cache import Cache

        return Cache(self.redis)

    @cached_property
    def notifier(self) -> "Notifier":
        from storage.redis.notifier import Notifier

        return Notifier(self.redis)

    @cached_property
    def broker(self) -> "Broker":
        from storage.broker import Broker

        return Broker(self.settings)

    @cached_property
    def key_wrapper(self) -> "KeyWrapper":
        from storage.encryption import KeyWrapper

        return KeyWrapper(self.settings.encryption_keyring)

    @cached_property
    def objects(self) -> "ObjectStore":
        """Raises ``SettingsError`` for an impossible host."""
        from storage.objects import ObjectStore

        return ObjectStore(self.settings, connections=self.concurrency, prefix=self.object_prefix)

    def make_all(self) -> None:
        """Make every client now.

        A server does so at its start: it then says what is wrong with its settings, no request
        waits for an import, and no two threads make the same client.
        """
        _ = self.database.sessions, self.cache, self.notifier, self.broker
        _ = self.objects, self.key_wrapper

    def shared(self, make: Callable[["Resources"], T]) -> T:
        """Return what ``make`` returned at its first call: one for all threads of the process."""
        with self._making:
            if make not in self._shared:
                self._shared[make] = make(self)
            made: T = self._shared[make]
            return made

    def unit_of_work(self) -> UnitOfWork:
        return UnitOfWork(self.database.sessions, self)

    def close(self) -> None:
        for made in ("broker", "redis"):
            if made in self.__dict__:
                getattr(self, made).close()
        self.database.close()


def open_resources(
    settings: Settings,
    *,
    concurrency: int,
    name: str,
    waiter: str | None = None,
    single_statements: int = 0,
    object_prefix: str = "",
) -> Resources:
    """Clients for ``concurrency`` threads at a time; nothing connects before its first use.

    ``single_statements``: how many connections more a process has that lives by these.
    """
    application_name, url = f"pressroom-{name}", settings.read_database_url
    database = open_database(
        settings,
        pool_size=concurrency,
        application_name=application_name,
        single_statements=single_statements,
    )
    replica = None if url is None else open_replica(url, application_name=application_name)
    reads = LongReads(database.engine, replica)
    return Resources(settings, database, reads, waiter, concurrency, object_prefix)
