"""A worker's hold on a job.

A claim is one compare-and-set that counts ``attempt`` up and takes a lease of five seconds, renewed
each second while the work goes on. A worker that dies stops renewing, and the sweep queues the job
again. Every later write of a worker checks ``attempt``: a worker that lost its lease (by a long
pause, or a cut connection) finds no row to write to, ``LeaseLost`` rolls its transaction back, and
the work of its successor stands. (``attempt`` is a fencing token: M. Kleppmann, "How to do
distributed locking", 2016.)
"""

import threading
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, func, update

from core.errors import DomainError
from core.refusals.jobs import JOB_CANCELLED
from models import Job, JobStatus
from services.events.plan_refusals import is_plan_refusal, record_refusal
from services.jobs import outbox
from services.jobs.transitions import lease_end, requeue, transition
from storage.unit_of_work import UnitOfWork

RENEW_EVERY_SECONDS = 1.0
MAX_CRASHES = 3
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
        Job.status == JobStatus.QUEUED,
        Job.run_at <= func.now(),
        to=JobStatus.RUNNING,
        attempt=Job.attempt + 1,
        started_at=func.coalesce(Job.started_at, func.now()),
    )
    if job is None:
        return None
    outbox.send_next(uow, job)
    lease = Lease(
        job_id=job.id,
        attempt=job.attempt,
        crashes=job.crashes,
        retries=job.retries,
        kind=job.kind,
        user_id=job.user_id,
        subject_id=job.subject_id,
        request_id=job.request_id,
    )
    if job.cancel_requested:
        # The owner cancelled an earlier attempt, which handed the job back before it noticed.
        lease.cancelled.set()
    return lease


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
    # This transaction's lock on the row keeps the heartbeat out until it commits.
    _change(uow, lease, JobStatus.RUNNING, **values)
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
    return (Job.id == lease.job_id, Job.attempt == lease.attempt, Job.status == JobStatus.RUNNING)


def _change(uow: UnitOfWork, lease: Lease, to: JobStatus, **changes: Any) -> None:
    if transition(uow, *held(lease), to=to, **changes) is None:
        raise LeaseLost(lease.job_id)
