"""Reads that take minutes and see one snapshot of the database, on a replica if there is one.

On a replica, a long read costs the primary nothing, and its snapshot keeps no dead rows there.

A replica can be late. A read therefore starts after the replica has replayed all transactions that
were committed on the primary. A replica also ends a read that blocks the replay. A read that failed
twice on the replica runs on the primary.
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

FAILURES_OF_REPLICA = 2
_MAX_IDLE = "5min"
_POLL_SECONDS = 0.1
# The log of the primary up to here contains every transaction that a client knows as committed.
_POSITION = text(
    "SELECT CAST(pg_current_wal_lsn() AS text) AS position, system_identifier AS system"
    " FROM pg_control_system()"
)
# A promoted replica, or a replica of another database, has different rows.
_HAS_REPLAYED = text(
    "SELECT pg_is_in_recovery() AND system_identifier = :system,"
    " pg_last_wal_replay_lsn() >= CAST(:position AS pg_lsn) FROM pg_control_system()"
)


class ReplicaFailed(TransientError):
    """The replica ended a read early."""


@dataclass(frozen=True)
class LongReads:
    """Reads from the primary or from its streaming replica."""

    primary: Engine
    replica: Engine | None = None
    # A read waits at most this long for a late replica.
    max_wait: timedelta = timedelta(seconds=10)

    @contextmanager
    def view(self, max_time: timedelta, *, failures: int) -> Iterator[Connection]:
        """Yield a read-only transaction with a snapshot of all committed data.

        Raises ``ReplicaFailed`` if the read must start again.

        Args:
            failures: the number of times that the same read has failed.
        """
        replica = self.replica
        if replica is None or failures >= FAILURES_OF_REPLICA or not self._is_useful(replica):
            with open_snapshot(self.primary, max_time) as snapshot:
                yield snapshot
            return
        try:
            with open_snapshot(replica, max_time) as snapshot:
                yield snapshot
        except DBAPIError as error:
            log.warning("replica.failed", reason=type(error.orig).__name__, failures=failures + 1)
            raise ReplicaFailed("The replica of the database ended a read.") from error

    def _is_useful(self, replica: Engine) -> bool:
        """Wait for the replica to catch up with the primary; return whether it has."""
        with self.primary.connect() as primary:
            position = primary.execute(_POSITION).one()._asdict()
        deadline = time.monotonic() + self.max_wait.total_seconds()
        try:
            with replica.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
                while time.monotonic() < deadline:
                    is_replica, has_replayed = connection.execute(_HAS_REPLAYED, position).one()
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
    """Yield a read-only transaction that sees one snapshot and may take ``max_time``."""
    repeatable_read = engine.execution_options(isolation_level="REPEATABLE READ")
    with repeatable_read.connect() as connection:
        # The default time limits are meant for the statements of a request.
        milliseconds = int(max_time.total_seconds() * 1000)
        connection.execute(text(f"SET LOCAL statement_timeout = {milliseconds}"))
        connection.execute(text(f"SET LOCAL idle_in_transaction_session_timeout = '{_MAX_IDLE}'"))
        connection.execute(text("SET TRANSACTION READ ONLY"))
        yield connection
