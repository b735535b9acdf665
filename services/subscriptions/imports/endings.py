"""The end of an import: its status, its result, and what becomes of its file."""

from datetime import timedelta
from typing import Any

from sqlalchemy import delete, func, select

from core.errors.imports import IMPORT_ENCODING_NEEDED, IMPORT_NO_ROWS, MEMBERS_ALL_INVALID
from core.settings.notations import PlanQuota
from models import AccountMail, Job, MailingList, MemberImport, User, WaitingChunk
from services import removals
from services.access import quotas
from services.accounts import account_mails
from services.accounts.account_mails import MailKind
from services.feed.catalogue import FeedEventType, announce
from services.jobs.lease import Lease
from services.jobs.records import KEPT_FOR_RETRY, describe_error, is_retry_sensible
from services.jobs.transitions import complete_job, fail_job
from services.subscriptions.imports.verdicts import COUNTS
from storage.unit_of_work import UnitOfWork

# The file of a dry run stays for as long, so that its owner can look again, or import it.
DRY_RUN_FILE_KEPT = timedelta(days=1)
# For each owner: no plan bounds what they take.
MAX_DRY_RUN_FILES = 3
_LATEST = 100
NOTICE_WINDOW = timedelta(hours=1)
# A program may import all day; its owner gets no more mails than they read.
MAX_NOTICES_PER_WINDOW = 20
MAX_TITLE_CHARACTERS = 60
_UNNAMED = "a file"


def end(uow: UnitOfWork, lease: Lease, task: MemberImport) -> None:
    """End an import whose chunks are all applied, and its job; raises ``LeaseLost``."""
    if not task.received:
        fail_job(uow, lease, IMPORT_NO_ROWS())
    elif task.source == "members" and task.received == task.invalid:
        fail_job(uow, lease, MEMBERS_ALL_INVALID())
    elif task.over_quota:
        error = quotas.exceeded(uow, task.user_id, PlanQuota.MEMBERS)
        fail_job(uow, lease, error)
    else:
        complete_job(uow, lease, result_of(task))
        task.status = "succeeded"
        _finish(uow, task, lease.job_id)


def end_with_job(uow: UnitOfWork, job: Job) -> None:
    """End the import with its job. Applied chunks stay, and can be undone."""
    task = uow.session.get(MemberImport, job.subject_id)
    if task is not None:
        task.status, task.error, task.side_by_side = job.status, describe_error(job), False
        keep_for = KEPT_FOR_RETRY if is_retry_sensible(job) else timedelta(0)
        if task.error is not None and task.error["code"] == IMPORT_ENCODING_NEEDED.code:
            # Keep the file, because the owner must see some rows of the file to choose the
            # encoding.
            keep_for = DRY_RUN_FILE_KEPT
        _finish(uow, task, job.id, keep_for=keep_for)


def _finish(
    uow: UnitOfWork, task: MemberImport, job_id: int, *, keep_for: timedelta = timedelta(0)
) -> None:
    """Announce the end, and remove the file: the verdicts on its rows are in the database."""
    announce(
        uow,
        task.user_id,
        FeedEventType.IMPORT_ENDED,
        task.id,
        job_id=job_id,
        **{name: getattr(task, name) for name in ("list_id", "status", "source", "dry_run")},
        **{name: getattr(task, name) for name in COUNTS},
    )
    tell_owner(uow, task)
    task.finished_at = func.now()
    # Chunks that are left are found anew when its job is started again.
    uow.session.execute(delete(WaitingChunk).where(WaitingChunk.import_id == task.id))
    if task.dry_run and task.source == "file" and not task.by_operator:
        own, id_ = MemberImport.user_id == task.user_id, MemberImport.id
        lately = select(MemberImport).where(own, id_ != task.id).order_by(id_.desc()).limit(_LATEST)
        kept = [each for each in uow.session.scalars(lately) if each.dry_run and each.finished_at]
        for each in kept[MAX_DRY_RUN_FILES - 1 :][:MAX_DRY_RUN_FILES]:
            key = f"{each.object_prefix}/"
            # Brought forward: one removal that is left would pass for a file that is there.
            if removals.keep(uow, key):
                removals.forget(uow, key)
        if task.status != "cancelled":
            keep_for = max(keep_for, DRY_RUN_FILE_KEPT)
    removals.forget(uow, f"{task.object_prefix}/", after=keep_for)


def go_on_with_job(uow: UnitOfWork, job: Job) -> bool:
    """Go on with an import that failed; not once it is undone: what it adds would stay."""
    task = _held_before_undo(uow, job.subject_id)
    if task is None or task.files_removed_at is not None or task.undone_at is not None:
        return False
    if not removals.keep(uow, f"{task.object_prefix}/"):
        return False
    task.status, task.error, task.finished_at = "running", None, None
    # An undo takes back what it adds from now on too.
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


def result_of(task: MemberImport) -> dict[str, Any]:
    """The result of the import's job: the counts, and which import it was."""
    counts = {name: getattr(task, name) for name in COUNTS}
    result = {**counts, "import_id": task.id, "dry_run": task.dry_run}
    if task.columns is None:
        return result
    left_out, unknown_status = task.left_out, task.unknown_status
    return {
        **result,
        "left_out": left_out,
        "unknown_status": unknown_status,
        **columns_of(task),
    }


def columns_of(task: MemberImport) -> dict[str, Any]:
    """Return the meanings of the columns of the file, and the ignored columns."""
    found = task.columns or {}
    return {name: found.get(name, []) for name in ("columns", "ignored_columns")}


def tell_owner(uow: UnitOfWork, task: MemberImport) -> None:
    """Mail the owner how the import of a file ended, unless they want no such mails.

    A program waits for members of a request, and the operator sees what a command did.
    """
    is_told = task.source == "file" and not (task.dry_run or task.by_operator)
    if not is_told or task.status == "cancelled":
        return
    owner = uow.session.get_one(User, task.user_id)
    if not owner.import_mails or owner.erased_at is not None:
        return
    lately = select(func.count()).where(
        AccountMail.email == owner.email,
        AccountMail.kind == MailKind.IMPORT_ENDED,
        AccountMail.created_at > func.now() - NOTICE_WINDOW,
    )
    if (uow.session.scalar(lately) or 0) >= MAX_NOTICES_PER_WINDOW:
        return
    title = uow.session.get_one(MailingList, task.list_id).title
    file, into = _short(task.filename or _UNNAMED), _short(title)
    end = "has ended." if task.error is None else f"failed: {task.error['message']}"
    sentences = [
        f"The import of {file} into {into} {end}",
        (
            f"Of {task.received:,} rows {task.added:,} were added, {task.already:,} were members "
            f"already ({task.updated:,} of them got something new), {task.opted_out:,} said no, "
            f"{task.invalid:,} are invalid and {task.duplicate:,} came twice."
        ),
    ]
    if task.denied:
        sentences.append(f"{task.denied:,} are kept out by a deny list.")
    if task.over_quota:
        sentences.append(f"{task.over_quota:,} found no room in your plan.")
    if task.left_out:
        sentences.append(f"{task.left_out:,} values did not fit their fields and were left out.")
    account_mails.mail_person(uow, MailKind.IMPORT_ENDED, owner, " ".join(sentences))


def _short(text: str) -> str:
    cut = text if len(text) <= MAX_TITLE_CHARACTERS else text[: MAX_TITLE_CHARACTERS - 1] + "…"
    return f"“{cut}”"
