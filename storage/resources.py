"""The connections of a process to all its services, and the units of work on the database."""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, TypeVar

from core.settings import Settings
from storage.clients import Clients
from storage.database import Database, open_database, open_replica
from storage.long_reads import LongReads
from storage.unit_of_work import UnitOfWork

T = TypeVar("T")


@dataclass(frozen=True)
class Resources(Clients):
    """The clients of a process and its database. A process opens them once, after any fork."""

    database: Database
    long_reads: LongReads
    _shared: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    _making: Any = field(default_factory=RLock, init=False, repr=False, compare=False)

    def open_all(self) -> None:
        """Open the clients and prepare the database's sessions now."""
        _ = self.database.sessions
        self.open_clients()

    def shared(self, make: Callable[["Resources"], T]) -> T:
        """Return the result of the first call of ``make``, for all threads of the process."""
        with self._making:
            if make not in self._shared:
                self._shared[make] = make(self)
            shared_object: T = self._shared[make]
            return shared_object

    def unit_of_work(self) -> UnitOfWork:
        return UnitOfWork(self.database.sessions, self)

    def close(self) -> None:
        self.close_clients()
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
    """Return the resources for ``concurrency`` threads. Nothing connects before its first use.

    Args:
        name: the name of the process, which Postgres shows for its connections.
        waiter: the name under which the process receives notifications.
        single_statements: the number of additional connections for single statements.
        object_prefix: the prefix of all keys in the bucket.
    """
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
        waiter=waiter,
        concurrency=concurrency,
        object_prefix=object_prefix,
        database=database,
        long_reads=LongReads(database.engine, replica),
    )
