"""Long read-only transactions, which run on a replica of the database if there is one.

A long read on a replica puts no load on the primary, and doesn't keep the primary from removing
dead rows.

A replica can lag behind the primary, so a read starts only after the replica has caught up.
Postgres cancels a read that delays the replication for too long. A read that has failed twice on
the replica runs on the primary.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from core.errors import TransientError
from core.logging import get_logger

log = get_logger(__name__)

MAX_REPLICA_FAILURES = 2
_MAX_IDLE = "5min"
_POLL_SECONDS = 0.1
# Selects the end of the primary's write-ahead log.
_SELECT_POSITION = text(
    "SELECT CAST(pg_current_wal_lsn() AS text) AS position, system_identifier AS system"
    " FROM pg_control_system()"
)
# Selects two values: whether the server is a replica of the primary, and whether it has replayed
# the write-ahead log up to ``:position``. A promoted replica, or a replica of another database, may
# contain different rows than the primary.
_SELECT_HAS_REPLAYED = text(
    "SELECT pg_is_in_recovery() AND system_identifier = :system,"
    " pg_last_wal_replay_lsn() >= CAST(:position AS pg_lsn) FROM pg_control_system()"
)


class ReplicaFailed(TransientError):
    """The replica has cancelled a read or closed the connection."""


@dataclass(frozen=True)
class ReplicaReads:
    primary: Engine
    replica: Engine | None = None
    # The maximum time that a read waits for the replica to catch up.
    max_wait: timedelta = timedelta(seconds=10)

    @contextmanager
    def view(self, max_time: timedelta, *, failures: int) -> Iterator[Connection]:
        """Yield a read-only transaction with a snapshot of all committed data.

        Raises ``ReplicaFailed`` if the replica fails and the read must start again. ``failures``
        counts how often this read has already failed on the replica.
        """
        replica = self.replica
        if replica is None or failures >= MAX_REPLICA_FAILURES or not self._has_caught_up(replica):
            with open_snapshot(self.primary, max_time) as snapshot:
                yield snapshot
            return
        try:
            with open_snapshot(replica, max_time) as snapshot:
                yield snapshot
        except DBAPIError as error:
            log.warning("replica.failed", reason=type(error.orig).__name__, failures=failures + 1)
            raise ReplicaFailed("The database replica cancelled a query.") from error

    def _has_caught_up(self, replica: Engine) -> bool:
        with self.primary.connect() as primary:
            position = primary.execute(_SELECT_POSITION).one()._asdict()
        deadline = time.monotonic() + self.max_wait.total_seconds()
        try:
            with replica.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
                while time.monotonic() < deadline:
                    row = connection.execute(_SELECT_HAS_REPLAYED, position).one()
                    is_replica, has_replayed = row
                    if not is_replica:
                        log.warning("replica.passed_over", reason="it is no replica of ours")
                        return False
                    if has_replayed:
                        return True
                    time.sleep(_POLL_SECONDS)
                log.warning("replica.late")
                return False
        except DBAPIError as error:
            log.warning("replica.passed_over", reason=str(error.orig).strip())
            return False


@contextmanager
def open_snapshot(engine: Engine, max_time: timedelta) -> Iterator[Connection]:
    """Each statement may take up to ``max_time``."""
    repeatable_read = engine.execution_options(isolation_level="REPEATABLE READ")
    with repeatable_read.connect() as connection:
        # Raise the time limits, because the session's default limits are too short for a long read.
        milliseconds = int(max_time.total_seconds() * 1000)
        connection.execute(text(f"SET LOCAL statement_timeout = {milliseconds}"))
        connection.execute(text(f"SET LOCAL idle_in_transaction_session_timeout = '{_MAX_IDLE}'"))
        connection.execute(text("SET TRANSACTION READ ONLY"))
        yield connection
