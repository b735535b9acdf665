"""The owner's access to existing imports: to find, list, retry and reread them."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, func, select

from core.errors import imports as errors
from core.errors.jobs import JOB_NOT_FOUND
from core.settings.notations import PlanQuota
from models import ImportChunk, Job, JobStatus, MemberImport, NamedMember
from services import paging, removals
from services.access import quotas
from services.access.caller import Caller
from services.access.sessions import require_recent_login
from services.jobs import records
from services.jobs.outbox import enqueue_job
from services.paging import PageOfRows, PageRequest
from services.subscriptions.imports.accepting import check_upload
from services.subscriptions.imports.import_job import ADD_MEMBERS, IMPORT_FILE, IMPORT_SUPPRESSIONS
from services.subscriptions.imports.import_options import ImportOptions
from services.subscriptions.imports.undo import UNDO_IMPORT
from services.subscriptions.imports.undo_preview import UndoForecast, preview
from services.subscriptions.imports.verdicts import COUNTS
from storage.unit_of_work import UnitOfWork

# The earlier values are kept for this long after they were written, which is after `created_at`.
UNDO_TIME = timedelta(days=90)
IMPORT_JOBS = (ADD_MEMBERS, IMPORT_FILE, IMPORT_SUPPRESSIONS)
# The values of an import before its file is read.
_UNREAD: Mapping[str, Any] = {
    "status": "running",
    **dict.fromkeys(("error", "description", "columns", "column_forms", "consent_columns")),
    **dict.fromkeys(("samples", "finished_at")),
    **dict.fromkeys(
        (*COUNTS, "left_out", "unknown_status", "over_quota", "chunks", "chunk_bytes", "applied"), 0
    ),
    **dict.fromkeys(("is_split", "side_by_side"), False),
    "opt_out_chunks": [],
}


def get(uow: UnitOfWork, caller: Caller, import_id: int, *, lock: bool = False) -> MemberImport:
    """Return an import of the caller; raises ``import.not_found``."""
    query = select(MemberImport).where(
        MemberImport.id == import_id, MemberImport.user_id == caller.user_id
    )
    # Must not keep out a transaction that refers to the row, as one that applies a chunk does.
    locked = query.with_for_update(key_share=True).execution_options(populate_existing=True)
    found = uow.session.scalar(locked if lock else query)
    if found is None:
        raise errors.IMPORT_NOT_FOUND()
    return found


def list_of(
    uow: UnitOfWork, caller: Caller, wanted: PageRequest, *, list_id: int | None
) -> PageOfRows[MemberImport]:
    """The caller's imports into one list or into all, newest first. Raises ``cursor.invalid``."""
    query = paging.of_owner(select(MemberImport), MemberImport.user_id, caller.user_id, wanted)
    if list_id is not None:
        query = query.where(MemberImport.list_id == list_id)
    return paging.read(uow, query, wanted)


def failed_lately(uow: UnitOfWork, user_id: int) -> Sequence[MemberImport]:
    """Return the owner's imports that failed in the last seven days, newest first; at most five."""
    task = MemberImport
    is_late = task.status == "failed", task.finished_at > func.now() - timedelta(days=7)
    query = select(task).where(task.user_id == user_id, *is_late, task.dry_run.is_(False))
    return uow.session.scalars(query.order_by(task.id.desc()).limit(5)).all()


def job_of(uow: UnitOfWork, task: MemberImport) -> Job | None:
    """The job that works on the import; ``None`` once it has ended."""
    return records.find_unfinished_job(uow, task.user_id, IMPORT_JOBS, task.id)


def undo_job_of(uow: UnitOfWork, task: MemberImport) -> Job | None:
    """The last job that was to undo the import, as long as jobs are kept."""
    return uow.session.get(Job, task.undo_job_id) if task.undo_job_id else None


def read_again(uow: UnitOfWork, caller: Caller, import_id: int, options: ImportOptions) -> Job:
    """Read the file of a dry run once more: to look at it by other options, or to import it.

    Raises ``import.not_found``, ``import.running``, ``import.file_gone``, and what ``check_upload``
    raises.
    """
    task = get(uow, caller, import_id)
    check_upload(uow, caller, task.list_id, dry_run=options.dry_run)
    quotas.require(uow, caller.user_id, PlanQuota.STORAGE_MB, more=task.size)
    task = get(uow, caller, import_id, lock=True)
    if task.status == "running":
        raise errors.IMPORT_RUNNING()
    # The job of one that broke may be started again, and two jobs must not do the work of one.
    broke = task.error is not None and task.error["code"].startswith("job.")
    may_go_on = task.dry_run and not broke and task.undo_job_id is None
    if not may_go_on or not removals.keep(uow, f"{task.object_prefix}/"):
        raise errors.IMPORT_FILE_GONE()
    for kept in (ImportChunk, NamedMember):
        uow.session.execute(delete(kept).where(kept.import_id == task.id))
    for name, value in {**_UNREAD, **options.stored_values}.items():
        setattr(task, name, value)
    task.created_at = func.now()
    uow.session.flush()
    kind, user_id = options.job_kind, task.user_id
    return enqueue_job(uow, kind, user_id=user_id, subject_id=task.id)


def retry(uow: UnitOfWork, caller: Caller, import_id: int) -> None:
    """Go on with an import whose job failed by no fault of the file.

    Raises ``import.not_found``, ``job.not_found``, and what ``retry_own_job`` raises.
    """
    task = get(uow, caller, import_id)
    job = records.find_recent_job(uow, task.user_id, IMPORT_JOBS, task.id)
    if job is None:
        raise JOB_NOT_FOUND()
    records.retry_own_job(uow, caller, job.id)


def undo_until(task: MemberImport) -> datetime | None:
    """Until when the import can be undone; ``None`` while it runs, and once it is undone whole."""
    if task.finished_at is None or is_undone(task):
        return None
    return task.created_at + UNDO_TIME


def is_undone(task: MemberImport) -> bool:
    """Return whether nobody stayed whom another undo might take back."""
    return task.undone_at is not None and not task.kept


def undo_preview(uow: UnitOfWork, caller: Caller, import_id: int) -> UndoForecast:
    """Return what an undo of the import would do now; raises ``import.not_found``."""
    return preview(uow, get(uow, caller, import_id))


def undo(uow: UnitOfWork, caller: Caller, import_id: int) -> int | None:
    """Start to undo an import. Return the job's id, or ``None`` if nothing is left to undo.

    A failed or cancelled undo is restarted. An undo skips members who were changed later. After
    these later changes are undone, another call can undo the import for those members too. Raises
    ``auth.login_again``, ``import.not_found``, ``import.running`` and ``import.undo_over``.
    """
    require_recent_login(uow, caller)
    # The job before the import, as a transaction that takes a batch back locks them.
    job_id = get(uow, caller, import_id).undo_job_id
    job = uow.session.get(Job, job_id, with_for_update=True) if job_id else None
    task = get(uow, caller, import_id, lock=True)
    if task.status == "running":
        raise errors.IMPORT_RUNNING()
    if is_undone(task):
        return None
    if task.undo_job_id != job_id:
        # Another call began the undo just now.
        return task.undo_job_id
    goes_on = job is not None and job.finished_at is None
    # By the database's clock, as what an undo needs is deleted by it.
    is_offered = select(MemberImport.created_at > func.now() - UNDO_TIME)
    if not (goes_on or uow.session.scalar(is_offered.where(MemberImport.id == task.id))):
        raise errors.IMPORT_UNDO_OVER(days=UNDO_TIME.days)
    if job is None or task.undone_at is not None:
        task.undone_at = task.undo_restored = task.undo_removed = None
        job = enqueue_job(uow, UNDO_IMPORT, user_id=caller.user_id, subject_id=task.id)
        task.undo_job_id = job.id
    elif job.status in (JobStatus.FAILED, JobStatus.CANCELLED):
        records.retry_locked_job(uow, job)
    return job.id
