"""Imports as their owner finds, lists and undoes them."""

from sqlalchemy import select

from core.refusals.imports import IMPORT_NOT_FOUND, IMPORT_RUNNING
from models import Job, JobStatus, MemberImport
from services.access.caller import Caller
from services.jobs import outbox, records
from services.mailing.imports.undo import UNDO_IMPORT
from storage.unit_of_work import UnitOfWork


def get(uow: UnitOfWork, caller: Caller, import_id: int, *, lock: bool = False) -> MemberImport:
    """One of the caller's imports; raises ``import.not_found``."""
    query = select(MemberImport).where(
        MemberImport.id == import_id, MemberImport.user_id == caller.user_id
    )
    # Must not keep out a transaction that refers to the row, as one that applies a chunk does.
    found = uow.session.scalar(query.with_for_update(key_share=True) if lock else query)
    if found is None:
        raise IMPORT_NOT_FOUND()
    return found


def list_of(
    uow: UnitOfWork, caller: Caller, *, list_id: int | None, offset: int, limit: int
) -> list[MemberImport]:
    """The caller's imports into one list or into all, newest first."""
    query = select(MemberImport).where(MemberImport.user_id == caller.user_id)
    if list_id is not None:
        query = query.where(MemberImport.list_id == list_id)
    query = query.order_by(MemberImport.id.desc()).offset(offset).limit(limit)
    return list(uow.session.scalars(query))


def undo(uow: UnitOfWork, caller: Caller, import_id: int, request_id: str | None) -> int | None:
    """The job that undoes an import: one job until the undo is done, then ``None``.

    A failed or cancelled job is started again. Raises ``import.not_found``, ``import.running``.
    """
    task = get(uow, caller, import_id, lock=True)
    if task.status == "running":
        raise IMPORT_RUNNING()
    if task.undone_at is not None:
        return None
    job = uow.session.get(Job, task.undo_job_id, with_for_update=True) if task.undo_job_id else None
    if job is None:
        job = outbox.enqueue(
            uow, UNDO_IMPORT, user_id=caller.user_id, subject_id=task.id, request_id=request_id
        )
        task.undo_job_id = job.id
    elif job.status in (JobStatus.FAILED, JobStatus.CANCELLED):
        records.restart(uow, job)
    return job.id
