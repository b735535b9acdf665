"""The only module that changes a job's status, with all that each change brings.

A change is one UPDATE with a fence (the attempt of a lease, or the id of a locked row): of two
changes that race, one writes and the other finds no row.
"""

from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, delete, func, update

from core.counters import job_metrics
from core.errors import DomainError
from models import FINISHED, IdempotencyRecord, Job, JobStatus
from services.jobs.kinds import kind_named
from services.jobs.outbox import in_turn, send_in_turn
from storage.redis.notifications import job_topic
from storage.unit_of_work import UnitOfWork

LEASE = timedelta(seconds=5)


def transition(
    uow: UnitOfWork,
    *fence: ColumnElement[bool],
    to: JobStatus | None = None,
    error: DomainError | None = None,
    ends_subject: bool = True,
    **changes: Any,
) -> Job | None:
    """Change the job that fits the fence, in one statement; ``None`` when no job fits.

    The process that asked for the job is notified after the commit. When a job fails or is
    cancelled, for the reason ``error``, its subject ends (unless ``ends_subject`` is false) and its
    idempotency key is freed in the same transaction. Without ``to`` the status and the columns that
    depend on it stay; ``changes`` are other columns.
    """
    if to is not None:
        changes["status"] = to
        changes["lease_expires_at"] = lease_end() if to == JobStatus.RUNNING else None
        changes["finished_at"] = func.now() if to in FINISHED else None
        changes["error"] = error and _stored(error)
    statement = (
        update(Job)
        .where(*fence)
        .values(**changes, version=Job.version + 1)
        .returning(Job)
        .execution_options(populate_existing=True)
    )
    job = uow.session.scalar(statement)
    if job is None:
        return None
    uow.after_commit(lambda: uow.notifier.tell(job.waiter, job_topic(job.id), job.status))
    if to in FINISHED:
        code = error.code if to == JobStatus.FAILED and error else None
        uow.after_commit(partial(job_metrics.count_end, job.lane, job.kind, to, code))
    if to in (JobStatus.FAILED, JobStatus.CANCELLED):
        on_abandoned = kind_named(job.kind).on_abandoned
        if on_abandoned is not None and ends_subject:
            on_abandoned(uow, job)
        uow.session.execute(delete(IdempotencyRecord).where(IdempotencyRecord.job_id == job.id))
    return job


def _stored(error: DomainError) -> dict[str, Any]:
    stored: dict[str, Any] = {"kind": error.kind, "code": error.code, "message": error.message}
    return {**stored, "facts": dict(error.facts)} if error.facts else stored


def requeue(uow: UnitOfWork, *fence: ColumnElement[bool], **changes: Any) -> Job | None:
    """Queue the job again, after what its owner has in the lane; it is sent after the commit."""
    turn = in_turn(Job.lane, Job.on_behalf_of)
    job = transition(uow, *fence, to=JobStatus.QUEUED, **turn, **changes)
    if job is not None:
        send_in_turn(uow, job)
    return job


def has_status(status: JobStatus) -> ColumnElement[bool]:
    """Whether a job that is found by its id has this status.

    The planner does not know the value that is compared, and so finds the job by its id. It would
    take an index of all such jobs for empty, in which a long snapshot keeps those that ended since.
    """
    return Job.status == func.concat(status)


def lease_end() -> ColumnElement[datetime]:
    # Not now(), which is the transaction's start and may be seconds ago.
    return func.clock_timestamp() + LEASE
