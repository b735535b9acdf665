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

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.exc import SQLAlchemyError

from core.counters import work_metrics
from core.errors import DomainError
from core.errors.jobs import JOB_CANCELLED, JOB_GIVEN_UP
from core.logging import get_logger
from models import FINISHED, IdempotencyRecord, Job, JobStatus
from services.jobs import outbox
from services.jobs.kinds import kind_named
from services.jobs.outbox import in_turn, send_in_turn
from services.security_events import is_plan_error, record_error
from storage.redis.notifications import job_topic
from storage.unit_of_work import UnitOfWork

# A change is one UPDATE with a fence (the attempt of a lease, or the id of a locked row): of two
# changes that race, one writes and the other finds no row.

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


def requeue(uow: UnitOfWork, *fence: ColumnElement[bool], **changes: Any) -> Job | None:
    """Queue the job again, after what its owner has in the queue; it is sent after the commit."""
    turn = in_turn(Job.queue, Job.on_behalf_of)
    job = transition(uow, *fence, to=JobStatus.QUEUED, **turn, **changes)
    if job is not None:
        send_in_turn(uow, job)
    return job


def has_status(status: JobStatus) -> ColumnElement[bool]:
    """Return whether a job that is found by its id has this status.

    The planner does not know the value that is compared, and so finds the job by its id. It would
    take an index of all such jobs for empty, in which a long snapshot keeps those that ended since.
    """
    return Job.status == func.concat(status)


def lease_end() -> ColumnElement[datetime]:
    # Not now(), which is the transaction's start and may be seconds ago.
    return func.clock_timestamp() + LEASE


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
    # For whoever watches the tasks: whether the work of this turn failed and is done again later,
    # and the code of the error by which the job failed.
    is_retried: bool = False
    failed_by: str | None = None

    def check_cancelled(self) -> None:
        """Raises ``JobCancelled``; long work calls it between steps."""
        if self.cancelled.is_set():
            raise JobCancelled


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
    return _lease_of(job)


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
    _change(uow, lease, lease_expires_at=LEFT_TO_HELPERS, **changes)


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
    renewed = update(Job).where(*held(lease)).values(lease_expires_at=lease_end())
    cancel_requested = uow.session.scalar(renewed.returning(Job.cancel_requested))
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
    _change(uow, lease, **values)
    lease.crashes = lease.retries = 0


def expect(uow: UnitOfWork, lease: Lease, *, total: int | None) -> None:
    """Write how much there is to do, which is no progress; raises ``LeaseLost``."""
    _change(uow, lease, progress_total=total)


def succeed(uow: UnitOfWork, lease: Lease, result: dict[str, Any]) -> None:
    """Mark the job as succeeded, in the transaction of its effect; raises ``LeaseLost``."""
    _change(uow, lease, JobStatus.SUCCEEDED, result=result, **WORKS)


def fail(uow: UnitOfWork, lease: Lease, error: DomainError) -> None:
    """End the job and its subject with a reason; raises ``LeaseLost``.

    A caller who waits for the job is refused by the error's kind.
    """
    _change(uow, lease, JobStatus.FAILED, error=error)
    lease.failed_by = error.code
    if lease.user_id is not None and is_plan_error(error.code):
        record_error(uow, lease.user_id, error.code)


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
    lease.is_retried = True
    queue = kind_named(lease.kind).queue
    uow.after_commit(work_metrics.RETRIES.labels(queue, lease.kind).inc)


def crash(uow: UnitOfWork, lease: Lease, error: DomainError) -> None:
    """Count a crash: the job is queued again, or fails at the third. Raises ``LeaseLost``."""
    crashes = lease.crashes + 1
    if crashes >= MAX_CRASHES:
        _change(uow, lease, JobStatus.FAILED, error=error, crashes=crashes)
        lease.failed_by = error.code
    else:
        hand_back(uow, lease, crashes=crashes)
        lease.is_retried = True


def hand_back(uow: UnitOfWork, lease: Lease, **changes: Any) -> None:
    """Queue the job at the end of its queue and behind its owner's others; raises ``LeaseLost``.

    Long jobs take turns by it, and a worker that shuts down leaves the job to another one.
    """
    if requeue(uow, *held(lease), **changes) is None:
        raise LeaseLost(lease.job_id)


def held(lease: Lease) -> tuple[ColumnElement[bool], ...]:
    return (Job.id == lease.job_id, Job.attempt == lease.attempt, has_status(JobStatus.RUNNING))


def _change(uow: UnitOfWork, lease: Lease, to: JobStatus | None = None, **changes: Any) -> None:
    if transition(uow, *held(lease), to=to, **changes) is None:
        raise LeaseLost(lease.job_id)


log = get_logger(__name__)


@contextmanager
def heartbeat(renew: Callable[[], None]) -> Iterator[None]:
    """Renew the lease each second in a thread of its own, until the block ends."""
    stop = threading.Event()

    def renew_until_stop() -> None:
        while not stop.wait(RENEW_EVERY_SECONDS):
            try:
                renew()
            except LeaseLost:
                # The work's next write raises too; until then it goes on in vain.
                return
            except SQLAlchemyError as error:
                log.warning("lease.not_renewed", reason=type(error).__name__)

    thread = threading.Thread(target=renew_until_stop, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


# A dependency's trouble is not the work's fault, so a job is tried for a time and not for a
# number of times. All times are the database's.

_MIN_PAUSE_SECONDS = 1.0
# Within the first ten minutes. Later pauses grow with the time that the job has failed.
_MAX_FIRST_PAUSE_SECONDS = 30.0
_MAX_PAUSE_SECONDS = 300.0
_FAILING_PER_PAUSE = 20
_SECONDS_AN_HOUR = 3600


def try_later(uow: UnitOfWork, lease: Lease, *, reason: str, patience: timedelta) -> None:
    """Queue the job again after a pause, or fail it when its patience is over.

    Args:
        reason: in plain words, without secrets: owners read it.
        patience: for kinds that have none of their own.

    Raises ``LeaseLost``.
    """
    failing = func.now() - func.coalesce(Job.failing_since, func.now())
    found = uow.session.scalar(select(func.extract("epoch", failing)).where(*held(lease)))
    if found is None:
        raise LeaseLost(lease.job_id)
    failing_seconds = float(found)
    kind = kind_named(lease.kind)
    if failing_seconds >= (kind.patience or patience).total_seconds():
        hours = f"{round(failing_seconds / _SECONDS_AN_HOUR, 1):g}"
        told = kind.given_up() if kind.given_up else JOB_GIVEN_UP(reason=reason, hours=hours)
        fail(uow, lease, told)
        return
    most = max(_MAX_FIRST_PAUSE_SECONDS, failing_seconds / _FAILING_PER_PAUSE)
    longest = min(_MIN_PAUSE_SECONDS * 2 ** min(lease.retries, 10), most, _MAX_PAUSE_SECONDS)
    # Half of it random, so that jobs that failed together don't return together.
    pause = timedelta(seconds=random.uniform(longest / 2, longest))  # noqa: S311 - no secret
    retry_later(uow, lease, pause, reason)
