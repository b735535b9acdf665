"""The status changes of a job.

Each change is one UPDATE with a fence: the attempt of a lease, or the id of a row that is locked.
Of two changes that race, one writes and the other finds no row.

A job can leave its remaining work to helper jobs. It stays running although no worker holds it, and
its attempt fences the writes of all its helpers.
"""

from datetime import UTC, datetime
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, delete, func, select, update

from core.counters import work_metrics
from core.errors import DomainError
from core.errors.jobs import JOB_CANCELLED
from models import FINISHED, IdempotencyRecord, Job, JobStatus
from services.jobs import outbox
from services.jobs.kinds import kind_named
from services.jobs.lease import Lease, LeaseLost, has_status, held, lease_end
from services.jobs.outbox import in_turn, send_in_turn
from services.security_events import is_plan_error, record_error
from storage.redis.notifications import job_topic
from storage.unit_of_work import UnitOfWork

# The columns of a job that does not fail.
WORKS = {"retries": 0, "failing_since": None, "last_reason": None}


def claim(uow: UnitOfWork, job_id: int) -> Lease | None:
    """Claim a queued job; ``None`` when it is held, finished, deleted or not due yet."""
    due = Job.id == job_id, has_status(JobStatus.QUEUED), Job.run_at <= func.now()
    started_at = func.coalesce(Job.started_at, func.now())
    running, attempt = JobStatus.RUNNING, Job.attempt + 1
    job = transition(uow, *due, to=running, attempt=attempt, started_at=started_at)
    if job is None:
        return None
    outbox.send_next(uow, job)
    # For how many seconds it was due before its first claim.
    waited = None
    if job.attempt <= 1 and job.started_at is not None:
        waited = (job.started_at - job.run_at).total_seconds()
    uow.after_commit(partial(work_metrics.count_claim, job.queue, job.kind, waited=waited))
    return Lease.of_job(job)


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
    change(uow, lease, **values)
    lease.crashes = lease.retries = 0


def expect(uow: UnitOfWork, lease: Lease, *, total: int | None) -> None:
    """Write how much there is to do, which is no progress; raises ``LeaseLost``."""
    change(uow, lease, progress_total=total)


def succeed(uow: UnitOfWork, lease: Lease, result: dict[str, Any]) -> None:
    """Mark the job as succeeded, in the transaction of its effect; raises ``LeaseLost``."""
    change(uow, lease, JobStatus.SUCCEEDED, result=result, **WORKS)


def fail(uow: UnitOfWork, lease: Lease, error: DomainError) -> None:
    """End the job and its subject with a reason; raises ``LeaseLost``.

    A caller who waits for the job is refused by the error's kind.
    """
    change(uow, lease, JobStatus.FAILED, error=error)
    lease.failed_by = error.code
    if lease.user_id is not None and is_plan_error(error.code):
        record_error(uow, lease.user_id, error.code)


def cancel(uow: UnitOfWork, lease: Lease) -> None:
    """End the job and its subject as its owner asked; raises ``LeaseLost``."""
    change(uow, lease, JobStatus.CANCELLED, error=JOB_CANCELLED())


def hand_back(uow: UnitOfWork, lease: Lease, **changes: Any) -> None:
    """Queue the job at the end of its queue and behind its owner's others; raises ``LeaseLost``.

    Long jobs take turns by it, and a worker that shuts down leaves the job to another one.
    """
    if requeue(uow, *held(lease), **changes) is None:
        raise LeaseLost(lease.job_id)


# The end of the lease of a job that was left to helpers: it never runs out.
LEFT_TO_HELPERS = datetime(9999, 1, 1, tzinfo=UTC)


def leave_to_helpers(uow: UnitOfWork, lease: Lease) -> None:
    """Let other jobs do the rest, in the transaction that writes the first; raises ``LeaseLost``.

    The job goes on running. Its helpers have to see that it ends: none ends before it but one that
    leaves another behind.
    """
    changes: dict[str, Any] = {"attempt": Job.attempt + 1, "crashes": 0, **WORKS}
    change(uow, lease, lease_expires_at=LEFT_TO_HELPERS, **changes)


def shared_by_helpers(uow: UnitOfWork, job_id: int | None) -> Lease | None:
    """The hold of its helpers on a job, for this one alone until its transaction ends.

    ``None`` when the job was not left to helpers, or has ended. A helper locks its own row before.
    """
    left = has_status(JobStatus.RUNNING), Job.lease_expires_at == LEFT_TO_HELPERS
    query = select(Job).where(Job.id == job_id, *left).with_for_update()
    job = uow.session.scalar(query.execution_options(populate_existing=True))
    return None if job is None else Lease.of_job(job)


def change(uow: UnitOfWork, lease: Lease, to: JobStatus | None = None, **changes: Any) -> None:
    if transition(uow, *held(lease), to=to, **changes) is None:
        raise LeaseLost(lease.job_id)


def requeue(uow: UnitOfWork, *fence: ColumnElement[bool], **changes: Any) -> Job | None:
    """Queue the job again, after what its owner has in the queue; it is sent after the commit."""
    turn = in_turn(Job.queue, Job.on_behalf_of)
    job = transition(uow, *fence, to=JobStatus.QUEUED, **turn, **changes)
    if job is not None:
        send_in_turn(uow, job)
    return job


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
        changes["error"] = None
        if error is not None:
            facts = {"facts": dict(error.facts)} if error.facts else {}
            stored = {"kind": error.kind, "code": error.code, "message": error.message}
            changes["error"] = stored | facts
    statement = update(Job).where(*fence).values(**changes, version=Job.version + 1)
    again = {"populate_existing": True}
    job: Job | None = uow.session.scalar(statement.returning(Job), execution_options=again)
    if job is None:
        return None
    uow.after_commit(lambda: uow.notifier.tell(job.waiter, job_topic(job.id), job.status))
    if to in FINISHED:
        code = error.code if to == JobStatus.FAILED and error else None
        uow.after_commit(partial(work_metrics.count_end, job.queue, job.kind, to, code))
    if to in (JobStatus.FAILED, JobStatus.CANCELLED):
        on_abandoned = kind_named(job.kind).on_abandoned
        if on_abandoned is not None and ends_subject:
            on_abandoned(uow, job)
        uow.session.execute(delete(IdempotencyRecord).where(IdempotencyRecord.job_id == job.id))
    return job
