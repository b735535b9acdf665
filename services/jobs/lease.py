"""A worker's hold on a job.

A claim is one compare-and-set that counts ``attempt`` up and takes a lease of five seconds, renewed
each second while the work goes on. A worker that dies stops renewing, and the sweep queues the job
again. Whatever a claimant writes later checks ``attempt``: one that lost its lease (a long pause, a
cut connection) finds nothing to write to, ``LeaseLost`` rolls its transaction back, and the work of
its successor stands. (A fencing token, as in M. Kleppmann, "How to do distributed locking", 2016.)
"""

import threading
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, delete, func, update

from models import IdempotencyRecord, Job, JobStatus
from services.jobs.kinds import kind_named
from services.jobs.outbox import FIRST_RESEND, send
from storage.redis.notifications import job_topic
from storage.unit_of_work import UnitOfWork

LEASE = timedelta(seconds=5)
RENEW_EVERY_SECONDS = 1.0


class LeaseLost(Exception):
    """Another attempt holds the job, or it has ended: nothing may be written for this one."""


class JobCancelled(Exception):
    """The job's owner asked for its end."""


@dataclass
class Lease:
    job_id: int
    attempt: int
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
    """Take a queued job, or ``None``: it is held, finished, gone or not due yet."""
    statement = (
        update(Job)
        .where(Job.id == job_id, Job.status == JobStatus.QUEUED, Job.run_at <= func.now())
        .values(
            status=JobStatus.RUNNING,
            attempt=Job.attempt + 1,
            lease_expires_at=func.now() + LEASE,
            started_at=func.coalesce(Job.started_at, func.now()),
            version=Job.version + 1,
        )
        .returning(Job)
    )
    job = uow.session.scalar(statement)
    if job is None:
        return None
    notify_after_commit(uow, job)
    lease = Lease(
        job_id=job.id,
        attempt=job.attempt,
        retries=job.retries,
        kind=job.kind,
        user_id=job.user_id,
        subject_id=job.subject_id,
        request_id=job.request_id,
    )
    if job.cancel_requested:
        # Asked for while an earlier attempt ran, which gave the job back before it noticed.
        lease.cancelled.set()
    return lease


def renew(uow: UnitOfWork, lease: Lease) -> None:
    """Hold on for another five seconds; raises ``LeaseLost``."""
    statement = (
        update(Job)
        .where(*_held(lease))
        .values(lease_expires_at=_from_now())
        .returning(Job.cancel_requested)
    )
    cancel_requested = uow.session.scalar(statement)
    if cancel_requested is None:
        raise LeaseLost(lease.job_id)
    if cancel_requested:
        lease.cancelled.set()


def progress(uow: UnitOfWork, lease: Lease, *, done: int, total: int | None = None) -> None:
    """Note progress in the transaction of the work itself; raises ``LeaseLost``.

    A job that gets on is no poison, however often its worker is killed: crashes count from here.
    """
    values: dict[str, Any] = {"progress_done": done, "crashes": 0, "retries": 0}
    if total is not None:
        values["progress_total"] = total
    # This transaction's lock on the row keeps the heartbeat out until it commits.
    _write(uow, lease, values | {"lease_expires_at": _from_now()})
    lease.retries = 0


def succeed(uow: UnitOfWork, lease: Lease, result: dict[str, Any]) -> None:
    """End the job well, in the transaction of its effect; raises ``LeaseLost``."""
    _write(uow, lease, _ended(JobStatus.SUCCEEDED) | {"result": result})


def fail(uow: UnitOfWork, lease: Lease, *, code: str, message: str) -> None:
    """End the job and its subject with a reason; raises ``LeaseLost``."""
    job = _write(
        uow, lease, _ended(JobStatus.FAILED) | {"error": {"code": code, "message": message}}
    )
    abandon(uow, job)


def cancel(uow: UnitOfWork, lease: Lease) -> None:
    job = _write(uow, lease, _ended(JobStatus.CANCELLED) | {"error": JOB_CANCELLED})
    abandon(uow, job)


JOB_CANCELLED = {"code": "job.cancelled", "message": "The job was cancelled."}


def retry_later(uow: UnitOfWork, lease: Lease, delay: timedelta) -> None:
    """Give the job back, to be claimed again after ``delay``; raises ``LeaseLost``."""
    due = func.now() + delay
    _write(
        uow,
        lease,
        requeue_values() | {"run_at": due, "send_after": due, "retries": Job.retries + 1},
    )


def hand_back(uow: UnitOfWork, lease: Lease) -> None:
    """Give the job to another worker at once, since this one is being shut down."""
    job = _write(uow, lease, requeue_values() | {"send_after": func.now() + FIRST_RESEND})
    uow.after_commit(lambda: send(uow.broker, job))


def yield_turn(uow: UnitOfWork, lease: Lease) -> None:
    """Put the job at the end of its lane again, so that long jobs take turns."""
    hand_back(uow, lease)


def abandon(uow: UnitOfWork, job: Job) -> None:
    """What ends with a job that did not succeed: its subject, and its idempotency key."""
    kind_named(job.kind).on_abandoned(uow, job)
    uow.session.execute(delete(IdempotencyRecord).where(IdempotencyRecord.job_id == job.id))


def requeue_values() -> dict[str, Any]:
    return {"status": JobStatus.QUEUED, "lease_expires_at": None, "sends": 1}


def notify_after_commit(uow: UnitOfWork, job: Job) -> None:
    """Tell whoever waits for the job or watches it what it has come to."""
    uow.after_commit(lambda: uow.notifier.tell(job_topic(job.id), job.status))


def _from_now() -> ColumnElement[datetime]:
    # The clock's time, since now() is that of the transaction's start, and may be seconds old.
    return func.clock_timestamp() + LEASE


def _ended(status: JobStatus) -> dict[str, Any]:
    return {"status": status, "lease_expires_at": None, "finished_at": func.now()}


def _held(lease: Lease) -> tuple[ColumnElement[bool], ...]:
    return (
        Job.id == lease.job_id,
        Job.attempt == lease.attempt,
        Job.status == JobStatus.RUNNING,
    )


def _write(uow: UnitOfWork, lease: Lease, values: dict[str, Any]) -> Job:
    statement = (
        update(Job)
        .where(*_held(lease))
        .values(**values, version=Job.version + 1)
        .returning(Job)
        .execution_options(populate_existing=True)
    )
    job = uow.session.scalar(statement)
    if job is None:
        raise LeaseLost(lease.job_id)
    notify_after_commit(uow, job)
    return job
