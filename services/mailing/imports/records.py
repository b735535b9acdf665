from sqlalchemy import select

from core.refusals.imports import IMPORT_NOT_FOUND, IMPORT_RUNNING
from models import Job, JobStatus, MemberImport
from services.access.api_keys import Caller
from services.jobs import outbox, records
from services.mailing.imports.undo import UNDO_IMPORT
from storage.unit_of_work import UnitOfWork


def get(uow: UnitOfWork, caller: Caller, import_id: int, *, lock: bool = False) -> MemberImport:
    """One of the caller's imports; raises ``import.not_found``."""
    query = select(MemberImport).where(
        MemberImport.id == import_id, MemberImport.user_id == caller.user_id
    )
    # Not against who refers to it, as a chunk of it does that is being applied.
    found = uow.session.scalar(query.with_for_update(key_share=True) if lock else query)
    if found is None:
        raise IMPORT_NOT_FOUND()
    return found


def list_of(
    uow: UnitOfWork, caller: Caller, *, list_id: int | None, offset: int, limit: int
) -> list[MemberImport]:
    """The caller's imports, of one list or all, newest first."""
    query = select(MemberImport).where(MemberImport.user_id == caller.user_id)
    if list_id is not None:
        query = query.where(MemberImport.list_id == list_id)
    query = query.order_by(MemberImport.id.desc()).offset(offset).limit(limit)
    return list(uow.session.scalars(query))


def undo(uow: UnitOfWork, caller: Caller, import_id: int, request_id: str | None) -> int | None:
    """The job that takes an import back, the same one until it is done; ``None`` once it is.

    One that failed or was cancelled goes on. Raises ``import.not_found``, ``import.running``.
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
