"""The connections of a process to the database, Redis, the broker and the object storage."""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, TypeVar

from core.settings import Settings
from storage.clients import Clients
from storage.database import Database, open_database, open_replica
from storage.replica_reads import ReplicaReads
from storage.unit_of_work import UnitOfWork

T = TypeVar("T")


@dataclass(frozen=True)
class Resources(Clients):
    """A process's connections, which it must open only after forking."""

    database: Database
    replica_reads: ReplicaReads
    _shared: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    _shared_lock: Any = field(default_factory=RLock, init=False, repr=False, compare=False)

    def open_all(self) -> None:
        _ = self.database.sessions
        self.open_clients()

    def shared(self, create: Callable[["Resources"], T]) -> T:
        """Call ``create`` once per process, and share the created object among all threads."""
        with self._shared_lock:
            if create not in self._shared:
                self._shared[create] = create(self)
            shared_object: T = self._shared[create]
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
    """Return a process's database and clients, which connect at their first use.

    Postgres shows ``name`` for the process's connections.
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
        replica_reads=ReplicaReads(database.engine, replica),
    )
