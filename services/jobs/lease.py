"""A worker's hold on a job.

A claim is one compare-and-set that counts ``attempt`` up and takes a lease of five seconds, renewed
each second while the work goes on. A worker that dies stops renewing, and the sweep queues the job
again. Every later write of a worker checks ``attempt``: a worker that lost its lease (by a long
pause, or a cut connection) finds no row to write to, ``LeaseLost`` rolls its transaction back, and
the work of its successor stands. (``attempt`` is a fencing token: M. Kleppmann, "How to do
distributed locking", 2016.)

A job may leave its work to other jobs, its helpers. It runs then though no worker holds it, and its
attempt fences the writes of all its helpers together.
"""

import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, func, select, update

from core.counters import job_metrics
from core.errors import DomainError
from core.refusals.jobs import JOB_CANCELLED
from models import Job, JobStatus
from services.events.plan_refusals import is_plan_refusal, record_refusal
from services.jobs import outbox
from services.jobs.kinds import kind_named
from services.jobs.transitions import has_status, lease_end, requeue, transition
from storage.unit_of_work import UnitOfWork

RENEW_EVERY_SECONDS = 1.0
MAX_CRASHES = 3
# The end of the lease of a job that was left to helpers: it never runs out.
LEFT_TO_HELPERS = datetime(9999, 1, 1, tzinfo=UTC)
# The columns of a job that does not fail.
WORKS = {"retries": 0, "failing_since": None, "last_reason": None}


class LeaseLost(Exception):
    """Another attempt holds the job, or the job has ended: this attempt may write nothing."""


class JobCancelled(Exception):
    """The job's owner cancelled it."""


@dataclass
class Lease:
    job_id: int
    attempt: int
    crashes: int
    retries: int
    kind: str
    user_id: int | None
    subject_id: int | None
    request_id: str | None
    traceparent: str | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)

    def check_cancelled(self) -> None:
        """Raises ``JobCancelled``; long work calls it between steps."""
        if self.cancelled.is_set():
            raise JobCancelled


def claim(uow: UnitOfWork, job_id: int) -> Lease | None:
    """Claim a queued job; ``None`` when it is held, finished, deleted or not due yet."""
    job = transition(
        uow,
        Job.id == job_id,
        has_status(JobStatus.QUEUED),
        Job.run_at <= func.now(),
        to=JobStatus.RUNNING,
        attempt=Job.attempt + 1,
        started_at=func.coalesce(Job.started_at, func.now()),
    )
    if job is None:
        return None
    outbox.send_next(uow, job)
    uow.after_commit(partial(job_metrics.count_claim, job.lane, job.kind, waited=_waited(job)))
    return _lease_of(job)


def _waited(job: Job) -> float | None:
    """For how many seconds it was due before its first claim; ``None`` at any other claim."""
    if job.attempt > 1 or job.started_at is None:
        return None
    return (job.started_at - job.run_at).total_seconds()


def _lease_of(job: Job) -> Lease:
    lease = Lease(
        job_id=job.id,
        attempt=job.attempt,
        crashes=job.crashes,
        retries=job.retries,
        kind=job.kind,
        user_id=job.user_id,
        subject_id=job.subject_id,
        request_id=job.request_id,
        traceparent=job.traceparent,
    )
    if job.cancel_requested:
        # The owner cancelled an earlier attempt, which handed the job back before it noticed.
        lease.cancelled.set()
    return lease


def leave_to_helpers(uow: UnitOfWork, lease: Lease) -> None:
    """Let other jobs do the rest, in the transaction that writes the first; raises ``LeaseLost``.

    The job goes on running. Its helpers have to see that it ends: none ends before it but one that
    leaves another behind.
    """
    changes: dict[str, Any] = {"attempt": Job.attempt + 1, "crashes": 0, **WORKS}
    left = transition(uow, *held(lease), lease_expires_at=LEFT_TO_HELPERS, **changes)
    if left is None:
        raise LeaseLost(lease.job_id)


def shared_by_helpers(uow: UnitOfWork, job_id: int | None) -> Lease | None:
    """The hold of its helpers on a job, for this one alone until its transaction ends.

    ``None`` when the job was not left to helpers, or has ended. A helper locks its own row before.
    """
    left = has_status(JobStatus.RUNNING), Job.lease_expires_at == LEFT_TO_HELPERS
    query = select(Job).where(Job.id == job_id, *left).with_for_update()
    job = uow.session.scalar(query.execution_options(populate_existing=True))
    return None if job is None else _lease_of(job)


def renew(uow: UnitOfWork, lease: Lease) -> None:
    """Extend the lease to five seconds from now; raises ``LeaseLost``."""
    statement = (
        update(Job)
        .where(*held(lease))
        .values(lease_expires_at=lease_end())
        .returning(Job.cancel_requested)
    )
    cancel_requested = uow.session.scalar(statement)
    if cancel_requested is None:
        raise LeaseLost(lease.job_id)
    if cancel_requested:
        lease.cancelled.set()


def progress(uow: UnitOfWork, lease: Lease, *, done: int, total: int | None = None) -> None:
    """Write progress in the transaction of the work itself; raises ``LeaseLost``.

    A job that makes progress is no poison job, and does not fail: both count anew from here.
    """
    values: dict[str, Any] = {"progress_done": done, "crashes": 0, **WORKS}
    if total is not None:
        values["progress_total"] = total
    # The lease of a job that was left to helpers ends later.
    values["lease_expires_at"] = func.greatest(Job.lease_expires_at, lease_end())
    # This transaction's lock on the row keeps the heartbeat out until it commits.
    if transition(uow, *held(lease), **values) is None:
        raise LeaseLost(lease.job_id)
    lease.crashes = lease.retries = 0


def succeed(uow: UnitOfWork, lease: Lease, result: dict[str, Any]) -> None:
    """Mark the job as succeeded, in the transaction of its effect; raises ``LeaseLost``."""
    _change(uow, lease, JobStatus.SUCCEEDED, result=result, **WORKS)


def fail(uow: UnitOfWork, lease: Lease, error: DomainError) -> None:
    """End the job and its subject with a reason; raises ``LeaseLost``.

    A caller who waits for the job is refused by the error's kind.
    """
    _change(uow, lease, JobStatus.FAILED, error=error)
    if lease.user_id is not None and is_plan_refusal(error.code):
        record_refusal(uow, lease.user_id, error.code)


def cancel(uow: UnitOfWork, lease: Lease) -> None:
    """End the job and its subject as its owner asked; raises ``LeaseLost``."""
    _change(uow, lease, JobStatus.CANCELLED, error=JOB_CANCELLED())


def retry_later(uow: UnitOfWork, lease: Lease, delay: timedelta, reason: str) -> None:
    """Queue the job again, due after ``delay``; raises ``LeaseLost``."""
    due = func.now() + delay
    again = {
        "run_at": due,
        "send_after": due,
        "sends": 0,
        "retries": Job.retries + 1,
        "failing_since": func.coalesce(Job.failing_since, func.now()),
        "last_reason": reason,
    }
    _change(uow, lease, JobStatus.QUEUED, **again)
    lane = kind_named(lease.kind).lane
    uow.after_commit(partial(job_metrics.count_retry, lane, lease.kind))


def crash(uow: UnitOfWork, lease: Lease, error: DomainError) -> None:
    """Count an attempt as a crash: the job is queued again, or fails for ``error`` at the third.

    Raises ``LeaseLost``.
    """
    crashes = lease.crashes + 1
    if crashes >= MAX_CRASHES:
        _change(uow, lease, JobStatus.FAILED, error=error, crashes=crashes)
    elif requeue(uow, *held(lease), crashes=crashes) is None:
        raise LeaseLost(lease.job_id)


def hand_back(uow: UnitOfWork, lease: Lease) -> None:
    """Queue the job for another worker at once, since this worker is shutting down."""
    if requeue(uow, *held(lease)) is None:
        raise LeaseLost(lease.job_id)


def yield_turn(uow: UnitOfWork, lease: Lease) -> None:
    """Queue the job at the end of its lane and behind its owner's others: long jobs take turns."""
    hand_back(uow, lease)


def held(lease: Lease) -> tuple[ColumnElement[bool], ...]:
    return (Job.id == lease.job_id, Job.attempt == lease.attempt, has_status(JobStatus.RUNNING))


def _change(uow: UnitOfWork, lease: Lease, to: JobStatus, **changes: Any) -> None:
    if transition(uow, *held(lease), to=to, **changes) is None:
        raise LeaseLost(lease.job_id)
