"""Runs jobs in a worker process.

Some jobs must run all their turns in one process, for example because they read one file from start
to end. Such a job stays in the process: its ``run`` is a generator that yields between its turns.
Between two turns of such a job, the process runs one turn of the next queued job.
"""

import os
import signal
import time
import traceback
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import timedelta

import psycopg2
import structlog
from celery import current_task
from celery.exceptions import Retry, SoftTimeLimitExceeded
from sqlalchemy import func, select
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from core.calls import time_limits
from core.counters import work_metrics
from core.errors import DomainError, TransientError
from core.errors.jobs import JOB_BROKE, JOB_TOO_SLOW
from core.logging import get_logger
from core.telemetry import spans
from core.telemetry.attributes import SpanAttributes
from models import Job, JobStatus
from services.jobs.kinds import JobKind, get_kind, list_kinds
from services.jobs.lease import JobCancelled, Lease, LeaseLost, renew_lease, run_heartbeat
from services.jobs.outbox import RECENT
from services.jobs.retries import record_crash, retry_or_fail_job
from services.jobs.transitions import cancel_job, claim_job, fail_job, hand_back_job
from storage.resources import Resources
from workers.context import WorkerContext
from workers.held_work import Held

log = get_logger(__name__)


# A database that restarts, or is out of connections, is no fault of the job.
_DATABASE_FAILURES = (
    *(OperationalError, InterfaceError, PoolTimeoutError),
    # Single statements go past SQLAlchemy.
    *(psycopg2.OperationalError, psycopg2.InterfaceError),
)
_MAX_OUTAGE_SECONDS = 30.0
_OUTAGE_PAUSE_SECONDS = 0.5
_SOCKET_MODULES = frozenset({"socket", "ssl", "selectors", time_limits.__name__})

# A process whose turn has not ended at this time after its deadline is killed.
KILL_AFTER_SECONDS = 15.0
# The jobs that stay in a process. Each of them may keep a file and a set of addresses open.
MAX_STAYING_JOBS = 4
_HAS_ENDED = True


class JobAttempt:
    """A claimed job that runs for one or more turns. The lease is renewed until ``close``."""

    def __init__(self, context: WorkerContext, lease: Lease, *, has_own_limits: bool) -> None:
        """Start to renew the lease.

        ``has_own_limits``: whether the deadline of the kind applies to each turn by itself.
        """
        self.lease = lease
        self._context = context
        self._has_own_limits = has_own_limits
        self._held: Held | None = None
        self._turns: Generator[None, None, None] | None = None
        self._heart = ExitStack()
        self._heart.enter_context(run_heartbeat(self._renew))

    def close(self) -> None:
        """Stop renewing the lease, and close what the job keeps open between its turns."""
        try:
            if self._turns is not None:
                self._turns.close()
        finally:
            self._heart.close()

    def hand_back(self) -> None:
        """Queue the job again, so that another worker continues it."""
        with suppress(LeaseLost, SQLAlchemyError), self._context.resources.unit_of_work() as uow:
            hand_back_job(uow, self.lease)
            log.info("job.handed_back", job_id=self.lease.job_id)

    def take_turn(self) -> bool:
        """Run one turn. Return whether the next turn must be in this process."""
        kind = get_kind(self.lease.kind)
        began = time.monotonic()
        seconds = kind.deadline_seconds
        self._held = Held(time.monotonic() + seconds, self.hand_back)
        bound = {"job_id": self.lease.job_id, "kind": self.lease.kind}
        bound |= {"attempt": self.lease.attempt, "request_id": self.lease.request_id}
        about: SpanAttributes = {
            "pressroom.job.id": self.lease.job_id,
            "pressroom.job.kind": kind.name,
            "pressroom.job.attempt": self.lease.attempt,
        }
        try:
            with (
                structlog.contextvars.bound_contextvars(**bound),
                spans.work_span(f"job {kind.name}", self.lease.traceparent, about),
                self._context.held.holding(self._held),
                _alarm(seconds if self._has_own_limits else 0),
            ):
                return self._do()
        finally:
            self._held = None
            took = time.monotonic() - began
            work_metrics.running_of(kind.queue, kind.name).observe(took)

    def _do(self) -> bool:
        try:
            try:
                self.lease.check_cancelled()
                stays = self._work()
            except Exception as error:  # noqa: BLE001 - every failure ends the job in one way or another
                spans.note_failure(error)
                _record_failure(self._context.resources, self.lease, error)
                stays = False
        except LeaseLost:
            log.warning("job.lease_lost")
            return False
        if not stays:
            log.info("job.ended")
        return stays

    def _work(self) -> bool:
        if self._turns is None:
            self._turns = get_kind(self.lease.kind).run(self._context.resources, self.lease)
        return self._turns is not None and not next(self._turns, _HAS_ENDED)

    def _renew(self) -> None:
        held = self._held
        if held is None or not held.is_overdue:
            with self._context.resources.unit_of_work() as uow:
                renew_lease(uow, self.lease)
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


def _record_failure(resources: Resources, lease: Lease, error: Exception) -> None:
    """Record the failure, and retry for a few seconds while the database is unreachable.

    Otherwise the lease would expire, which counts as a crash.
    """
    deadline = time.monotonic() + _MAX_OUTAGE_SECONDS
    while True:
        try:
            _try_to_record_failure(resources, lease, error)
        except SQLAlchemyError as failure:
            if not _is_database_away(failure) or time.monotonic() > deadline:
                raise
            time.sleep(_OUTAGE_PAUSE_SECONDS)
        else:
            return


def _try_to_record_failure(resources: Resources, lease: Lease, error: Exception) -> None:
    passing = _passing_reason(error)
    with resources.unit_of_work() as uow:
        match error:
            case LeaseLost():
                raise error
            case JobCancelled():
                cancel_job(uow, lease)
            case DomainError():
                fail_job(uow, lease, error)
            case _ if passing is not None:
                log.warning("job.retried", reason=str(error))
                patience = timedelta(seconds=resources.settings.patience)
                retry_or_fail_job(uow, lease, reason=passing, patience=patience)
            case SoftTimeLimitExceeded():
                log.warning("job.too_slow")
                record_crash(uow, lease, JOB_TOO_SLOW())
            case _:
                log.error("job.broke", exc_info=error)
                fail_job(uow, lease, JOB_BROKE())


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
    """Return whether the code that the error interrupted was a socket's."""
    # The last frame is that of the signal's handler.
    last = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][-2:]
    return any(frame.f_globals.get("__name__") in _SOCKET_MODULES for frame in last)


class TaskFailed(Exception):
    """The work of a task failed, which its row has written down: Flower shows it as a failure.

    Its argument is the code of the error.
    """


def run_job(context: WorkerContext, *, job_id: int) -> None:
    """Do the job. A second delivery of its message ends at the claim.

    Raises ``TaskFailed`` or Celery's ``Retry`` for work that failed, so that the state of the task
    is that of the work. The job itself is queued again by its row, and by no message of Celery's.
    """
    with context.resources.unit_of_work() as uow:
        lease = claim_job(uow, job_id)
    if lease is None:
        log.debug("job.not_claimed", job_id=job_id)
        return
    jobs = _StayingJobs(context, get_kind(lease.kind))
    began = time.monotonic()
    with closing(jobs):
        try:
            jobs.run(lease)
        except SystemExit:
            # The pool ends a process at the end of the worker's grace, or when the task has run
            # past its hard time limit; only the latter counts as a crash.
            if time.monotonic() - began < current_task.time_limit:
                jobs.hand_back()
            raise
    if lease.failed_by is not None:
        raise TaskFailed(lease.failed_by)
    if lease.is_retried:
        raise Retry("The job is queued again, for later.")


class _StayingJobs:
    """The jobs that take turns in this process, for at most ``max_stay_seconds`` of the first one.

    The job that the message names is one of them. If it doesn't stay, no other job is claimed.
    """

    def __init__(self, context: WorkerContext, kind: JobKind) -> None:
        self._context = context
        self._first = kind
        self._ends = time.monotonic() + kind.max_stay_seconds
        self._attempts: deque[JobAttempt] = deque()

    def run(self, lease: Lease) -> None:
        self._add(lease)
        while self._attempts:
            attempt = self._attempts[0]
            stays = attempt.take_turn()
            if stays and self._may_stay():
                self._attempts.rotate(-1)
            else:
                self._attempts.popleft()
                if stays:
                    attempt.hand_back()
                attempt.close()
                if stays:
                    # The next job in the queue may be this one. The jobs that stay come first.
                    continue
            if self._attempts and (next_lease := self._claim_next()) is not None:
                self._add(next_lease)

    def hand_back(self) -> None:
        for attempt in self._attempts:
            attempt.hand_back()

    def close(self) -> None:
        with ExitStack() as closing_all:
            for attempt in self._attempts:
                closing_all.callback(attempt.close)

    def _may_stay(self) -> bool:
        """Return whether the job that just had its turn may stay in this process.

        A new job can't replace one that stays. Otherwise many jobs would replace each other for
        ever, and each would start at its beginning again.
        """
        return len(self._attempts) <= MAX_STAYING_JOBS and time.monotonic() < self._ends

    def _add(self, lease: Lease) -> None:
        """Put the job before the others, which have all had a turn since the last new job."""
        own_limits = bool(self._first.max_stay_seconds)
        self._attempts.appendleft(JobAttempt(self._context, lease, has_own_limits=own_limits))

    def _claim_next(self) -> Lease | None:
        resources: Resources = self._context.resources
        waiting = (
            select(Job.id)
            .where(
                Job.status == JobStatus.QUEUED,
                Job.queue == self._first.queue,
                Job.sends > 0,
                # The sweep keeps all that were sent among these.
                Job.send_after > func.now() - RECENT,
                Job.run_at <= func.now(),
                Job.kind.in_([kind.name for kind in list_kinds()]),
            )
            .order_by(Job.send_after)
            .limit(1)
        )
        with resources.unit_of_work() as uow:
            job_id = uow.session.scalar(waiting)
            return None if job_id is None else claim_job(uow, job_id)
