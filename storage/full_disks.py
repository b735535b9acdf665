"""Remembers which stores have reported a full disk to this process."""

import time
from enum import StrEnum
from threading import Lock

import psycopg2
import psycopg2.errors

from core.logging import get_logger

log = get_logger(__name__)

# A full disk is forgotten after this time without a new report, because a process that writes
# nothing doesn't notice that the disk has space again. API processes check a full disk more often.
MAX_REPORT_AGE_SECONDS = 600.0
# Redis rejects each write with an error that begins with this word while it can't write its file.
REDIS_CODE = "MISCONF"
_NO_SPACE = "No space left on device"


class Store(StrEnum):
    DATABASE = "database"
    REDIS = "redis"
    BROKER = "broker"
    OBJECTS = "objects"


_NAMES = {
    Store.DATABASE: "database",
    Store.REDIS: "Redis server",
    Store.BROKER: "broker",
    Store.OBJECTS: "object storage",
}


class FullDisks:
    """The stores whose disk is full. All threads of a process share one ``FullDisks``."""

    def __init__(self) -> None:
        self._lock = Lock()
        # The monotonic time of the last report about each store.
        self._reported_at: dict[Store, float] = {}

    def report_full(self, store: Store, reason: str) -> None:
        with self._lock:
            is_known = store in self._list_stores()
            self._reported_at[store] = time.monotonic()
        if not is_known:
            log.error("disk.full", reason=f"The disk of the {_NAMES[store]} is full: {reason}")

    def report_write(self, store: Store, began_at: float) -> None:
        """Forget a full disk after a write that needed space on the disk.

        ``began_at`` is when the write began, as a value of ``time.monotonic()``. A later report
        about a full disk stays valid.
        """
        if store not in self._reported_at:
            return
        with self._lock:
            if self._reported_at.get(store, began_at) >= began_at:
                return
            del self._reported_at[store]
        log.warning("disk.has_space", reason=f"The disk of the {_NAMES[store]} has space again.")

    def list_stores(self) -> frozenset[Store]:
        with self._lock:
            return self._list_stores()

    def _list_stores(self) -> frozenset[Store]:
        oldest = time.monotonic() - MAX_REPORT_AGE_SECONDS
        return frozenset(store for store, moment in self._reported_at.items() if moment > oldest)


FULL_DISKS = FullDisks()


def report_database_error(error: psycopg2.Error) -> None:
    # While a connection is being opened, an error has no code.
    if isinstance(error, psycopg2.errors.DiskFull) or _NO_SPACE in str(error):
        FULL_DISKS.report_full(Store.DATABASE, str(error).partition("\n")[0])


def report_redis_error(store: Store, error: Exception) -> None:
    if str(error).startswith(REDIS_CODE):
        FULL_DISKS.report_full(store, str(error))
