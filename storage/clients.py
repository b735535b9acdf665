"""The clients that connect a process to Redis, the broker and the object storage.

The library of a client is imported at the client's first use, so that commands that need only the
database start faster.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from core.keyring import Keyring
from core.settings import Settings

if TYPE_CHECKING:
    from redis import Redis

    from storage.broker import Broker
    from storage.encryption import KeyWrapper
    from storage.objects import ObjectStore
    from storage.redis.cache import Cache
    from storage.redis.notifier import Notifier


# Optimization: storage clients created at first use (decision 17).
@dataclass(frozen=True)
class Clients:
    """Creates each client at its first use.

    Attributes:
        waiter: the name under which this process receives notifications, or ``None`` if this
            process never waits for results.
        object_prefix: the prefix of all keys in the bucket.
    """

    settings: Settings
    waiter: str | None
    concurrency: int
    object_prefix: str

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
        """Raise ``SettingsError`` if the configured host can't be an S3 server."""
        from storage.objects import ObjectStore

        return ObjectStore(self.settings, connections=self.concurrency, prefix=self.object_prefix)

    def open_clients(self) -> None:
        """Open every client that is not open yet.

        A server process opens all clients at startup, so that wrong settings are reported
        immediately. After the startup, no request waits for an import, and no two threads open the
        same client.
        """
        _ = self.cache, self.notifier, self.broker, self.objects, self.key_wrapper

    def close_clients(self) -> None:
        for name in ("broker", "redis"):
            if name in self.__dict__:
                getattr(self, name).close()
