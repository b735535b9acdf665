"""Imports as their owner finds, lists, looks at again and undoes them."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import bindparam, delete, func, select

from core.refusals.imports import (
    IMPORT_FILE_GONE,
    IMPORT_NOT_FOUND,
    IMPORT_RUNNING,
    IMPORT_UNDO_OVER,
)
from core.refusals.jobs import JOB_NOT_FOUND
from core.settings import Settings
from core.settings.plan_quotas import PlanQuota
from models import ImportChunk, ImportKind, Job, JobStatus, MemberImport
from services import paging, removals
from services.access import quotas
from services.access.caller import Caller
from services.jobs import outbox, records
from services.mailing.imports import accept
from services.mailing.imports.accept import ImportOptions
from services.mailing.imports.endings import COUNTS
from services.mailing.imports.import_jobs import ADD_MEMBERS, IMPORT_FILE, IMPORT_SUPPRESSIONS
from services.mailing.imports.undo import UNDO_IMPORT
from services.paging import PageOfRows, PageRequest
from storage.unit_of_work import UnitOfWork

# What an undo needs is kept for this long after it was written, which is after `created_at`.
UNDO_TIME = timedelta(days=90)

IMPORT_JOBS = (ADD_MEMBERS, IMPORT_FILE, IMPORT_SUPPRESSIONS)
# What an import is before its file is read.
_UNREAD: Mapping[str, Any] = {
    "status": "running",
    **dict.fromkeys(("error", "description", "columns", "samples", "finished_at")),
    **dict.fromkeys((*COUNTS, "left_out", "over_quota", "chunks", "chunk_bytes", "applied"), 0),
    **dict.fromkeys(("is_split", "side_by_side"), False),
}


def get(uow: UnitOfWork, caller: Caller, import_id: int, *, lock: bool = False) -> MemberImport:
    """One of the caller's imports; raises ``import.not_found``."""
    query = select(MemberImport).where(
        MemberImport.id == import_id, MemberImport.user_id == caller.user_id
    )
    # Must not keep out a transaction that refers to the row, as one that applies a chunk does.
    locked = query.with_for_update(key_share=True).execution_options(populate_existing=True)
    found = uow.session.scalar(locked if lock else query)
    if found is None:
        raise IMPORT_NOT_FOUND()
    return found


def list_of(
    uow: UnitOfWork, caller: Caller, wanted: PageRequest, *, list_id: int | None
) -> PageOfRows[MemberImport]:
    """The caller's imports into one list or into all, newest first. Raises ``cursor.invalid``."""
    task = MemberImport
    query = paging.of_owner(select(task), task.user_id, caller.user_id, task.id, wanted)
    if list_id is not None:
        query = query.where(task.list_id == list_id)
    found = uow.session.scalars(query).all()
    return paging.cut(found, wanted.limit, lambda task: str(task.id))


def job_of(uow: UnitOfWork, task: MemberImport) -> Job | None:
    """The job that works on the import; ``None`` once it has ended."""
    return records.find_unfinished(uow, task.user_id, IMPORT_JOBS, task.id)


def undo_job_of(uow: UnitOfWork, task: MemberImport) -> Job | None:
    """The last job that was to undo the import, as long as jobs are kept."""
    return uow.session.get(Job, task.undo_job_id) if task.undo_job_id else None


def read_again(
    uow: UnitOfWork,
    settings: Settings,
    caller: Caller,
    import_id: int,
    options: ImportOptions,
    *,
    request_id: str | None,
) -> Job:
    """Read the file of a dry run once more: to look at it by other options, or to import it.

    The record is that of the new reading then. Raises ``import.not_found``, ``import.running``,
    ``import.file_gone``, and what ``accept.check_upload`` raises.
    """
    task = get(uow, caller, import_id)
    accept.check_upload(uow, settings, caller, task.list_id, dry_run=options.dry_run)
    quotas.require(uow, settings, caller.user_id, PlanQuota.STORAGE_MB, more=task.size)
    task = get(uow, caller, import_id, lock=True)
    if task.status == "running":
        raise IMPORT_RUNNING()
    # The job of one that broke may be started again, and two jobs must not do the work of one.
    broke = task.error is not None and task.error["code"].startswith("job.")
    may_go_on = task.dry_run and not broke and task.undo_job_id is None
    if not may_go_on or not removals.keep(uow, f"{task.object_prefix}/"):
        raise IMPORT_FILE_GONE()
    uow.session.execute(delete(ImportChunk).where(ImportChunk.import_id == task.id))
    for name, value in {**_UNREAD, **options.columns}.items():
        setattr(task, name, value)
    uow.session.flush()
    kind = IMPORT_FILE if options.kind is ImportKind.MEMBERS else IMPORT_SUPPRESSIONS
    return outbox.enqueue(
        uow, kind, user_id=task.user_id, subject_id=task.id, request_id=request_id
    )


def retry(uow: UnitOfWork, caller: Caller, import_id: int, *, settings: Settings) -> None:
    """Go on with an import whose job failed by no fault of the file.

    Raises ``import.not_found``, ``job.not_found`` when the job is not kept any more, and what
    ``jobs.records.retry`` raises.
    """
    task = get(uow, caller, import_id)
    job = records.find_late(uow, task.user_id, IMPORT_JOBS, task.id)
    if job is None:
        raise JOB_NOT_FOUND()
    records.retry(uow, caller, job.id, settings=settings)


def undo_until(task: MemberImport) -> datetime | None:
    """Until when the import can be undone; ``None`` while it runs, and after its undo."""
    if task.finished_at is None or task.undone_at is not None:
        return None
    return task.created_at + UNDO_TIME


def undo(uow: UnitOfWork, caller: Caller, import_id: int, request_id: str | None) -> int | None:
    """The job that undoes an import: one job until the undo is done, then ``None``.

    A failed or cancelled job is started again. Raises ``import.not_found``, ``import.running``,
    ``import.undo_over``.
    """
    # The job before the import, as a transaction that takes a batch back locks them.
    job_id = get(uow, caller, import_id).undo_job_id
    if job_id is not None:
        uow.session.get(Job, job_id, with_for_update=True)
    task = get(uow, caller, import_id, lock=True)
    if task.status == "running":
        raise IMPORT_RUNNING()
    if task.undone_at is not None:
        return None
    job = uow.session.get(Job, task.undo_job_id, with_for_update=True) if task.undo_job_id else None
    goes_on = job is not None and job.finished_at is None
    # By the database's clock, as what an undo needs is deleted by it.
    if not goes_on and not uow.session.scalar(_IS_OFFERED, {"import_id": task.id}):
        raise IMPORT_UNDO_OVER(days=UNDO_TIME.days)
    if job is None:
        job = outbox.enqueue(
            uow, UNDO_IMPORT, user_id=caller.user_id, subject_id=task.id, request_id=request_id
        )
        task.undo_job_id = job.id
    elif job.status in (JobStatus.FAILED, JobStatus.CANCELLED):
        records.restart(uow, job)
    return job.id


_IS_OFFERED = select(MemberImport.created_at > func.now() - UNDO_TIME).where(
    MemberImport.id == bindparam("import_id")
)
