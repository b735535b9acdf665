"""Lists, cancels and retries jobs for their owners and for operators."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, any_, bindparam, func, or_, select

from core import clock, ids
from core.errors import DomainError, Kind
from core.errors.jobs import JOB_CANCELLED, JOB_NOT_FOUND, JOB_NOT_FOUND_BY_ID, JOB_NOT_RETRYABLE
from core.ids import AccountId
from core.permissions import Permission
from core.queues import Queue
from core.settings.notations import PlanQuota
from models import FINISHED, Job, JobStatus
from services import paging
from services.access import quotas
from services.access.caller import Caller, require_permission, require_scope
from services.access.sessions import require_recent_login
from services.jobs.kinds import JobKind, find_kind, list_kinds
from services.jobs.transitions import HELPERS_LEASE_END, change_job, restart_job
from services.paging import PageOfRows, PageRequest
from storage.database import Database, Statement
from storage.unit_of_work import UnitOfWork

# How long the input of a failed job is kept, so that the owner can retry the job.
RETRY_INPUT_RETENTION = timedelta(days=7)
_RETRY_SECONDS = 5
_MAX_RECENT_JOBS = 1_000
_MAX_SCANNED_JOBS = 1_000_000


@dataclass(frozen=True)
class Progress:
    """The rate is in units of work per second."""

    done: int
    total: int | None
    per_second: float | None
    eta_seconds: float | None


def get_job(uow: UnitOfWork, caller: Caller, job_id: int) -> Job:
    return _find_job(uow, caller, job_id)


def _lock_job(uow: UnitOfWork, caller: Caller, job_id: int) -> Job:
    """Lock a job that the caller may change."""
    job = _find_job(uow, caller, job_id, lock=True)
    kind = find_kind(job.kind)
    if kind is not None and kind.permissions is not None:
        require_permission(caller, kind.permissions.change)
    return job


def _find_job(uow: UnitOfWork, caller: Caller, job_id: int, *, lock: bool = False) -> Job:
    query = select(Job).where(Job.id == job_id, Job.user_id == caller.account_id)
    job = uow.session.scalar(query.with_for_update() if lock else query)
    if job is None:
        raise JOB_NOT_FOUND()
    kind = find_kind(job.kind)
    if job.key_id is not None and job.key_id == caller.key_id:
        return job
    if kind is not None:
        require_scope(caller, kind.scope)
        if kind.permissions is not None:
            require_permission(caller, kind.permissions.see)
    elif not _may_see_unknown_kinds(caller):
        raise JOB_NOT_FOUND()
    return job


def _may_see_unknown_kinds(caller: Caller) -> bool:
    """Return whether the caller has every scope and permission that an unknown kind may need."""
    return caller.unrestricted and caller.may(Permission.ACCESS)


def list_jobs(uow: UnitOfWork, caller: Caller, page: PageRequest) -> PageOfRows[Job]:
    known_kinds = list_kinds()
    hidden_names = [kind.name for kind in known_kinds if not _is_visible_kind(caller, kind)]
    is_visible: ColumnElement[bool] = Job.kind.not_in(hidden_names)
    if not _may_see_unknown_kinds(caller):
        is_visible &= Job.kind.in_([kind.name for kind in known_kinds])
    if caller.list_ids:
        is_visible |= Job.key_id == caller.key_id
    # If the caller may see jobs of all kinds, an index-only scan finds the job ids of the page.
    ids_on_page = paging.select_owner_page(
        select(Job.id).where(is_visible), Job.user_id, caller.account_id, page
    )
    query = select(Job).where(Job.id.in_(ids_on_page)).order_by(Job.id.desc())
    return paging.read_page(uow, query, page)


def _is_visible_kind(caller: Caller, kind: JobKind) -> bool:
    is_permitted = kind.permissions is None or caller.may(kind.permissions.see)
    return kind.scope in caller.scopes and is_permitted


def find_unfinished_job(
    uow: UnitOfWork, account_id: AccountId, of_kinds: Collection[JobKind], subject_id: int
) -> Job | None:
    query = select(Job).where(is_working_on(subject_id, of_kinds, account_id))
    return uow.session.scalar(query.order_by(Job.id.desc()).limit(1))


def is_working_on(
    subject_id: int | None, of_kinds: Collection[JobKind], account_id: AccountId
) -> ColumnElement[bool]:
    """The condition matches the partial indexes of queued and running jobs."""
    is_queued = and_(
        Job.status == JobStatus.QUEUED,
        Job.queue.in_({kind.queue for kind in of_kinds}),
        Job.on_behalf_of == account_id,
    )
    is_unfinished = or_(is_queued, Job.status == JobStatus.RUNNING)
    names = [kind.name for kind in of_kinds]
    return and_(is_unfinished, Job.kind.in_(names), Job.subject_id == subject_id)


def find_recent_job(
    uow: UnitOfWork, account_id: AccountId, of_kinds: Collection[JobKind], subject_id: int
) -> Job | None:
    """Search only the user's ``_MAX_RECENT_JOBS`` newest jobs, including ended jobs."""
    recent_ids = paging.order_newest_first(select(Job.id), Job.user_id, account_id, Job.id)
    names = [kind.name for kind in of_kinds]
    query = select(Job).where(
        Job.id.in_(recent_ids.limit(_MAX_RECENT_JOBS)),
        Job.kind.in_(names),
        Job.subject_id == subject_id,
    )
    return uow.session.scalar(query.order_by(Job.id.desc()).limit(1))


def list_all_jobs(
    uow: UnitOfWork,
    page: PageRequest,
    *,
    status: JobStatus | None,
    queue: Queue | None = None,
    max_scanned: int = _MAX_SCANNED_JOBS,
) -> PageOfRows[Job]:
    """Scan at most ``max_scanned`` ended jobs per page, because the table can contain millions.

    A page of ended jobs may contain fewer jobs than requested without being the last page.
    """
    query = select(Job)
    scan_end = 0
    if status is not None:
        query = query.where(Job.status == status)
    if status in FINISHED:
        if page.cursor is None:
            scan_start = (uow.session.scalar(select(func.max(Job.id))) or 0) + 1
        else:
            scan_start = ids.parse_id_cursor(page.cursor)
        scan_end = scan_start - max_scanned
        query = query.where(Job.id >= scan_end)
    if queue is not None:
        query = query.where(Job.queue == queue)
    rows = paging.read_page(uow, paging.select_page_by_id(query, Job.id, page), page)
    if rows.next_cursor is None:
        older_job_id = uow.session.scalar(select(Job.id).where(Job.id < scan_end).limit(1))
        if older_job_id:
            return PageOfRows(rows.rows, str(scan_end))
    return rows


def get_any_job(uow: UnitOfWork, job_id: int, *, lock: bool = False) -> Job:
    job = uow.session.get(Job, job_id, with_for_update=lock or None)
    if job is None:
        raise JOB_NOT_FOUND_BY_ID(job_id=job_id)
    return job


def cancel_own_job(uow: UnitOfWork, caller: Caller, job_id: int) -> int:
    return cancel_locked_job(uow, _lock_job(uow, caller, job_id))


def cancel_locked_job(uow: UnitOfWork, job: Job) -> int:
    """Cancel a locked job, or ask its worker to cancel it. Returns 0 if the job has ended.

    If this release doesn't know the job's kind, only a worker that knows the kind can cancel the
    job and clean up.
    """
    if job.status in FINISHED:
        return 0
    is_job = Job.id == job.id
    # The helper jobs of a cancelled job stop at their next write.
    has_no_worker = job.status == JobStatus.QUEUED or job.lease_expires_at == HELPERS_LEASE_END
    if has_no_worker and find_kind(job.kind) is not None:
        error = JOB_CANCELLED()
        change_job(uow, is_job, to=JobStatus.CANCELLED, error=error, cancel_requested=True)
    else:
        change_job(uow, is_job, cancel_requested=True)
    return 1


def cancel_with_subject(uow: UnitOfWork, job: Job, reason: DomainError) -> None:
    is_job = Job.id == job.id
    change_job(uow, is_job, to=JobStatus.CANCELLED, error=reason, ends_subject=False)


def retry_own_job(uow: UnitOfWork, caller: Caller, job_id: int) -> int:
    """Raises ``auth.login_again`` if the job kind requires a more recent login. Returns 1."""
    job = _lock_job(uow, caller, job_id)
    kind = find_kind(job.kind)
    if kind is not None and kind.needs_recent_login:
        require_recent_login(uow, caller)
    is_bounded = job.kind in quotas.LIMITED_JOB_KINDS
    taken_quotas = [PlanQuota.UNFINISHED_JOBS] * is_bounded + [PlanQuota.STORAGE_MB]
    # To prevent deadlocks, always lock a quota before rows that count towards the quota.
    for quota in taken_quotas:
        quotas.lock_quota(uow, caller.account_id, quota)
    retry_locked_job(uow, job)
    for quota in taken_quotas:
        # Check the quota without additional usage, because the restarted job already counts towards
        # the quota.
        quotas.require_quota(uow, caller.account_id, quota, more=0)
    return 1


def retry_locked_job(uow: UnitOfWork, job: Job) -> None:
    kind = find_kind(job.kind)
    can_restart = is_retryable(job)
    if can_restart and kind is not None and kind.on_restarted is not None:
        can_restart = kind.on_restarted(uow, job)
    if not can_restart:
        raise JOB_NOT_RETRYABLE(kind=job.kind, status=job.status)
    restart_job(uow, Job.id == job.id)


def is_retryable(job: Job) -> bool:
    """Return whether a finished job can run again, if its input still exists."""
    kind = find_kind(job.kind)
    if job.status not in (JobStatus.FAILED, JobStatus.CANCELLED) or kind is None:
        return False
    return kind.retryable and (kind.on_restarted is None or is_retry_sensible(job))


def is_retry_sensible(job: Job) -> bool:
    if job.status != JobStatus.FAILED or job.error is None:
        return False
    code = job.error["code"]
    kind = find_kind(job.kind)
    return code.startswith("job.") or (kind is not None and code in kind.retryable_codes)


def restore_error(job: Job) -> DomainError:
    assert job.error is not None
    kind = Kind(job.error["kind"])
    return DomainError(
        kind,
        job.error["code"],
        job.error["message"],
        retry_after=_RETRY_SECONDS if kind is Kind.UNAVAILABLE else None,
        facts=job.error.get("facts", {}),
    )


def describe_error(job: Job) -> dict[str, Any] | None:
    if job.error is None:
        return None
    return {"code": job.error["code"], "message": job.error["message"]}


def get_retry_time(job: Job) -> datetime | None:
    return job.run_at if job.status == JobStatus.QUEUED and job.failing_since else None


_FIND_FINISHED = Statement(
    select(Job.id).where(Job.id == any_(bindparam("job_ids")), Job.finished_at.is_not(None))
)


def find_finished_jobs(database: Database, job_ids: Collection[int]) -> set[int]:
    return {job_id for (job_id,) in database.rows(_FIND_FINISHED, job_ids=list(job_ids))}


def measure_progress(job: Job) -> Progress:
    rate = None
    eta_seconds = None
    if job.started_at is not None and job.progress_done:
        seconds = ((job.finished_at or clock.now()) - job.started_at).total_seconds()
        rate = round(job.progress_done / seconds, 1) if seconds > 0 else None
    if rate and job.progress_total is not None and job.finished_at is None:
        remaining = max(job.progress_total - job.progress_done, 0)
        eta_seconds = round(remaining / rate, 1)
    return Progress(job.progress_done, job.progress_total, rate, eta_seconds)
