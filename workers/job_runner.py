"""Runs jobs in a worker process.

Some jobs run in several turns. All turns of a job run in one process, because the job reads a file
from start to end. The ``run`` function of such a job is a generator that yields after each turn.
Between two turns of a job, the process runs a turn of the next queued job, which waits for at most
one turn. The running job keeps its files open between its turns.
"""

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from functools import partial

import structlog
from celery.exceptions import Retry
from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError

from core.counters import work_metrics
from core.errors import MachineBusy
from core.logging import get_logger
from core.telemetry import spans
from core.telemetry.attributes import SpanAttributes
from models import Job, JobStatus
from services.jobs.kinds import JobKind, get_kind, list_kinds
from services.jobs.lease import Lease, LeaseLost, renew_lease, run_heartbeat
from services.jobs.outbox import RECENT_WINDOW
from services.jobs.transitions import (
    MAX_SLOW_ATTEMPTS_IN_TURN,
    claim_job,
    forgive_crash,
    hand_back_job,
)
from storage.resources import Resources
from workers.canary_task import answer_canary
from workers.context import WorkerContext
from workers.in_flight_work import WorkItem
from workers.job_failures import record_failure
from workers.serving import Pool

log = get_logger(__name__)


# A pool process is killed if a turn exceeds its deadline by more than this time, because the turn
# doesn't react to the exception at its deadline.
KILL_AFTER_SECONDS = 15.0
# The maximum number of unfinished jobs in a process. Each unfinished job can hold a file open and
# keep e-mail addresses in memory.
MAX_STAYING_JOBS = 4
# The maximum number of additional jobs in a process that wait for other jobs and hold nothing.
_MAX_WAITING_JOBS = 12
# How often a process with ``_MAX_WAITING_JOBS`` claims a further job, which may be a short one. A
# further job that must wait too is requeued.
_CLAIM_EVERY_SECONDS = 2.0
# How long a process sleeps between two turns if all of its jobs are waiting.
_WAIT_SECONDS = 0.1
_HAS_ENDED = True


class JobAttempt:
    """A claimed job, whose lease is renewed until ``close`` is called."""

    def __init__(
        self, context: WorkerContext, lease: Lease, *, before_kill: Callable[[], None]
    ) -> None:
        """Start the heartbeat.

        ``before_kill`` is called before this process kills itself because a turn is overdue.
        """
        self.lease = lease
        self._context = context
        self._before_kill = before_kill
        self._is_in_main_thread = context.serves.pool is Pool.PREFORK
        self._item: WorkItem | None = None
        self._turns: Generator[None, None, None] | None = None
        self._heart = ExitStack()
        self._heart.enter_context(run_heartbeat(self._renew))

    def close(self) -> None:
        """Stop renewing the lease, and close the files that the job keeps open between turns."""
        try:
            if self._turns is not None:
                self._turns.close()
        finally:
            self._heart.close()

    def hand_back(self) -> None:
        with suppress(LeaseLost, SQLAlchemyError), self._context.resources.unit_of_work() as uow:
            hand_back_job(uow, self.lease)
            log.info("job.handed_back", job_id=self.lease.job_id)

    def take_turn(self) -> bool:
        """Run one turn, and return whether this process must run the next one."""
        kind = get_kind(self.lease.kind)
        started_at = time.monotonic()
        item = WorkItem(started_at + kind.deadline_seconds, self.hand_back)
        self._item = item
        self.lease.on_progress = partial(_renew_deadline, item, kind)
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
                self._context.in_flight_work.track(item),
                _interrupt_if_overdue(item) if self._is_in_main_thread else nullcontext(),
            ):
                return self._do_work()
        finally:
            self._item = None
            seconds_taken = time.monotonic() - started_at
            if not self.lease.is_waiting:
                work_metrics.running_histogram(kind.queue, kind.name).observe(seconds_taken)

    def _do_work(self) -> bool:
        try:
            try:
                self.lease.check_cancelled()
                stays = self._continue_work()
            except Exception as error:  # noqa: BLE001 - the job records every failure
                spans.note_failure(error)
                record_failure(self._context.resources, self.lease, error)
                stays = False
        except LeaseLost:
            log.warning("job.lease_lost")
            self._show_alive()
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
        # A pool process first gives an overdue turn the chance to react to the exception.
        grace_seconds = KILL_AFTER_SECONDS if self._is_in_main_thread else 0.0
        if item is not None and item.seconds_left < -grace_seconds:
            self._abandon_turn()
        try:
            with self._context.resources.unit_of_work() as uow:
                renew_lease(uow, self.lease)
        except LeaseLost:
            self._show_alive()
            raise

    def _abandon_turn(self) -> None:
        """Requeue the job of an overdue turn.

        Nothing can interrupt the turn, so a pool process also kills itself. A thread ends only with
        its process (``stopping``).
        """
        log.error("job.overdue", job_id=self.lease.job_id, kind=self.lease.kind)
        try:
            record_failure(self._context.resources, self.lease, MachineBusy())
        finally:
            if self._is_in_main_thread:
                self._before_kill()
                os.kill(os.getpid(), signal.SIGKILL)

    def _show_alive(self) -> None:
        with suppress(SQLAlchemyError), self._context.resources.unit_of_work() as uow:
            forgive_crash(uow, self.lease)


def _renew_deadline(item: WorkItem, kind: JobKind) -> None:
    item.deadline = time.monotonic() + kind.deadline_seconds


@contextmanager
def _interrupt_if_overdue(item: WorkItem) -> Iterator[None]:
    """Raise ``MachineBusy`` in the block when the work becomes overdue.

    The timer works only in the main thread, which runs the jobs of a pool process.
    """

    def check(*_: object) -> None:
        seconds = item.seconds_left
        if seconds <= 0:
            raise MachineBusy
        # The work has made progress, which has renewed its deadline.
        signal.setitimer(signal.ITIMER_REAL, seconds)

    previous_handler = signal.signal(signal.SIGALRM, check)
    signal.setitimer(signal.ITIMER_REAL, item.seconds_left)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous_handler)


class TaskFailed(Exception):
    """The job of a Celery task has failed. The message is the error code, which Flower shows."""


def run_job(context: WorkerContext, *, job_id: int) -> None:
    """Run a job, unless another worker has claimed it.

    Raises ``TaskFailed`` or Celery's ``Retry`` if the job fails, so that Flower shows the failure.
    Celery doesn't retry the task, because the job's row controls retries.
    """
    with context.resources.unit_of_work() as uow:
        lease = claim_job(uow, job_id)
    if lease is None:
        log.debug("job.not_claimed", job_id=job_id)
        return
    jobs = _StayingJobs(context, get_kind(lease.kind))
    with closing(jobs):
        try:
            jobs.run(lease)
        except SystemExit:
            # The pool ends a process when a stopping worker's grace period is over, or when a task
            # exceeds its hard time limit. Neither counts as a crash of the job.
            jobs.hand_back()
            raise
    if lease.failed_by is not None:
        raise TaskFailed(lease.failed_by)
    if lease.is_retried:
        raise Retry("The job is queued again, for later.")


# Optimization: import jobs that stay in their worker process (decision 17).
class _StayingJobs:
    """The jobs that take turns in a worker process.

    ``max_stay_seconds`` of the first job's kind limits the total time of all jobs. The process
    claims a second job only if the first job needs more than one turn.
    """

    def __init__(self, context: WorkerContext, kind: JobKind) -> None:
        self._context = context
        self._first_kind = kind
        self._deadline = time.monotonic() + kind.max_stay_seconds
        self._claimed_at = 0.0
        self._attempts: deque[JobAttempt] = deque()

    def run(self, lease: Lease) -> None:
        self._add(lease)
        while self._attempts:
            attempt = self._attempts[0]
            stays = attempt.take_turn()
            if stays and self._may_stay(attempt):
                self._attempts.rotate(-1)
            else:
                self._attempts.popleft()
                if stays:
                    attempt.hand_back()
                attempt.close()
                if stays:
                    # Don't claim a job right after requeuing one, because it could be the same job.
                    continue
            if self._attempts and all(each.lease.is_waiting for each in self._attempts):
                time.sleep(_WAIT_SECONDS)
            if self._may_claim() and (next_lease := self._claim_next()) is not None:
                self._add(next_lease)

    def hand_back(self) -> None:
        for attempt in self._attempts:
            attempt.hand_back()

    def close(self) -> None:
        with ExitStack() as closing_all:
            for attempt in self._attempts:
                closing_all.callback(attempt.close)

    def _may_claim(self) -> bool:
        waiting = sum(attempt.lease.is_waiting for attempt in self._attempts)
        if not self._attempts or (
            waiting >= _MAX_WAITING_JOBS
            and time.monotonic() < self._claimed_at + _CLAIM_EVERY_SECONDS
        ):
            return False
        self._claimed_at = time.monotonic()
        return True

    def _may_stay(self, attempt: JobAttempt) -> bool:
        """Return whether the job that has just run can take another turn in this process.

        A new job never replaces a job that already runs here, because that job would have to start
        again from the beginning of its file.
        """
        is_waiting = attempt.lease.is_waiting
        similar = sum(each.lease.is_waiting == is_waiting for each in self._attempts)
        max_jobs = _MAX_WAITING_JOBS if is_waiting else MAX_STAYING_JOBS
        return similar <= max_jobs and time.monotonic() < self._deadline

    def _add(self, lease: Lease) -> None:
        """Let a new job go first, because all jobs that already run have had at least one turn."""
        attempt = JobAttempt(self._context, lease, before_kill=self.hand_back)
        self._attempts.appendleft(attempt)

    def _claim_next(self) -> Lease | None:
        resources: Resources = self._context.resources
        answer_canary(resources, self._first_kind.queue)
        next_job = (
            select(Job.id)
            .where(
                Job.status == JobStatus.QUEUED,
                Job.queue == self._first_kind.queue,
                Job.sends > 0,
                # The sweep keeps ``send_after`` of all sent jobs within ``RECENT_WINDOW``.
                Job.send_after > func.now() - RECENT_WINDOW,
                Job.run_at <= func.now(),
                # A slow job isn't claimed while another job waits, even if it is the first one.
                Job.slow_attempts < MAX_SLOW_ATTEMPTS_IN_TURN,
                Job.kind.in_([kind.name for kind in list_kinds()]),
            )
            .order_by(Job.send_after)
            .limit(1)
        )
        with resources.unit_of_work() as uow:
            job_id = uow.session.scalar(next_job)
            return None if job_id is None else claim_job(uow, job_id)
