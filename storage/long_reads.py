"""Reads that take minutes, from one view of the database: on a replica, where there is one.

There they cost the primary nothing, and their snapshot keeps none of its dead rows. A replica may
be late, and ends a read that stands in the way of what it has to replay. A read begins once the
replica has replayed all that the primary had committed, and the primary does one that failed there
twice.
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
_ASK_EVERY_SECONDS = 0.1
# The last position in the log that a client may have heard of as committed.
_POSITION = text(
    "SELECT CAST(pg_current_wal_lsn() AS text) AS position, system_identifier AS system"
    " FROM pg_control_system()"
)
# A replica that was promoted, or one of another database, has other rows.
_HAS_REPLAYED = text(
    "SELECT pg_is_in_recovery() AND system_identifier = :system,"
    " pg_last_wal_replay_lsn() >= CAST(:position AS pg_lsn) FROM pg_control_system()"
)


class ReplicaFailed(TransientError):
    """The replica ended a read before its end."""


@dataclass(frozen=True)
class LongReads:
    """Reads from the primary or, where there is one, from its streaming replica.

    Attributes:
        max_wait: for how long a read waits for a replica that is late.
    """

    primary: Engine
    replica: Engine | None = None
    max_wait: timedelta = timedelta(seconds=10)

    @contextmanager
    def view(self, max_time: timedelta, *, failures: int) -> Iterator[Connection]:
        """Yield one view of all that was committed before, in a transaction that writes nothing.

        ``failures`` is how often the same read has failed. Raises ``ReplicaFailed``: the read must
        begin again.
        """
        replica = self.replica
        if replica is None or failures >= FAILURES_OF_REPLICA or not self._is_useful(replica):
            with view_of(self.primary, max_time) as reading:
                yield reading
            return
        try:
            with view_of(replica, max_time) as reading:
                yield reading
        except DBAPIError as error:
            log.warning("replica.failed", reason=type(error.orig).__name__, failures=failures + 1)
            raise ReplicaFailed("The replica of the database ended a read.") from error

    def _is_useful(self, replica: Engine) -> bool:
        """Return whether the replica has caught up with the primary, after waiting a little."""
        with self.primary.connect() as primary:
            reached = primary.execute(_POSITION).one()._asdict()
        ends = time.monotonic() + self.max_wait.total_seconds()
        try:
            with replica.execution_options(isolation_level="AUTOCOMMIT").connect() as asking:
                while time.monotonic() < ends:
                    is_replica, has_replayed = asking.execute(_HAS_REPLAYED, reached).one()
                    if not is_replica:
                        log.warning("replica.passed_over", reason="it is no replica of ours")
                        return False
                    if has_replayed:
                        return True
                    time.sleep(_ASK_EVERY_SECONDS)
                log.warning("replica.late")
                return False
        except DBAPIError as error:
            log.warning("replica.passed_over", reason=str(error.orig).strip())
            return False


@contextmanager
def view_of(engine: Engine, max_time: timedelta) -> Iterator[Connection]:
    snapshot = engine.execution_options(isolation_level="REPEATABLE READ")
    with snapshot.connect() as reading:
        # The default time limits are meant for the statements of a request.
        longest = int(max_time.total_seconds() * 1000)
        reading.execute(text(f"SET LOCAL statement_timeout = {longest}"))
        reading.execute(text(f"SET LOCAL idle_in_transaction_session_timeout = '{_MAX_IDLE}'"))
        reading.execute(text("SET TRANSACTION READ ONLY"))
        yield reading
