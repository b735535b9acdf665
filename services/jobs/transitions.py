"""The status changes of a job.

Each status change is one UPDATE with a fence. The fence is either the attempt of a lease, or the id
of a row that the transaction has locked. If two changes of a job race, only one finds the row.

A job can delegate its remaining work to helper jobs. A delegated job stays running without a
worker, and its attempt fences the writes of all its helpers.
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
from services.security_events import is_plan_error, record_plan_error
from storage.redis.notifications import build_job_topic
from storage.unit_of_work import UnitOfWork

# The end of the lease of a job that was delegated to helpers. Such a lease never expires.
HELPERS_LEASE_END = datetime(9999, 1, 1, tzinfo=UTC)
# The values of a job's failure columns while the job is not failing.
_NO_FAILURES = {"retries": 0, "failing_since": None, "last_reason": None}


def claim_job(uow: UnitOfWork, job_id: int) -> Lease | None:
    """Claim a queued job. Return ``None`` if the job is running, ended, deleted or not yet due."""
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
    """Record the job's amount of work, without counting as progress. Raises ``LeaseLost``."""
    change_held_job(uow, lease, progress_total=total)


def record_progress(uow: UnitOfWork, lease: Lease, *, done: int, total: int | None = None) -> None:
    """Record the job's progress in the transaction of the work. Raises ``LeaseLost``.

    Progress resets the job's counts of crashes and retries, because the job evidently works.
    """
    changes: dict[str, Any] = {"progress_done": done, "crashes": 0, **_NO_FAILURES}
    if total is not None:
        changes["progress_total"] = total
    # The lease of a delegated job ends later than ``lease_end()`` and must not become shorter.
    changes["lease_expires_at"] = func.greatest(Job.lease_expires_at, lease_end())
    # The heartbeat waits for the row lock until this transaction commits, so renew the lease here.
    change_held_job(uow, lease, **changes)
    lease.crashes = 0
    lease.retries = 0


def complete_job(uow: UnitOfWork, lease: Lease, result: dict[str, Any]) -> None:
    """Mark the job as succeeded, in the transaction of its last changes. Raises ``LeaseLost``."""
    change_held_job(uow, lease, JobStatus.SUCCEEDED, result=result, **_NO_FAILURES)


def fail_job(uow: UnitOfWork, lease: Lease, error: DomainError) -> None:
    """Fail the job and end its subject. Raises ``LeaseLost``.

    A caller who waits for the job receives ``error``.
    """
    change_held_job(uow, lease, JobStatus.FAILED, error=error)
    lease.failed_by = error.code
    if lease.user_id is not None and is_plan_error(error.code):
        record_plan_error(uow, lease.user_id, error.code)


def cancel_job(uow: UnitOfWork, lease: Lease) -> None:
    """Cancel the job at its owner's request, and end the job's subject. Raises ``LeaseLost``."""
    change_held_job(uow, lease, JobStatus.CANCELLED, error=JOB_CANCELLED())


def hand_back_job(uow: UnitOfWork, lease: Lease, **changes: Any) -> None:
    """Requeue the worker's job behind the owner's other jobs. Raises ``LeaseLost``.

    A worker hands a long job back after each turn, so that long jobs alternate. A worker that shuts
    down hands its jobs back to other workers.
    """
    if requeue_job(uow, is_held_by(lease), **changes) is None:
        raise LeaseLost(lease.job_id)


def delegate_to_helpers(uow: UnitOfWork, lease: Lease) -> None:
    """Delegate the job's remaining work to helper jobs. Raises ``LeaseLost``.

    The caller enqueues the first helper in the same transaction. The delegated job stays running
    until a helper ends the job. The last helper must therefore end the delegated job.
    """
    changes: dict[str, Any] = {"attempt": Job.attempt + 1, "crashes": 0, **_NO_FAILURES}
    change_held_job(uow, lease, lease_expires_at=HELPERS_LEASE_END, **changes)


def lock_shared_lease(uow: UnitOfWork, job_id: int | None) -> Lease | None:
    """Lock a delegated job, and return the lease that its helpers share.

    Returns ``None`` for a job that has ended or was not delegated. To prevent deadlocks, a helper
    must lock its own row before the delegated job's row.
    """
    is_delegated = Job.lease_expires_at == HELPERS_LEASE_END
    query = select(Job).where(Job.id == job_id, has_status(JobStatus.RUNNING), is_delegated)
    locked = query.with_for_update().execution_options(populate_existing=True)
    job = uow.session.scalar(locked)
    return None if job is None else Lease.of_job(job)


def change_held_job(
    uow: UnitOfWork, lease: Lease, to: JobStatus | None = None, **changes: Any
) -> None:
    """Change the job that the lease holds. Raises ``LeaseLost`` if the lease is gone."""
    if change_job(uow, is_held_by(lease), to=to, **changes) is None:
        raise LeaseLost(lease.job_id)


def requeue_job(uow: UnitOfWork, *fence: ColumnElement[bool], **changes: Any) -> Job | None:
    """Queue the job behind its owner's other jobs, and send the job after the commit."""
    turn = plan_turn(Job.queue, Job.on_behalf_of)
    job = change_job(uow, *fence, to=JobStatus.QUEUED, **turn, **changes)
    if job is not None:
        send_after_commit(uow, job)
    return job


def restart_job(uow: UnitOfWork, *fence: ColumnElement[bool]) -> Job | None:
    """Queue an ended job again, and reset the counts of crashes and retries."""
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
    """Change the job that meets all conditions of ``fence``. Return ``None`` if no job matches.

    After the commit, the process that enqueued the job is notified. If the job fails or is
    cancelled, the same transaction ends the job's subject and frees its idempotency key.

    Args:
        to: the new status. ``None`` keeps the status and the columns that depend on the status.
        error: the reason for the failure or cancellation.
        ends_subject: whether this function ends the job's subject, rather than its caller.
        changes: new values of further columns.
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
