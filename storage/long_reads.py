"""Reads that take minutes, from one view of the database: on a replica, where there is one.

There they cost the primary nothing, and their snapshot keeps none of its dead rows. A replica may
be late, and ends a read that stands in the way of what it has to replay. A read begins once the
replica has replayed all that the primary had committed, and the primary does one that failed there
twice.
"""

import select
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta

import psycopg2
from psycopg2.extensions import POLL_OK, POLL_READ, connection
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
    "SELECT CAST(pg_current_wal_lsn() AS text), system_identifier FROM pg_control_system()"
)
# A replica that was promoted, or one of another database, has other rows.
_HAS_REPLAYED = (
    "SELECT pg_is_in_recovery() AND system_identifier = %s,"
    " pg_last_wal_replay_lsn() >= CAST(%s AS pg_lsn) FROM pg_control_system()"
)


class ReplicaFailed(TransientError):
    """The replica ended a read before its end."""


@dataclass(frozen=True)
class Replica:
    """A streaming replica of the primary.

    Attributes:
        connect: opens a connection at once, for the driver's keywords.
        max_wait: for how long a read waits for a replica that is late.
    """

    engine: Engine
    connect: Callable[..., connection]
    max_wait: timedelta = timedelta(seconds=10)


@dataclass(frozen=True)
class LongReads:
    primary: Engine
    replica: Replica | None = None

    @contextmanager
    def view(self, max_time: timedelta, *, failures: int = 0) -> Iterator[Connection]:
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
            with view_of(replica.engine, max_time) as reading:
                yield reading
        except DBAPIError as error:
            log.warning("replica.failed", reason=type(error.orig).__name__, failures=failures + 1)
            raise ReplicaFailed("The replica of the database ended a read.") from error

    def _is_useful(self, replica: Replica) -> bool:
        """Return whether the replica has caught up with the primary, after waiting a little."""
        with self.primary.connect() as primary:
            position, system = primary.execute(_POSITION).one()
        ends = time.monotonic() + replica.max_wait.total_seconds()
        try:
            with closing(replica.connect(async_=True)) as asking:
                _await(asking, ends)
                while not _has_replayed(asking, ends, (system, position)):
                    if time.monotonic() > ends:
                        log.warning("replica.late")
                        return False
                    time.sleep(_ASK_EVERY_SECONDS)
                return True
        except (psycopg2.Error, ReplicaFailed) as error:
            log.warning("replica.passed_over", reason=str(error).strip())
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


def _has_replayed(asking: connection, ends: float, values: tuple[object, ...]) -> bool:
    cursor = asking.cursor()
    cursor.execute(_HAS_REPLAYED, values)
    _await(asking, ends)
    ((is_replica, has_replayed),) = cursor.fetchall()
    if not is_replica:
        raise ReplicaFailed("The database to read from is no replica of ours.")
    return bool(has_replayed)


def _await(asking: connection, ends: float) -> None:
    """Wait for an answer until then: by itself the driver waits for ever if the server hangs."""
    while (state := asking.poll()) != POLL_OK:
        sockets = [asking.fileno()]
        waited = (sockets, []) if state == POLL_READ else ([], sockets)
        if not any(select.select(*waited, [], max(ends - time.monotonic(), 0))):
            raise ReplicaFailed("The replica does not answer.")
