"""Finds, lists, retries and undoes the imports of an owner."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, exists, func, not_, select
from sqlalchemy.orm import aliased

from core.errors import imports as errors
from core.errors.jobs import JOB_NOT_FOUND
from core.ids import AccountId
from core.settings.notations import PlanQuota
from models import ImportChunk, Job, MemberImport, NamedMember
from services import paging, removals
from services.access import quotas
from services.access.caller import Caller
from services.access.sessions import require_recent_login
from services.jobs import records
from services.jobs.outbox import enqueue_job
from services.paging import PageOfRows, PageRequest
from services.subscriptions.imports.accepting import check_upload
from services.subscriptions.imports.chunks.verdicts import COUNTS
from services.subscriptions.imports.import_job import (
    ADD_MEMBERS,
    ADD_MEMBERS_WITH_VALUES,
    IMPORT_FILE,
    IMPORT_SUPPRESSIONS,
)
from services.subscriptions.imports.import_options import ImportOptions
from services.subscriptions.imports.undo import IMPORT_UNDO
from storage.unit_of_work import UnitOfWork

IMPORT_JOBS = (ADD_MEMBERS, ADD_MEMBERS_WITH_VALUES, IMPORT_FILE, IMPORT_SUPPRESSIONS)
# The values of the database columns of an import whose file hasn't been read yet.
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


def get_import(
    uow: UnitOfWork, caller: Caller, import_id: int, *, lock: bool = False
) -> MemberImport:
    return IMPORT_UNDO.find_row(uow, caller, import_id, lock=lock)


def list_imports(
    uow: UnitOfWork, caller: Caller, page: PageRequest, *, list_id: int | None
) -> PageOfRows[MemberImport]:
    query = paging.select_owner_page(
        select(MemberImport), MemberImport.user_id, caller.account_id, page
    )
    if list_id is not None:
        query = query.where(MemberImport.list_id == list_id)
    return paging.read_page(uow, query, page)


def list_recent_failures(uow: UnitOfWork, account_id: AccountId) -> Sequence[MemberImport]:
    """Omit dismissed failures, and failures before a successful import of a file with the same name
    into the same list.
    """
    has_failed = MemberImport.status == "failed", MemberImport.dry_run.is_(False)
    is_recent = MemberImport.finished_at > func.now() - timedelta(days=7)
    is_dismissed = MemberImport.dismissed_at >= MemberImport.finished_at
    later = aliased(MemberImport)
    has_succeeded_later = exists().where(
        later.user_id == account_id,
        later.id > MemberImport.id,
        later.list_id == MemberImport.list_id,
        later.source == MemberImport.source,
        # Imports from API requests have no file name.
        later.filename == MemberImport.filename,
        later.status == "succeeded",
        later.dry_run.is_(False),
    )
    query = select(MemberImport).where(
        MemberImport.user_id == account_id,
        *has_failed,
        is_recent,
        is_dismissed.is_not(True),
        not_(has_succeeded_later),
    )
    return uow.session.scalars(query.order_by(MemberImport.id.desc()).limit(5)).all()


def find_import_of_job(uow: UnitOfWork, job: Job) -> MemberImport | None:
    if job.kind not in {kind.name for kind in IMPORT_JOBS}:
        return None
    return uow.session.get(MemberImport, job.subject_id)


def find_job(uow: UnitOfWork, task: MemberImport) -> Job | None:
    return records.find_unfinished_job(uow, task.user_id, IMPORT_JOBS, task.id)


def find_undo_job(uow: UnitOfWork, task: MemberImport) -> Job | None:
    return uow.session.get(Job, task.undo_job_id) if task.undo_job_id else None


def read_again(uow: UnitOfWork, caller: Caller, import_id: int, options: ImportOptions) -> Job:
    """Enqueue a job that reads the file of a dry run again, with different options.

    Raises ``import.running`` while the import is running. Raises ``import.file_gone`` if the
    import's file was removed.
    """
    task = get_import(uow, caller, import_id)
    check_upload(uow, caller, task.list_id, dry_run=options.dry_run)
    quotas.require_quota(uow, caller.account_id, PlanQuota.STORAGE_MB, more=task.size)
    task = get_import(uow, caller, import_id, lock=True)
    if task.status == "running":
        raise errors.IMPORT_RUNNING()
    # If the import's job failed because of an internal error, the owner must retry the job instead
    # of starting a second one.
    can_be_retried = task.error is not None and task.error["code"].startswith("job.")
    has_file = task.dry_run and not can_be_retried and task.undo_job_id is None
    if not has_file or not removals.keep_object(uow, f"{task.object_prefix}/"):
        raise errors.IMPORT_FILE_GONE()
    for model in (ImportChunk, NamedMember):
        uow.session.execute(delete(model).where(model.import_id == task.id))
    for name, value in {**_UNREAD, **options.stored_values}.items():
        setattr(task, name, value)
    task.created_at = func.now()
    uow.session.flush()
    return enqueue_job(uow, options.job_kind, account_id=task.user_id, subject_id=task.id)


def retry_import(uow: UnitOfWork, caller: Caller, import_id: int) -> None:
    """Retry an import whose job failed because of an internal error.

    Raises ``job.not_found`` if the import's job doesn't exist.
    """
    task = get_import(uow, caller, import_id)
    job = records.find_recent_job(uow, task.user_id, IMPORT_JOBS, task.id)
    if job is None:
        raise JOB_NOT_FOUND()
    records.retry_own_job(uow, caller, job.id)


def undo_import(uow: UnitOfWork, caller: Caller, import_id: int) -> int | None:
    """Start or continue the undo of an import. Return the id of its job, or ``None`` if nothing is
    left to undo.
    """
    require_recent_login(uow, caller)
    return IMPORT_UNDO.start(uow, caller, import_id)
