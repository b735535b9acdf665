"""Imports as their owner finds, lists, looks at again and undoes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import orjson
from sqlalchemy import delete, func, select

from core.errors import DomainError
from core.errors import imports as errors
from core.errors.catalogue import ErrorType
from core.errors.jobs import JOB_NOT_FOUND
from core.errors.mailing import PLAN_REQUIRED
from core.settings.notations import PlanQuota
from models import ImportChunk, ImportKind, Job, JobStatus, MemberImport, NamedMember, Plan
from services import paging, removals
from services.access import quotas
from services.access.caller import Caller
from services.access.sessions import require_recent_login
from services.accounts import accounts
from services.jobs import idempotency, records
from services.jobs.idempotency import AcceptedJob, IdempotencyKey
from services.jobs.kinds import JobKind
from services.jobs.outbox import enqueue_job
from services.paging import PageOfRows, PageRequest
from services.subscriptions import bulk_files, lists
from services.subscriptions.bulk_files import IMPORTS, NewFile
from services.subscriptions.imports import encodings
from services.subscriptions.imports.consent_cells import check_status_values
from services.subscriptions.imports.dates import DateOrder
from services.subscriptions.imports.endings import COUNTS
from services.subscriptions.imports.import_jobs import ADD_MEMBERS, IMPORT_FILE, IMPORT_SUPPRESSIONS
from services.subscriptions.imports.undo import UNDO_IMPORT, UndoForecast, preview
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

MAX_MEMBERS_PER_REQUEST = 100_000
MAX_IMPORT_FILENAME_CHARACTERS = 255
MAX_STATUS_VALUES = 200


@dataclass(frozen=True)
class ImportOptions:
    """How the rows of a file are applied.

    Attributes:
        dry_run: judge every row, and change nothing.
        on_existing: ``update`` gives active members the file's name, tier and fields; ``skip``
            only adds the fields and tags that they lack.
        mapping: columns of the file, by name or index, and their roles.
        kind: what the rows are.
        create_fields: make fields of the columns that nothing else is known of.
        date_order: whether the day or the month comes first, in columns that don't show it.
        status_values: maps consent values in the file to the status that the owner assigned.
        encoding: the encoding of the file, one of ``encodings.ENCODINGS``; ``None`` to detect it.
    """

    dry_run: bool = False
    on_existing: str = "skip"
    mapping: Mapping[str, str] | None = None
    kind: ImportKind = ImportKind.MEMBERS
    create_fields: bool = False
    date_order: DateOrder | None = None
    status_values: Mapping[str, str] | None = None
    encoding: str | None = None

    @property
    def columns(self) -> dict[str, Any]:
        """As a record of an import keeps them."""
        mapping = dict(self.mapping) if self.mapping else None
        status_values = dict(self.status_values) if self.status_values else None
        return {**vars(self), "mapping": mapping, "status_values": status_values}

    @property
    def job_kind(self) -> JobKind:
        return IMPORT_FILE if self.kind is ImportKind.MEMBERS else IMPORT_SUPPRESSIONS


def read_encoding(name: str | None) -> str | None:
    """Return the value for ``ImportOptions.encoding``, or raise ``import.encoding``."""
    if name is None:
        return None
    encoding = encodings.read_encoding(name)
    if encoding is None:
        raise errors.IMPORT_ENCODING(encodings=", ".join(encodings.ENCODINGS))
    return encoding


def read_mapping(text: str | None, error: ErrorType) -> dict[str, str] | None:
    """``ImportOptions.mapping`` from JSON; raises ``error`` for text that can't be one."""
    if text is None:
        return None
    parsed = _read_texts(text)
    if parsed is None:
        raise error()
    return parsed


def read_status_values(text: str | None) -> dict[str, str] | None:
    """Parse ``ImportOptions.status_values`` from JSON; raises ``import.status_values``."""
    if text is None:
        return None
    parsed = _read_texts(text)
    if parsed is None or len(parsed) > MAX_STATUS_VALUES:
        reason = f"It can have up to {MAX_STATUS_VALUES} values, and all of them must be strings."
        raise errors.IMPORT_STATUS_VALUES(reason=reason)
    check_status_values(parsed)
    return parsed


def _read_texts(text: str) -> dict[str, str] | None:
    """Parse a JSON object whose values are strings; return ``None`` for any other text."""
    try:
        parsed = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(parsed, dict) or not all(
        isinstance(each, str) and "\0" not in each for pair in parsed.items() for each in pair
    ):
        return None
    return parsed


def display_filename(filename: str | None) -> str | None:
    """The file's name as it is stored: bounded, without folders and unprintable characters."""
    name = (filename or "").replace("\\", "/").rpartition("/")[2]
    return "".join(filter(str.isprintable, name))[-MAX_IMPORT_FILENAME_CHARACTERS:] or None


def new_file(resources: Resources) -> NewFile:
    """Where the file of a new import is stored."""
    return bulk_files.new_file(resources, IMPORTS)


def forget_file(resources: Resources, prefix: str) -> None:
    """Have the objects of an import removed that was not accepted."""
    with resources.unit_of_work() as uow:
        removals.forget(uow, f"{prefix}/")


def check_owner(uow: UnitOfWork, caller: Caller, list_id: int, *, dry_run: bool = False) -> None:
    """Raises ``list.not_found``, ``list.not_owner`` and, but for a dry run, ``plan.required``."""
    lists.owned(uow, caller, list_id)
    if not dry_run and accounts.get(uow, caller.user_id).plan != Plan.PAID:
        raise PLAN_REQUIRED()


def check_upload(uow: UnitOfWork, caller: Caller, list_id: int, *, dry_run: bool) -> None:
    """Refuse before a file is read what would be refused after it.

    The quota of members does not count yet: the opt-outs of the file are to be kept. Raises what
    ``check_owner`` raises, and ``quota.exceeded``.
    """
    check_owner(uow, caller, list_id, dry_run=dry_run)
    for quota in (PlanQuota.UNFINISHED_JOBS, PlanQuota.STORAGE_MB):
        quotas.require(uow, caller.user_id, quota)


def accept_members(
    resources: Resources, caller: Caller, list_id: int, body: bytes, *, key: IdempotencyKey | None
) -> AcceptedJob:
    """Accept the members of one request, whose body has been checked.

    Raises what ``check_owner`` and ``services.jobs.idempotency`` raise, and ``quota.exceeded``.
    """
    with resources.unit_of_work() as uow:
        check_owner(uow, caller, list_id)

    earlier = idempotency.find_accepted(resources, key)
    if earlier is not None:
        return earlier
    file = new_file(resources)
    file.writer.write(body)
    file.writer.close()
    return _accept(
        resources,
        file,
        {"list_id": list_id, "user_id": caller.user_id, "source": "members", "size": len(body)},
        ADD_MEMBERS,
        takes={PlanQuota.STORAGE_MB: len(body)},
        key=key,
    )


def accept_file(
    resources: Resources,
    user_id: int,
    list_id: int,
    *,
    file: NewFile,
    filename: str | None,
    options: ImportOptions,
    by_operator: bool = False,
) -> AcceptedJob:
    """Accept a file that was written, for a user whose rights were checked.

    Raises ``quota.exceeded`` unless it comes ``by_operator``; the file is forgotten then.
    """
    size = file.writer.size
    values = {
        "list_id": list_id,
        "user_id": user_id,
        "source": "file",
        "filename": display_filename(filename),
        "size": size,
        "by_operator": by_operator,
        **options.columns,
    }
    takes = {} if by_operator else {PlanQuota.UNFINISHED_JOBS: 1, PlanQuota.STORAGE_MB: size}
    return _accept(resources, file, values, options.job_kind, takes=takes)


def _accept(
    resources: Resources,
    file: NewFile,
    values: Mapping[str, Any],
    kind: JobKind,
    *,
    takes: Mapping[PlanQuota, int],
    key: IdempotencyKey | None = None,
) -> AcceptedJob:
    """Store the import with its job. If the import isn't accepted, its file is forgotten."""

    def store_import(uow: UnitOfWork) -> Job:
        for quota, more in takes.items():
            quotas.require(uow, values["user_id"], quota, more=more)
        task = MemberImport(**values)
        file.name_in(task)
        uow.session.add(task)
        uow.session.flush()
        return enqueue_job(uow, kind, user_id=task.user_id, subject_id=task.id)

    try:
        accepted = idempotency.accept_once(resources, key, store_import)
    except DomainError:
        forget_file(resources, file.prefix)
        raise
    if accepted.replayed:
        forget_file(resources, file.prefix)
    return accepted


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
    for name, value in {**_UNREAD, **options.columns}.items():
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
