"""The status changes of a job.

Each change is one UPDATE with a fence: the attempt of a lease, or the id of a row that the
transaction has locked. If two changes race, one of them writes and the other finds no row.

A job can leave its remaining work to helper jobs. The job then stays running without a worker, and
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
from services.jobs.kinds import get_kind
from services.jobs.lease import Lease, LeaseLost, has_status, is_held_by, lease_end
from services.jobs.outbox import plan_turn, send_after_commit, send_next_job
from services.security_events import is_plan_error, record_error
from storage.redis.notifications import build_job_topic
from storage.unit_of_work import UnitOfWork

# The lease of a job that was left to helpers never expires.
LEFT_TO_HELPERS = datetime(9999, 1, 1, tzinfo=UTC)
# The values of the columns about failures while a job is not failing.
_NO_FAILURES = {"retries": 0, "failing_since": None, "last_reason": None}


def claim_job(uow: UnitOfWork, job_id: int) -> Lease | None:
    """Claim a queued job; ``None`` if the job is held, finished, deleted or not due yet."""
    job = change_job(
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
    send_next_job(uow, job)
    waited_seconds = None
    if job.attempt <= 1 and job.started_at is not None:
        waited_seconds = (job.started_at - job.run_at).total_seconds()
    uow.after_commit(partial(work_metrics.count_claim, job.queue, job.kind, waited=waited_seconds))
    return Lease.of_job(job)


def set_total(uow: UnitOfWork, lease: Lease, *, total: int | None) -> None:
    """Write how much work the job has, which doesn't count as progress; raises ``LeaseLost``."""
    change_held_job(uow, lease, progress_total=total)


def record_progress(uow: UnitOfWork, lease: Lease, *, done: int, total: int | None = None) -> None:
    """Write progress in the transaction of the work itself; raises ``LeaseLost``.

    Progress shows that the job works, so it resets the counts of crashes and retries.
    """
    changes: dict[str, Any] = {"progress_done": done, "crashes": 0, **_NO_FAILURES}
    if total is not None:
        changes["progress_total"] = total
    # The lease of a job that was left to helpers ends later than ``lease_end()``.
    changes["lease_expires_at"] = func.greatest(Job.lease_expires_at, lease_end())
    # The lock on the row keeps the heartbeat waiting until this transaction commits.
    change_held_job(uow, lease, **changes)
    lease.crashes = 0
    lease.retries = 0


def complete_job(uow: UnitOfWork, lease: Lease, result: dict[str, Any]) -> None:
    """Mark the job as succeeded, in the transaction that writes the job's changes.

    Raises ``LeaseLost``.
    """
    change_held_job(uow, lease, JobStatus.SUCCEEDED, result=result, **_NO_FAILURES)


def fail_job(uow: UnitOfWork, lease: Lease, error: DomainError) -> None:
    """Fail the job and end its subject; raises ``LeaseLost``.

    A caller who waits for the job receives ``error``.
    """
    change_held_job(uow, lease, JobStatus.FAILED, error=error)
    lease.failed_by = error.code
    if lease.user_id is not None and is_plan_error(error.code):
        record_error(uow, lease.user_id, error.code)


def cancel_job(uow: UnitOfWork, lease: Lease) -> None:
    """Cancel the job at its owner's request, and end its subject; raises ``LeaseLost``."""
    change_held_job(uow, lease, JobStatus.CANCELLED, error=JOB_CANCELLED())


def hand_back_job(uow: UnitOfWork, lease: Lease, **changes: Any) -> None:
    """Requeue the job behind its owner's other jobs; raises ``LeaseLost``.

    Long jobs hand themselves back after each turn, so that they alternate. A worker that shuts down
    hands its jobs back to other workers.
    """
    if requeue_job(uow, is_held_by(lease), **changes) is None:
        raise LeaseLost(lease.job_id)


def leave_to_helpers(uow: UnitOfWork, lease: Lease) -> None:
    """Leave the rest of the job to helpers; raises ``LeaseLost``.

    Call this in the transaction that enqueues the first helper. The job stays running, and its
    helpers must end it. A helper ends before the job only if it leaves another helper behind.
    """
    changes: dict[str, Any] = {"attempt": Job.attempt + 1, "crashes": 0, **_NO_FAILURES}
    change_held_job(uow, lease, lease_expires_at=LEFT_TO_HELPERS, **changes)


def lock_shared_lease(uow: UnitOfWork, job_id: int | None) -> Lease | None:
    """Lock a job that was left to helpers, and return the lease that its helpers share.

    ``None`` if the job was not left to helpers, or has ended. A helper must lock its own row first.
    """
    is_left = Job.lease_expires_at == LEFT_TO_HELPERS
    query = select(Job).where(Job.id == job_id, has_status(JobStatus.RUNNING), is_left)
    locked = query.with_for_update().execution_options(populate_existing=True)
    job = uow.session.scalar(locked)
    return None if job is None else Lease.of_job(job)


def change_held_job(
    uow: UnitOfWork, lease: Lease, to: JobStatus | None = None, **changes: Any
) -> None:
    """Change the job of a lease as ``change_job`` does; raises ``LeaseLost``."""
    if change_job(uow, is_held_by(lease), to=to, **changes) is None:
        raise LeaseLost(lease.job_id)


def requeue_job(uow: UnitOfWork, *fence: ColumnElement[bool], **changes: Any) -> Job | None:
    """Queue the job behind its owner's other jobs, and send it after the commit."""
    turn = plan_turn(Job.queue, Job.on_behalf_of)
    job = change_job(uow, *fence, to=JobStatus.QUEUED, **turn, **changes)
    if job is not None:
        send_after_commit(uow, job)
    return job


def restart_job(uow: UnitOfWork, *fence: ColumnElement[bool]) -> Job | None:
    """Queue an ended job again, without a trace of its earlier attempts."""
    changes = {"cancel_requested": False, "crashes": 0, "run_at": func.now(), **_NO_FAILURES}
    return requeue_job(uow, *fence, **changes)


def change_job(
    uow: UnitOfWork,
    *fence: ColumnElement[bool],
    to: JobStatus | None = None,
    error: DomainError | None = None,
    ends_subject: bool = True,
    **changes: Any,
) -> Job | None:
    """Change the job that meets the conditions of the fence; ``None`` if no job does.

    After the commit, the process that enqueued the job is notified. If the job fails or is
    cancelled, the same transaction ends the job's subject and frees its idempotency key.

    Args:
        to: the new status. Without it, the status and the columns that depend on it stay.
        error: why the job fails or is cancelled.
        ends_subject: false if the caller ends the subject.
        changes: the values of other columns.
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
    refreshed = {"populate_existing": True}
    job: Job | None = uow.session.scalar(statement.returning(Job), execution_options=refreshed)
    if job is None:
        return None
    uow.after_commit(lambda: uow.notifier.publish(job.waiter, build_job_topic(job.id), job.status))
    if to in FINISHED:
        code = error.code if to == JobStatus.FAILED and error else None
        uow.after_commit(partial(work_metrics.count_end, job.queue, job.kind, to, code))
    if to in (JobStatus.FAILED, JobStatus.CANCELLED):
        on_abandoned = get_kind(job.kind).on_abandoned
        if on_abandoned is not None and ends_subject:
            on_abandoned(uow, job)
        uow.session.execute(delete(IdempotencyRecord).where(IdempotencyRecord.job_id == job.id))
    return job
