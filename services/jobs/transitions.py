"""Changes the status of jobs, for example from queued to running.

Each status change is a single UPDATE. Its WHERE condition, the fence, checks either the attempt
number of a worker's lease or the id of a locked row. If two transactions change a job's status at
the same time, the second UPDATE matches no row.

A job can delegate its remaining work to smaller jobs, which are called its helpers. A delegating
job has the status "running" although no worker holds the job. Each write of a helper checks the
``attempt`` of the delegating job.
"""

from datetime import UTC, datetime
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, any_, delete, exists, func, or_, select, update
from sqlalchemy.orm import aliased

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

# The expiry time of a delegating job's lease. The expiry time of such a lease is far in the future,
# so that the lease never expires.
HELPERS_LEASE_END = datetime(9999, 1, 1, tzinfo=UTC)
# The column values of a job that isn't being retried.
_NO_FAILURES = {"retries": 0, "failing_since": None, "last_reason": None, "slow_attempts": 0}
_NO_CRASHES: dict[str, Any] = {"crashes": 0, "crashed_attempts": []}
# A job with this many attempts over their time limit runs only while its queue has no other job, so
# that a job which is always too slow can't delay the other jobs again and again.
MAX_SLOW_ATTEMPTS_IN_TURN = 2


def claim_job(uow: UnitOfWork, job_id: int) -> Lease | None:
    """Return ``None`` if the job can't be claimed.

    A job whose attempts were too slow isn't claimed while other jobs wait in its queue. The sweep
    sends its message again.
    """
    job = change_job(
        uow,
        Job.id == job_id,
        has_status(JobStatus.QUEUED),
        Job.run_at <= func.now(),
        or_(Job.slow_attempts < MAX_SLOW_ATTEMPTS_IN_TURN, ~_has_waiting_neighbour()),
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
    change_held_job(uow, lease, progress_total=total)


def record_progress(uow: UnitOfWork, lease: Lease, *, done: int, total: int | None = None) -> None:
    """Call ``record_progress`` in the transaction of the job's work.

    A job that makes progress isn't broken, so its counts of crashes and retries are reset.
    """
    changes: dict[str, Any] = {"progress_done": done, **_NO_CRASHES, **_NO_FAILURES}
    if total is not None:
        changes["progress_total"] = total
    # Never shorten the lease, because the lease of a job that has delegated its work to helpers
    # must not expire.
    changes["lease_expires_at"] = func.greatest(Job.lease_expires_at, lease_end())
    # Renew the lease together with the progress, because the heartbeat can't renew it while the
    # transaction locks the row.
    change_held_job(uow, lease, **changes)
    lease.crashes = 0
    lease.retries = 0
    uow.after_commit(lease.on_progress)


def complete_job(uow: UnitOfWork, lease: Lease, result: dict[str, Any]) -> None:
    """Call ``complete_job`` in the transaction of the job's last changes."""
    change_held_job(uow, lease, JobStatus.SUCCEEDED, result=result, **_NO_FAILURES)


def fail_job(uow: UnitOfWork, lease: Lease, error: DomainError) -> None:
    """Mark the job and its subject as failed. A waiting client receives ``error``."""
    change_held_job(uow, lease, JobStatus.FAILED, error=error)
    lease.failed_by = error.code
    if lease.account_id is not None and is_plan_error(error.code):
        record_plan_error(uow, lease.account_id, error.code)


def cancel_job(uow: UnitOfWork, lease: Lease) -> None:
    change_held_job(uow, lease, JobStatus.CANCELLED, error=JOB_CANCELLED())


def hand_back_job(uow: UnitOfWork, lease: Lease, **changes: Any) -> None:
    """Requeue a job after a turn or when the worker shuts down."""
    if requeue_job(uow, is_held_by(lease), **changes) is None:
        raise LeaseLost(lease.job_id)


def delegate_to_helpers(uow: UnitOfWork, lease: Lease) -> None:
    """The caller must enqueue the first helper job in the same transaction.

    The helper job that finishes last must end the delegating job.
    """
    changes: dict[str, Any] = {"attempt": Job.attempt + 1, **_NO_CRASHES, **_NO_FAILURES}
    change_held_job(uow, lease, lease_expires_at=HELPERS_LEASE_END, **changes)


def lock_shared_lease(uow: UnitOfWork, job_id: int | None) -> Lease | None:
    """Return the lease that helpers share, or ``None`` if the job isn't delegating.

    To prevent deadlocks, a helper must lock its own row first.
    """
    is_delegated = Job.lease_expires_at == HELPERS_LEASE_END
    query = select(Job).where(Job.id == job_id, has_status(JobStatus.RUNNING), is_delegated)
    locked = query.with_for_update().execution_options(populate_existing=True)
    job = uow.session.scalar(locked)
    return None if job is None else Lease.of_job(job)


def change_held_job(
    uow: UnitOfWork, lease: Lease, to: JobStatus | None = None, **changes: Any
) -> None:
    if change_job(uow, is_held_by(lease), to=to, **changes) is None:
        raise LeaseLost(lease.job_id)


def requeue_job(uow: UnitOfWork, *fence: ColumnElement[bool], **changes: Any) -> Job | None:
    """Requeue the job behind its owner's other jobs, and send its message after the commit."""
    turn = plan_turn(Job.queue, Job.on_behalf_of)
    job = change_job(uow, *fence, to=JobStatus.QUEUED, **turn, **changes)
    if job is not None:
        send_after_commit(uow, job)
    return job


def restart_job(uow: UnitOfWork, *fence: ColumnElement[bool]) -> Job | None:
    """Queue an ended job again, and reset its counts of crashes and retries."""
    changes = {"cancel_requested": False, "run_at": func.now(), **_NO_CRASHES, **_NO_FAILURES}
    return requeue_job(uow, *fence, **changes)


def forgive_crash(uow: UnitOfWork, lease: Lease) -> None:
    """Stop counting a lost lease as a crash, because its worker is alive."""
    is_job = Job.id == lease.job_id, Job.status.in_((JobStatus.QUEUED, JobStatus.RUNNING))
    forgiven = {
        "crashes": func.greatest(Job.crashes - 1, 0),
        "crashed_attempts": func.array_remove(Job.crashed_attempts, lease.attempt),
    }
    is_counted = any_(Job.crashed_attempts) == lease.attempt
    uow.session.execute(update(Job).where(*is_job, is_counted).values(forgiven))


def _has_waiting_neighbour() -> ColumnElement[bool]:
    """Another job, which isn't slow itself, is due in the job's queue."""
    neighbour = aliased(Job)
    return exists().where(
        neighbour.status == JobStatus.QUEUED,
        neighbour.queue == Job.queue,
        neighbour.run_at <= func.now(),
        neighbour.slow_attempts < MAX_SLOW_ATTEMPTS_IN_TURN,
    )


def change_job(
    uow: UnitOfWork,
    *fence: ColumnElement[bool],
    to: JobStatus | None = None,
    error: DomainError | None = None,
    ends_subject: bool = True,
    **changes: Any,
) -> Job | None:
    """Change and return the job that matches ``fence``, or return ``None``.

    Waiting clients are notified after the commit. A cancelled job's idempotency key can be used
    again.

    Args:
        to: the new status, or ``None`` to keep the status, the lease, the error and the end time.
        ends_subject: whether to call ``on_abandoned`` of the job's kind if the job fails or is
            cancelled. If false, the caller must end the subject itself.
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
