"""The ends of an import: with its job, and with its last chunk."""

from datetime import timedelta
from typing import Any

from sqlalchemy import delete, func, select

from core.errors import DomainError
from core.refusals.imports import IMPORT_NO_ROWS, MEMBERS_ALL_INVALID
from core.settings import Settings
from core.settings.plan_quotas import PlanQuota
from models import Job, MemberImport, WaitingChunk
from services import removals
from services.access import quotas
from services.feed.announcing import announce
from services.feed.catalogue import FeedEventType
from services.jobs import lease as leases
from services.jobs.lease import Lease
from services.jobs.records import KEPT_FOR_RETRY, error_shown, is_retry_sensible
from services.mailing.imports import notices
from storage.unit_of_work import UnitOfWork

VERDICTS = ("added", "already", "opted_out", "invalid", "duplicate", "denied")
COUNTS = ("received", *VERDICTS, "updated")
# The file of a dry run stays for as long, so that its owner can look again, or import it.
DRY_RUN_FILE_KEPT = timedelta(days=1)
# Of one owner: no plan bounds what they take.
MAX_DRY_RUN_FILES = 3
_LATEST = 100


def end_with_job(uow: UnitOfWork, job: Job) -> None:
    """End the import with its job. Applied chunks stay, and can be undone."""
    task = uow.session.get(MemberImport, job.subject_id)
    if task is not None:
        task.status, task.error, task.side_by_side = job.status, error_shown(job), False
        keep_for = KEPT_FOR_RETRY if is_retry_sensible(job) else timedelta(0)
        _finish(uow, task, job.id, keep_for=keep_for)


def go_on_with_job(uow: UnitOfWork, job: Job) -> bool:
    """Go on with an import that failed, with the chunks that are not applied.

    Not while it is undone, nor after: nothing would take back what it adds then.
    """
    task = _held_before_undo(uow, job.subject_id)
    if task is None or task.files_removed_at is not None or task.undone_at is not None:
        return False
    if not removals.keep(uow, f"{task.object_prefix}/"):
        return False
    task.status, task.error, task.finished_at = "running", None, None
    # What it adds from now on is taken back too.
    task.undo_restored = task.undo_removed = None
    return True


def _held_before_undo(uow: UnitOfWork, import_id: int | None) -> MemberImport | None:
    """The import, locked, unless its undo is under way; no undo begins or goes on meanwhile."""
    task = uow.session.get(MemberImport, import_id)
    if task is None:
        return None
    # The undo's job before the import, as who asks for an undo locks them.
    undo_id = task.undo_job_id
    undo = uow.session.get(Job, undo_id, with_for_update=True) if undo_id else None
    own = select(MemberImport).where(MemberImport.id == import_id)
    held = own.with_for_update(key_share=True).execution_options(populate_existing=True)
    task = uow.session.scalars(held).one()
    is_under_way = undo is not None and undo.finished_at is None
    # Or was begun just now.
    return None if is_under_way or task.undo_job_id != undo_id else task


def end(uow: UnitOfWork, settings: Settings, lease: Lease, task: MemberImport) -> None:
    """End an import whose chunks are all applied, and its job; raises ``LeaseLost``."""
    error = _refusal(uow, settings, task)
    if error is not None:
        leases.fail(uow, lease, error)
        return
    leases.succeed(uow, lease, result_of(task))
    task.status = "succeeded"
    _finish(uow, task, lease.job_id)


def _refusal(uow: UnitOfWork, settings: Settings, task: MemberImport) -> DomainError | None:
    if not task.received:
        return IMPORT_NO_ROWS()
    if task.source == "members" and task.received == task.invalid:
        return MEMBERS_ALL_INVALID()
    if task.over_quota:
        return quotas.exceeded(uow, settings, task.user_id, PlanQuota.MEMBERS)
    return None


def _finish(
    uow: UnitOfWork, task: MemberImport, job_id: int, *, keep_for: timedelta = timedelta(0)
) -> None:
    """Announce the end, and remove the file: the verdicts on its rows are in the database."""
    announce(
        uow,
        task.user_id,
        FeedEventType.IMPORT_ENDED,
        task.id,
        list_id=task.list_id,
        status=task.status,
        job_id=job_id,
        source=task.source,
        dry_run=task.dry_run,
        **{name: getattr(task, name) for name in COUNTS},
    )
    notices.tell_owner(uow, task)
    task.finished_at = func.now()
    # Those that are left are found anew when its job is started again.
    uow.session.execute(delete(WaitingChunk).where(WaitingChunk.import_id == task.id))
    if task.dry_run and task.source == "file" and not task.by_operator:
        _forget_files_before(uow, task)
        if task.status != "cancelled":
            keep_for = max(keep_for, DRY_RUN_FILE_KEPT)
    removals.forget(uow, f"{task.object_prefix}/", after=keep_for)


def _forget_files_before(uow: UnitOfWork, task: MemberImport) -> None:
    """Remove the files of earlier dry runs of the owner, but for the last ones."""
    own, id_ = MemberImport.user_id == task.user_id, MemberImport.id
    lately = select(MemberImport).where(own, id_ != task.id).order_by(id_.desc()).limit(_LATEST)
    kept = [each for each in uow.session.scalars(lately) if each.dry_run and each.finished_at]
    for each in kept[MAX_DRY_RUN_FILES - 1 :][:MAX_DRY_RUN_FILES]:
        key = f"{each.object_prefix}/"
        # Brought forward: one removal that is left would pass for a file that is there.
        if removals.keep(uow, key):
            removals.forget(uow, key)


def result_of(task: MemberImport) -> dict[str, Any]:
    """The result of the import's job: the counts, and which import it was."""
    counts = {name: getattr(task, name) for name in COUNTS}
    result = {**counts, "import_id": task.id, "dry_run": task.dry_run}
    if task.columns is None:
        return result
    return {**result, "left_out": task.left_out, **columns_of(task)}


def columns_of(task: MemberImport) -> dict[str, Any]:
    """What the columns of the file become, and those that are ignored."""
    found = task.columns or {}
    return {name: found.get(name, []) for name in ("columns", "ignored_columns")}
