"""Imports as their owner finds, lists and undoes them."""

from datetime import datetime, timedelta

from sqlalchemy import bindparam, func, select

from core.refusals.imports import IMPORT_NOT_FOUND, IMPORT_RUNNING, IMPORT_UNDO_OVER
from models import Job, JobStatus, MemberImport
from services.access.caller import Caller
from services.jobs import outbox, records
from services.mailing.imports.undo import UNDO_IMPORT
from services.paging import newest_first
from storage.unit_of_work import UnitOfWork

# What an undo needs is kept for this long after it was written, which is after `created_at`.
UNDO_TIME = timedelta(days=90)


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
    uow: UnitOfWork, caller: Caller, *, list_id: int | None, offset: int, limit: int
) -> list[MemberImport]:
    """The caller's imports into one list or into all, newest first."""
    query = newest_first(
        select(MemberImport), MemberImport.user_id, caller.user_id, MemberImport.id
    )
    if list_id is not None:
        query = query.where(MemberImport.list_id == list_id)
    return list(uow.session.scalars(query.offset(offset).limit(limit)))


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
