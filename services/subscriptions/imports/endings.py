"""Ends imports, stores their results, informs their owners and removes the imported files."""

from datetime import timedelta
from typing import Any

from sqlalchemy import delete, func, select

from core.errors.imports import (
    IMPORT_ENCODING_NEEDED,
    IMPORT_NO_ROWS,
    MEMBERS_ALL_INVALID,
)
from core.settings.notations import PlanQuota
from models import Job, MailingList, MemberImport, User, WaitingChunk
from services import removals
from services.access import quotas
from services.accounts import account_mails
from services.accounts.account_mails import MailKind, MailLimit
from services.feed.catalogue import FeedEventType, announce_event
from services.jobs.lease import Lease
from services.jobs.records import RETRY_INPUT_RETENTION, describe_error, is_retry_sensible
from services.jobs.transitions import complete_job, fail_job
from services.subscriptions.imports.chunks import request_reports
from services.subscriptions.imports.chunks.verdicts import COUNTS
from storage.unit_of_work import UnitOfWork

# How long the file of a dry run is kept, so that the owner can import the file without a second
# upload.
DRY_RUN_FILE_RETENTION = timedelta(days=1)
# The maximum number of dry-run files per owner, because no plan limits the size of dry-run files.
MAX_DRY_RUN_FILES = 3
_MAX_RECENT_IMPORTS = 100
# Result mails are limited, because an API client may start many imports.
_MAIL_LIMIT = MailLimit(20, timedelta(hours=1))
MAX_TITLE_CHARACTERS = 60
_NO_FILENAME = "a file"


def end_import(uow: UnitOfWork, lease: Lease, task: MemberImport) -> None:
    if not task.received:
        fail_job(uow, lease, IMPORT_NO_ROWS())
    elif task.source == "members" and task.received == task.invalid:
        fail_job(uow, lease, MEMBERS_ALL_INVALID())
    elif task.over_quota:
        error = quotas.build_exceeded_error(uow, task.user_id, PlanQuota.MEMBERS)
        fail_job(uow, lease, error)
    else:
        complete_job(uow, lease, build_result(task) | request_reports.read_report(uow, task))
        task.status = "succeeded"
        _finish(uow, task, lease.job_id)


def end_with_job(uow: UnitOfWork, job: Job) -> None:
    """End an import whose job failed or was cancelled.

    The owner can still undo the changes that the import made before its job ended.
    """
    task = uow.session.get(MemberImport, job.subject_id)
    if task is not None:
        task.status = job.status
        task.error = describe_error(job)
        task.side_by_side = False
        keep_for = RETRY_INPUT_RETENTION if is_retry_sensible(job) else timedelta(0)
        if task.error is not None and task.error["code"] == IMPORT_ENCODING_NEEDED.code:
            # Keep the file, because the owner must compare some rows of the file to choose the
            # encoding.
            keep_for = DRY_RUN_FILE_RETENTION
        _finish(uow, task, job.id, keep_for=keep_for)


def _finish(
    uow: UnitOfWork, task: MemberImport, job_id: int, *, keep_for: timedelta = timedelta(0)
) -> None:
    """Announce the end of an import, mail the owner, and schedule the removal of the file."""
    announce_event(
        uow,
        task.user_id,
        FeedEventType.IMPORT_ENDED,
        task.id,
        job_id=job_id,
        **{name: getattr(task, name) for name in ("list_id", "status", "source", "dry_run")},
        **{name: getattr(task, name) for name in COUNTS},
    )
    _mail_owner(uow, task)
    task.finished_at = func.now()
    # A restarted import job inserts the rows into ``waiting_chunks`` again.
    uow.session.execute(delete(WaitingChunk).where(WaitingChunk.import_id == task.id))
    if task.dry_run and task.source == "file" and not task.by_operator:
        _remove_older_dry_runs(uow, task)
        if task.status != "cancelled":
            keep_for = max(keep_for, DRY_RUN_FILE_RETENTION)
    removals.forget_objects(uow, f"{task.object_prefix}/", after=keep_for)


def _remove_older_dry_runs(uow: UnitOfWork, task: MemberImport) -> None:
    are_earlier = MemberImport.user_id == task.user_id, MemberImport.id != task.id
    recent = select(MemberImport).where(*are_earlier).order_by(MemberImport.id.desc())
    dry_runs = [
        recent_import
        for recent_import in uow.session.scalars(recent.limit(_MAX_RECENT_IMPORTS))
        if recent_import.dry_run and recent_import.finished_at
    ]
    for dry_run in dry_runs[MAX_DRY_RUN_FILES - 1 :][:MAX_DRY_RUN_FILES]:
        key = f"{dry_run.object_prefix}/"
        # Remove the dry-run file immediately, because the owner could still import a file whose
        # removal is only scheduled.
        if removals.keep_object(uow, key):
            removals.forget_objects(uow, key)


def restart_with_job(uow: UnitOfWork, job: Job) -> bool:
    """Prepare a failed import for a restart of its job.

    An import that was undone can't be restarted, because the undo wouldn't remove the members that
    the restart adds.
    """
    task = _lock_unless_being_undone(uow, job.subject_id)
    if task is None or task.files_removed_at is not None or task.undone_at is not None:
        return False
    if not removals.keep_object(uow, f"{task.object_prefix}/"):
        return False
    task.status = "running"
    task.error = None
    task.finished_at = None
    # Reset the undo to the first member, because the restarted import may change members that an
    # unfinished undo has processed.
    task.undo_restored = None
    task.undo_removed = None
    return True


def _lock_unless_being_undone(uow: UnitOfWork, import_id: int | None) -> MemberImport | None:
    """Lock an import, so that no undo of the import can start until the transaction ends.

    Return ``None`` if an undo of the import is already in progress.
    """
    task = uow.session.get(MemberImport, import_id)
    if task is None:
        return None
    # To prevent deadlocks, lock the undo's job before the import, as at the start of an undo.
    undo_id = task.undo_job_id
    undo = uow.session.get(Job, undo_id, with_for_update=True) if undo_id else None
    query = select(MemberImport).where(MemberImport.id == import_id)
    query = query.with_for_update(key_share=True).execution_options(populate_existing=True)
    task = uow.session.scalars(query).one()
    is_in_progress = undo is not None and undo.finished_at is None
    has_just_begun = task.undo_job_id != undo_id
    return None if is_in_progress or has_just_begun else task


def build_result(task: MemberImport) -> dict[str, Any]:
    counts = {name: getattr(task, name) for name in COUNTS}
    result = {**counts, "import_id": task.id, "dry_run": task.dry_run}
    if task.columns is None:
        return result
    return {
        **result,
        "left_out": task.left_out,
        "unknown_status": task.unknown_status,
        **get_columns(task),
        **get_sheets(task),
    }


def get_columns(task: MemberImport) -> dict[str, Any]:
    columns = task.columns or {}
    return {name: columns.get(name, []) for name in ("columns", "ignored_columns")}


def get_sheets(task: MemberImport) -> dict[str, Any]:
    description = task.description or {}
    if not description.get("sheets"):
        return {}
    return {name: description.get(name) for name in ("sheet", "sheets")}


def _mail_owner(uow: UnitOfWork, task: MemberImport) -> None:
    """Mail the result of a file import to the owner, unless the owner has disabled result mails.

    Imports of members in an API request and imports by an operator send no mail, because somebody
    is waiting for the result.
    """
    needs_mail = task.source == "file" and not (task.dry_run or task.by_operator)
    if not needs_mail or task.status == "cancelled":
        return
    owner = uow.session.get_one(User, task.user_id)
    if not owner.import_mails or owner.erased_at is not None:
        return
    title = uow.session.get_one(MailingList, task.list_id).title
    file = _shorten(task.filename or _NO_FILENAME)
    end = "has finished." if task.error is None else f"failed: {task.error['message']}"
    results = [
        f"{task.added:,} added",
        f"{task.already:,} already members ({task.updated:,} updated)",
        f"{task.opted_out:,} opted out",
        f"{task.invalid:,} invalid",
        f"{task.duplicate:,} duplicate",
    ]
    if task.denied:
        results.append(f"{task.denied:,} blocked by a deny list")
    if task.over_quota:
        results.append(f"{task.over_quota:,} over the limit of your plan")
    sentences = [
        f"The import of {file} into {_shorten(title)} {end}",
        f"Results for {task.received:,} rows: {', '.join(results)}.",
    ]
    if task.left_out:
        sentences.append(f"Left out because they don't fit their fields: {task.left_out:,} values.")
    detail = " ".join(sentences)
    account_mails.enqueue_mail(uow, MailKind.IMPORT_ENDED, owner, detail, limit=_MAIL_LIMIT)


def _shorten(text: str) -> str:
    if len(text) > MAX_TITLE_CHARACTERS:
        text = text[: MAX_TITLE_CHARACTERS - 1] + "…"
    return f"“{text}”"
