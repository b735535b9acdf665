"""An attempt at a job in a worker, from its claim to its end."""

import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import timedelta

import structlog
from celery.exceptions import SoftTimeLimitExceeded
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from core.calls import time_limits
from core.counters import job_metrics
from core.errors import DomainError, TransientError
from core.logging import get_logger
from core.refusals.jobs import JOB_BROKE, JOB_TOO_SLOW
from core.telemetry import spans
from services.jobs import lease as leases
from services.jobs.heartbeat import heartbeat
from services.jobs.kinds import kind_named
from services.jobs.lease import JobCancelled, Lease, LeaseLost
from services.jobs.patience import try_later
from storage.resources import Resources
from workers.context import WorkerContext
from workers.running.held_work import Held

log = get_logger(__name__)

# A database that restarts, or is out of connections, is no fault of the job.
_DATABASE_FAILURES = (OperationalError, InterfaceError, PoolTimeoutError)
_MAX_OUTAGE_SECONDS = 30.0
_OUTAGE_PAUSE_SECONDS = 0.5
_SOCKET_MODULES = frozenset({"socket", "ssl", "selectors", time_limits.__name__})

# A turn that does not end at its deadline costs the process, by the signal that ends any.
KILL_AFTER_SECONDS = 15.0

# True: the job stays with its process, which is to take its next turn too.
JobWork = Callable[[WorkerContext, Lease], bool | None]


class JobAttempt:
    """A claimed job, for one turn or several. Its lease is renewed until it is closed."""

    def __init__(
        self, context: WorkerContext, lease: Lease, work: JobWork, *, has_own_limits: bool
    ) -> None:
        """``has_own_limits``: each turn has the kind's deadline, in a task that may have many."""
        self.lease = lease
        self._context = context
        self._work = work
        self._has_own_limits = has_own_limits
        self._held: Held | None = None
        self._heart = ExitStack()
        self._heart.enter_context(heartbeat(self._renew))

    def close(self) -> None:
        self._heart.close()

    def hand_back(self) -> None:
        """Let another worker go on."""
        with suppress(LeaseLost, SQLAlchemyError), self._context.resources.unit_of_work() as uow:
            leases.hand_back(uow, self.lease)
            log.info("job.handed_back", job_id=self.lease.job_id)

    def take_turn(self) -> bool:
        """Whether the job stays with this process."""
        kind, began = kind_named(self.lease.kind), time.monotonic()
        seconds = kind.deadline_seconds
        self._held = Held(time.monotonic() + seconds, self.hand_back)
        bound = {"job_id": self.lease.job_id, "kind": self.lease.kind}
        bound |= {"attempt": self.lease.attempt, "request_id": self.lease.request_id}
        try:
            with (
                structlog.contextvars.bound_contextvars(**bound),
                self._span(),
                self._context.held.holding(self._held),
                _alarm(seconds if self._has_own_limits else 0),
            ):
                return self._do()
        finally:
            self._held = None
            job_metrics.observe_turn(kind.lane, kind.name, time.monotonic() - began)

    def _do(self) -> bool:
        try:
            try:
                self.lease.check_cancelled()
                stays = bool(self._work(self._context, self.lease))
            except Exception as error:  # noqa: BLE001 - every failure ends the job in one way or another
                spans.note_failure(error)
                _end_for_sure(self._context.resources, self.lease, error)
                stays = False
        except LeaseLost:
            log.warning("job.lease_lost")
            return False
        if not stays:
            log.info("job.ended")
        return stays

    def _span(self) -> AbstractContextManager[None]:
        """One for each turn, in the trace of the request that asked for the job."""
        lease = self.lease
        about: spans.Attributes = {
            "pressroom.job.id": lease.job_id,
            "pressroom.job.kind": lease.kind,
            "pressroom.job.attempt": lease.attempt,
        }
        return spans.work_span(f"job {lease.kind}", lease.traceparent, about)

    def _renew(self) -> None:
        held = self._held
        if held is None or not held.is_overdue:
            with self._context.resources.unit_of_work() as uow:
                leases.renew(uow, self.lease)
            return
        # The lease runs out, and the sweep queues the job again.
        log.error("job.overdue", job_id=self.lease.job_id, kind=self.lease.kind)
        if not self._has_own_limits:
            raise LeaseLost(self.lease.job_id)
        if time.monotonic() > held.deadline + KILL_AFTER_SECONDS:
            os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise ``SoftTimeLimitExceeded`` in the block after this time; 0 for never.

    For the main thread of a process, as that of a pool's process is.
    """
    if not seconds:
        yield
        return

    def too_slow(*_: object) -> None:
        raise SoftTimeLimitExceeded

    before = signal.signal(signal.SIGALRM, too_slow)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _end_for_sure(resources: Resources, lease: Lease, error: Exception) -> None:
    """As ``_end_badly``; while the database is away, try again for some seconds.

    The lease that would run out instead counts as a crash.
    """
    deadline = time.monotonic() + _MAX_OUTAGE_SECONDS
    while True:
        try:
            _end_badly(resources, lease, error)
        except SQLAlchemyError as failure:
            if not _is_database_away(failure) or time.monotonic() > deadline:
                raise
            time.sleep(_OUTAGE_PAUSE_SECONDS)
        else:
            return


def _end_badly(resources: Resources, lease: Lease, error: Exception) -> None:
    passing = _passing_reason(error)
    with resources.unit_of_work() as uow:
        match error:
            case LeaseLost():
                raise error
            case JobCancelled():
                leases.cancel(uow, lease)
            case DomainError():
                leases.fail(uow, lease, error)
            case _ if passing is not None:
                log.warning("job.retried", reason=str(error))
                patience = timedelta(seconds=resources.settings.patience)
                try_later(uow, lease, reason=passing, patience=patience)
            case SoftTimeLimitExceeded():
                log.warning("job.too_slow")
                leases.crash(uow, lease, JOB_TOO_SLOW())
            case _:
                log.error("job.broke", exc_info=error)
                leases.fail(uow, lease, JOB_BROKE())


def _passing_reason(error: Exception) -> str | None:
    """Why the work failed if that may pass by itself, in words for the job's owner."""
    if _is_database_away(error):
        return "The database does not answer."
    if isinstance(error, TransientError):
        return str(error)
    if isinstance(error, SoftTimeLimitExceeded) and _waited_for_a_server(error):
        return "A server answers too slowly."
    return None


def _is_database_away(error: Exception) -> bool:
    # psycopg2 has several exceptions for a connection that broke; SQLAlchemy knows them all.
    is_cut = isinstance(error, DBAPIError) and error.connection_invalidated
    return is_cut or isinstance(error, _DATABASE_FAILURES)


def _waited_for_a_server(error: Exception) -> bool:
    """Whether the code that the error interrupted was a socket's."""
    # The last frame is that of the signal's handler.
    last = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][-2:]
    return any(frame.f_globals.get("__name__") in _SOCKET_MODULES for frame in last)
