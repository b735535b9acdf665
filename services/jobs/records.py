"""Jobs as their owners and operators read, cancel and restart them."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, any_, bindparam, func, select

from core import clock, ids
from core.errors import DomainError, Kind
from core.errors.jobs import JOB_CANCELLED, JOB_NOT_FOUND, JOB_NOT_FOUND_BY_ID, JOB_NOT_RETRYABLE
from core.queues import Queue
from core.settings.notations import PlanQuota
from models import FINISHED, Job, JobStatus
from services import paging
from services.access import quotas
from services.access.caller import Caller, require_scope
from services.access.sessions import require_recent_login
from services.jobs.kinds import JobKind, find_kind, list_kinds
from services.jobs.transitions import LEFT_TO_HELPERS, change_job, restart_job
from services.paging import PageOfRows, PageRequest
from storage.database import Database, Statement
from storage.unit_of_work import UnitOfWork

# The input of a job that failed by no fault of the input stays for a retry.
KEPT_FOR_RETRY = timedelta(days=7)
_RETRY_SECONDS = 5
_MAX_LATE_JOBS = 1_000
_MAX_LOOKED_AT = 1_000_000


@dataclass(frozen=True)
class Progress:
    done: int
    total: int | None
    per_second: float | None
    eta_seconds: float | None


def get(uow: UnitOfWork, caller: Caller, job_id: int, *, lock: bool = False) -> Job:
    """The caller's job; raises ``job.not_found``, or ``auth.insufficient_scope`` for its kind."""
    query = select(Job).where(Job.id == job_id, Job.user_id == caller.user_id)
    job = uow.session.scalar(query.with_for_update() if lock else query)
    if job is None:
        raise JOB_NOT_FOUND()
    kind = find_kind(job.kind)
    if kind is not None:
        require_scope(caller, kind.scope)
    elif not caller.unrestricted:
        # The scope that it takes is not known here.
        raise JOB_NOT_FOUND()
    return job


def list_of(uow: UnitOfWork, caller: Caller, wanted: PageRequest) -> PageOfRows[Job]:
    """The jobs that ``get`` gives to the caller, newest first. Raises ``cursor.invalid``."""
    hidden = [kind.name for kind in list_kinds() if kind.scope not in caller.scopes]
    shown: ColumnElement[bool] = Job.kind.not_in(hidden)
    if not caller.unrestricted:
        shown &= Job.kind.in_([kind.name for kind in list_kinds()])
    # The rows before the page are read in the index alone where all kinds are shown.
    page = paging.of_owner(select(Job.id).where(shown), Job.user_id, caller.user_id, wanted)
    query = select(Job).where(Job.id.in_(page)).order_by(Job.id.desc())
    return paging.read(uow, query, wanted)


def find_unfinished(
    uow: UnitOfWork, user_id: int, of_kinds: Collection[JobKind], subject_id: int
) -> Job | None:
    """The job of one of these kinds that works on this subject of the user's, if one does."""
    query = select(Job).where(working_on(subject_id, of_kinds, user_id))
    return uow.session.scalar(query.order_by(Job.id.desc()).limit(1))


def working_on(
    subject_id: int | None, of_kinds: Collection[JobKind], user_id: int
) -> ColumnElement[bool]:
    """Jobs of these kinds that are queued for this user, or run, and have this subject.

    They are found by the indexes of queued and of running jobs, and not among all that there were.
    """
    is_theirs = Job.queue.in_({kind.queue for kind in of_kinds}), Job.on_behalf_of == user_id
    unfinished = and_(Job.status == JobStatus.QUEUED, *is_theirs) | (
        Job.status == JobStatus.RUNNING
    )
    names = [kind.name for kind in of_kinds]
    return and_(unfinished, Job.kind.in_(names), Job.subject_id == subject_id)


def find_late(
    uow: UnitOfWork, user_id: int, of_kinds: Collection[JobKind], subject_id: int
) -> Job | None:
    """The same also of a job that has ended, if it is one of the user's last ones."""
    last = paging.newest_first(select(Job.id), Job.user_id, user_id, Job.id)
    of_kind = Job.kind.in_([kind.name for kind in of_kinds]), Job.subject_id == subject_id
    query = select(Job).where(Job.id.in_(last.limit(_MAX_LATE_JOBS)), *of_kind)
    return uow.session.scalar(query.order_by(Job.id.desc()).limit(1))


def list_all(
    uow: UnitOfWork,
    wanted: PageRequest,
    *,
    status: JobStatus | None,
    queue: Queue | None = None,
    look_at: int = _MAX_LOOKED_AT,
) -> PageOfRows[Job]:
    """The jobs of all users, newest first, for the operator. Raises ``cursor.invalid``.

    There are so many jobs that have ended that only ``look_at`` of them are looked at. The page may
    then have fewer rows than were asked for, and lead on.
    """
    query, end = select(Job), 0
    if status is not None:
        query = query.where(Job.status == status)
    if status in FINISHED:
        # The id before which the page's jobs are looked for.
        if wanted.cursor is None:
            begin = (uow.session.scalar(select(func.max(Job.id))) or 0) + 1
        else:
            begin = ids.of_cursor(wanted.cursor)
        end = begin - look_at
        query = query.where(Job.id >= end)
    if queue is not None:
        query = query.where(Job.queue == queue)
    page = paging.read(uow, paging.by_id(query, Job.id, wanted), wanted)
    if page.next_cursor is None and uow.session.scalar(select(Job.id).where(Job.id < end).limit(1)):
        return PageOfRows(page.rows, str(end))
    return page


def get_any(uow: UnitOfWork, job_id: int, *, lock: bool = False) -> Job:
    """The job of any user, for the operator; raises ``job.not_found``."""
    job = uow.session.get(Job, job_id, with_for_update=lock or None)
    if job is None:
        raise JOB_NOT_FOUND_BY_ID(job_id=job_id)
    return job


def cancel(uow: UnitOfWork, caller: Caller, job_id: int) -> int:
    """Cancel the job, or ask its worker to: 1, or 0 when it had ended already.

    Only a worker of another release knows what becomes of the subject of a job of that release.
    """
    return stop(uow, get(uow, caller, job_id, lock=True))


def stop(uow: UnitOfWork, job: Job) -> int:
    """As ``cancel``, for a job whose row is locked."""
    if job.status in FINISHED:
        return 0
    mine = Job.id == job.id
    # The helpers' next write finds that it has ended.
    has_no_worker = job.status == JobStatus.QUEUED or job.lease_expires_at == LEFT_TO_HELPERS
    if has_no_worker and find_kind(job.kind) is not None:
        error = JOB_CANCELLED()
        change_job(uow, mine, to=JobStatus.CANCELLED, error=error, cancel_requested=True)
    else:
        change_job(uow, mine, cancel_requested=True)
    return 1


def end_with_subject(uow: UnitOfWork, job: Job, reason: DomainError) -> None:
    """Cancel a locked job whose subject is being deleted; its worker loses the lease."""
    cancelled = JobStatus.CANCELLED
    change_job(uow, Job.id == job.id, to=cancelled, error=reason, ends_subject=False)


def retry(uow: UnitOfWork, caller: Caller, job_id: int) -> int:
    """Start a failed or cancelled job again.

    Raises ``job.not_retryable``, ``quota.exceeded``, and ``auth.login_again`` for a kind that needs
    a recent login.
    """
    job = get(uow, caller, job_id, lock=True)
    kind = find_kind(job.kind)
    if kind is not None and kind.needs_recent_login:
        require_recent_login(uow, caller)
    is_bounded = job.kind in quotas.BOUNDED_KINDS
    taken = [PlanQuota.UNFINISHED_JOBS] * is_bounded + [PlanQuota.STORAGE_MB]
    # Before the rows that are counted, as all acts take them.
    for quota in taken:
        quotas.hold(uow, caller.user_id, quota)
    restart(uow, job)
    for quota in taken:
        # The quota of the job is counted already.
        quotas.require(uow, caller.user_id, quota, more=0)
    return 1


def restart(uow: UnitOfWork, job: Job) -> None:
    """As ``retry``, for a job whose row is locked."""
    ended_badly = job.status in (JobStatus.FAILED, JobStatus.CANCELLED)
    kind = find_kind(job.kind)
    may_restart = ended_badly and kind is not None and kind.retryable
    if kind is not None and kind.on_restarted is not None:
        may_restart &= is_retry_sensible(job) and kind.on_restarted(uow, job)
    if not may_restart:
        raise JOB_NOT_RETRYABLE(kind=job.kind, status=job.status)
    restart_job(uow, Job.id == job.id)


def is_retry_sensible(job: Job) -> bool:
    """Return whether the job failed for another reason than its input, which may pass."""
    by_itself = job.error is not None and job.error["code"].startswith("job.")
    return job.status == JobStatus.FAILED and by_itself


def error_of(job: Job) -> DomainError:
    """Return the error of a job that failed or was cancelled, of the kind that ended it."""
    assert job.error is not None
    kind, code, message = Kind(job.error["kind"]), job.error["code"], job.error["message"]
    retry_after = _RETRY_SECONDS if kind is Kind.UNAVAILABLE else None
    facts = job.error.get("facts", {})
    return DomainError(kind, code, message, retry_after=retry_after, facts=facts)


def error_shown(job: Job) -> dict[str, Any] | None:
    """A job's error as callers see it, and as its subject keeps it."""
    if job.error is None:
        return None
    return {"code": job.error["code"], "message": job.error["message"]}


def next_try_at(job: Job) -> datetime | None:
    """When a queued job that failed is tried again."""
    return job.run_at if job.status == JobStatus.QUEUED and job.failing_since else None


def finished_among(database: Database, job_ids: Collection[int]) -> set[int]:
    return {job_id for (job_id,) in database.rows(_FINISHED_AMONG, job_ids=list(job_ids))}


def progress_of(job: Job) -> Progress:
    """The work done, its mean rate since the start, and the seconds left at that rate."""
    rate = eta = None
    if job.started_at is not None and job.progress_done:
        seconds = ((job.finished_at or clock.now()) - job.started_at).total_seconds()
        rate = round(job.progress_done / seconds, 1) if seconds > 0 else None
    if rate and job.progress_total is not None and job.finished_at is None:
        eta = round(max(job.progress_total - job.progress_done, 0) / rate, 1)
    return Progress(job.progress_done, job.progress_total, rate, eta)


_FINISHED_AMONG = Statement(
    select(Job.id).where(Job.id == any_(bindparam("job_ids")), Job.finished_at.is_not(None))
)
