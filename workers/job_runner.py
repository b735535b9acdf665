"""Runs jobs in a worker process.

Some jobs must run all their turns in one process, for example because they read one file from start
to end. Such a job stays in the process: its ``run`` is a generator that yields between its turns.
Between two turns of such a job, the process runs one turn of the next queued job. Other owners
therefore wait for one turn only, and the job keeps its files open.
"""

import os
import signal
import time
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress

import structlog
from celery import current_task
from celery.exceptions import Retry, SoftTimeLimitExceeded
from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError

from core.counters import work_metrics
from core.logging import get_logger
from core.telemetry import spans
from core.telemetry.attributes import SpanAttributes
from models import Job, JobStatus
from services.jobs.kinds import JobKind, get_kind, list_kinds
from services.jobs.lease import Lease, LeaseLost, renew_lease, run_heartbeat
from services.jobs.outbox import RECENT_WINDOW
from services.jobs.transitions import claim_job, hand_back_job
from storage.resources import Resources
from workers.context import WorkerContext
from workers.held_work import WorkItem
from workers.job_failures import record_failure

log = get_logger(__name__)


# If a turn hasn't ended this long after its deadline, SIGKILL ends the process.
KILL_AFTER_SECONDS = 15.0
# The jobs that stay in a process. Each of them may keep a file and a set of addresses open.
MAX_STAYING_JOBS = 4
_HAS_ENDED = True


class JobAttempt:
    """A claimed job, for one turn or several turns. Its lease is renewed until ``close``."""

    def __init__(self, context: WorkerContext, lease: Lease, *, has_own_limits: bool) -> None:
        """Start the heartbeat.

        Args:
            has_own_limits: whether each turn has its own deadline, because a task has many turns.
        """
        self.lease = lease
        self._context = context
        self._has_own_limits = has_own_limits
        self._item: WorkItem | None = None
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
        """Requeue the job, so that another worker continues it."""
        with suppress(LeaseLost, SQLAlchemyError), self._context.resources.unit_of_work() as uow:
            hand_back_job(uow, self.lease)
            log.info("job.handed_back", job_id=self.lease.job_id)

    def take_turn(self) -> bool:
        """Run one turn; return whether the next turn must run in this process."""
        kind = get_kind(self.lease.kind)
        began_at = time.monotonic()
        seconds = kind.deadline_seconds
        self._item = WorkItem(began_at + seconds, self.hand_back)
        log_context = {
            "job_id": self.lease.job_id,
            "kind": self.lease.kind,
            "attempt": self.lease.attempt,
            "request_id": self.lease.request_id,
        }
        attributes: SpanAttributes = {
            "pressroom.job.id": self.lease.job_id,
            "pressroom.job.kind": kind.name,
            "pressroom.job.attempt": self.lease.attempt,
        }
        try:
            with (
                structlog.contextvars.bound_contextvars(**log_context),
                spans.work_span(f"job {kind.name}", self.lease.traceparent, attributes),
                self._context.held.holding(self._item),
                _alarm(seconds if self._has_own_limits else 0),
            ):
                return self._do_work()
        finally:
            self._item = None
            seconds_taken = time.monotonic() - began_at
            work_metrics.running_histogram(kind.queue, kind.name).observe(seconds_taken)

    def _do_work(self) -> bool:
        try:
            try:
                self.lease.check_cancelled()
                stays = self._continue_work()
            except Exception as error:  # noqa: BLE001 - every failure is recorded in the job
                spans.note_failure(error)
                record_failure(self._context.resources, self.lease, error)
                stays = False
        except LeaseLost:
            log.warning("job.lease_lost")
            return False
        if not stays:
            log.info("job.ended")
        return stays

    def _continue_work(self) -> bool:
        if self._turns is None:
            self._turns = get_kind(self.lease.kind).run(self._context.resources, self.lease)
        return self._turns is not None and not next(self._turns, _HAS_ENDED)

    def _renew(self) -> None:
        item = self._item
        if item is None or not item.is_overdue:
            with self._context.resources.unit_of_work() as uow:
                renew_lease(uow, self.lease)
            return
        # The lease expires, and the sweep requeues the job.
        log.error("job.overdue", job_id=self.lease.job_id, kind=self.lease.kind)
        if not self._has_own_limits:
            raise LeaseLost(self.lease.job_id)
        if time.monotonic() > item.deadline + KILL_AFTER_SECONDS:
            os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise ``SoftTimeLimitExceeded`` in the block after this time, or never if it is 0.

    Only the main thread of a process can use this. In a process pool, jobs run in the main thread.
    """
    if not seconds:
        yield
        return

    def raise_too_slow(*_: object) -> None:
        raise SoftTimeLimitExceeded

    previous_handler = signal.signal(signal.SIGALRM, raise_too_slow)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous_handler)


class TaskFailed(Exception):
    """The work of a task failed. Its argument is the code of the error.

    The row of the job already has the error. This exception makes Flower show a failure.
    """


def run_job(context: WorkerContext, *, job_id: int) -> None:
    """Run the job. If its message is delivered twice, the second claim fails.

    Raises ``TaskFailed`` or Celery's ``Retry`` if the work failed, so that Flower shows it. Celery
    doesn't requeue anything: the row of the job does that.
    """
    with context.resources.unit_of_work() as uow:
        lease = claim_job(uow, job_id)
    if lease is None:
        log.debug("job.not_claimed", job_id=job_id)
        return
    jobs = _StayingJobs(context, get_kind(lease.kind))
    began_at = time.monotonic()
    with closing(jobs):
        try:
            jobs.run(lease)
        except SystemExit:
            # The pool ends a process when the worker's grace is over, or when the task exceeded its
            # hard time limit. Only an exceeded limit counts as a crash.
            if time.monotonic() - began_at < current_task.time_limit:
                jobs.hand_back()
            raise
    if lease.failed_by is not None:
        raise TaskFailed(lease.failed_by)
    if lease.is_retried:
        raise Retry("The job is queued again, for later.")


# Optimization: import jobs that stay in their worker process (decision 17).
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
                Job.send_after > func.now() - RECENT_WINDOW,
                Job.run_at <= func.now(),
                Job.kind.in_([kind.name for kind in list_kinds()]),
            )
            .order_by(Job.send_after)
            .limit(1)
        )
        with resources.unit_of_work() as uow:
            job_id = uow.session.scalar(waiting)
            return None if job_id is None else claim_job(uow, job_id)
