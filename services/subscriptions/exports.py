"""Exports: a list written to a file from one consistent view of the database.

The ``members`` export is for the list's owner. The ``delivery`` export, a roster, is for the sender
of the list's mail: it names the people who get the mail, each with a trace id that stands for that
person. Only a credential with the scope ``delivery`` may have a roster made, for any list.
"""

import gzip
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import undefer

from core import ids
from core.errors import TransientError
from core.errors import mailing as errors
from core.errors.media import MEDIA_DAMAGED
from core.queues import Queue
from core.scopes import Scope
from core.settings.notations import PlanQuota
from models import Job, JobStatus, MailingList, MemberExport, SubscriptionStatus
from services import paging, removals
from services.access import quotas
from services.access.caller import Caller, require_scope
from services.access.sessions import require_recent_login
from services.accounts import accounts
from services.feed.catalogue import FeedEventType, announce
from services.jobs.kinds import JobKind, call_with_subject, register_kind
from services.jobs.lease import JobCancelled, Lease, renew_lease
from services.jobs.outbox import enqueue_job
from services.jobs.transitions import complete_job
from services.paging import PageOfRows, PageRequest
from services.security_events import EventType, record_event
from services.subscriptions import bulk_files, export_sheets, lists, segments
from services.subscriptions.bulk_files import EXPORTS
from services.subscriptions.export_sheets import ExportFormat, ExportKind, Sheet, Values
from storage.encryption import Tampered
from storage.parts import StoredFile
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# Rows that are fetched, written and compressed together.
_ROWS_AT_ONCE = 5_000
COMPRESSION = 6
# Longer than any list takes: the rows bound the work, and the job can be cancelled.
_MAX_TIME = timedelta(hours=1)
# Longer than any attempt takes.
_UNFINISHED_FOR = timedelta(days=1)


def _abandon(uow: UnitOfWork, export: MemberExport, job_id: int, status: str) -> None:
    """End the export, and remove its unfinished file."""
    export.finished_at = func.now()
    removals.forget_objects(uow, f"{export.object_prefix}/")
    _announce_end(uow, export, job_id, status)


def _announce_end(uow: UnitOfWork, export: MemberExport, job_id: int, status: str) -> None:
    announce(
        uow,
        export.user_id,
        FeedEventType.EXPORT_ENDED,
        export.id,
        list_id=export.list_id,
        status=status,
        job_id=job_id,
        kind=export.kind,
        rows=export.rows,
    )


@dataclass(frozen=True)
class ExportOrder:
    """The order of a caller: the members of a segment, or of a filter that is written as JSON.

    Attributes:
        statuses: the statuses of the members to export, or ``None`` to use the default statuses.
        bom: whether the file begins with a byte-order mark, so that Excel opens the file as UTF-8.
    """

    kind: ExportKind
    segment_id: int | None = None
    written: Any = None
    statuses: tuple[SubscriptionStatus, ...] | None = None
    form: ExportFormat = ExportFormat.CSV
    bom: bool = False


def begin_export(uow: UnitOfWork, caller: Caller, list_id: int, order: ExportOrder) -> Job:
    """Start an export of the list. Quotas don't apply to the sender, who gets rosters.

    Raises ``auth.insufficient_scope``, ``auth.login_again``, ``list.not_found``,
    ``list.not_owner``, and the errors of ``segments.choose_filter``. An export of members also
    raises ``quota.exceeded``, and a roster ``list.email_channel_disabled`` and
    ``export.status_of_roster``. Raises ``export.bom`` if a byte-order mark is requested for
    anything but a CSV of members.
    """
    require_scope(caller, EXPORT_JOBS[order.kind].scope)
    require_recent_login(uow, caller)
    if order.kind is ExportKind.MEMBERS:
        lists.get_own_list(uow, caller, list_id)
        quotas.require_quota(uow, caller.user_id, PlanQuota.UNFINISHED_JOBS)
    elif order.statuses is not None:
        raise errors.EXPORT_STATUS_OF_ROSTER()
    if order.bom and (order.kind, order.form) != (ExportKind.MEMBERS, ExportFormat.CSV):
        raise errors.EXPORT_BOM()
    mailing_list = lists.get_list(uow, list_id)
    kept = segments.choose_filter(uow, mailing_list, order.segment_id, order.written)
    if order.kind is ExportKind.MEMBERS:
        quotas.require_quota(
            uow, caller.user_id, PlanQuota.STORAGE_MB, more=quotas.count_row_bytes(kept)
        )
    statuses = None if order.statuses is None else [*order.statuses]
    return enqueue_export(
        uow,
        caller.user_id,
        mailing_list,
        order.kind,
        filter=kept,
        statuses=statuses,
        format=order.form,
        bom=order.bom,
    )


def enqueue_export(
    uow: UnitOfWork, user_id: int, mailing_list: MailingList, kind: ExportKind, **chosen: Any
) -> Job:
    """Start an export for a user whose rights were checked.

    ``chosen``: other columns of the export, such as the ``filter`` as ``member_filter`` keeps it.
    """
    if kind is ExportKind.DELIVERY and not mailing_list.email_channel_enabled:
        raise errors.LIST_EMAIL_CHANNEL_DISABLED()
    # The first attempt names its own file.
    prefix = EXPORTS + ids.random_hash_id(20)
    export = MemberExport(
        list_id=mailing_list.id, user_id=user_id, kind=kind, object_prefix=prefix, **chosen
    )
    uow.session.add(export)
    uow.session.flush()
    record_event(
        uow,
        user_id,
        EventType.EXPORT_CREATED,
        export_id=export.id,
        list_id=mailing_list.id,
        kind=kind,
    )
    return enqueue_job(uow, EXPORT_JOBS[kind], user_id=user_id, subject_id=export.id)


def get_export(uow: UnitOfWork, caller: Caller, export_id: int) -> MemberExport:
    """Return one of the caller's exports; raises ``export.not_found``."""
    export = uow.session.get(MemberExport, export_id, options=[undefer(MemberExport.filter)])
    if export is None or export.user_id != caller.user_id:
        raise errors.EXPORT_NOT_FOUND()
    return export


def list_exports(uow: UnitOfWork, caller: Caller, wanted: PageRequest) -> PageOfRows[MemberExport]:
    """The caller's exports of all lists, newest first. Raises ``cursor.invalid``."""
    query = paging.of_owner(select(MemberExport), MemberExport.user_id, caller.user_id, wanted)
    return paging.read(uow, query, wanted)


def get_finished_export(
    uow: UnitOfWork, export_id: int, form: ExportFormat = ExportFormat.CSV
) -> tuple[MemberExport, MailingList]:
    """Raises ``export.not_found``, also when the file was removed."""
    export = uow.session.get(MemberExport, export_id)
    if export is None or export.size is None or export.files_removed_at is not None:
        raise errors.EXPORT_NOT_FOUND()
    if export.format != form or accounts.get_user(uow, export.user_id).erased_at is not None:
        raise errors.EXPORT_NOT_FOUND()
    return export, uow.session.get_one(MailingList, export.list_id)


def open_file(resources: Resources, export: MemberExport) -> StoredFile:
    """The file of a finished export; raises ``media.damaged``."""
    try:
        return bulk_files.stored_file(resources, export)
    except Tampered as error:
        raise MEDIA_DAMAGED() from error


def write_export(resources: Resources, lease: Lease) -> None:
    """Write the file, and finish the job with its id.

    Raises ``quota.exceeded`` when the file is larger than what the plan has room for; for an export
    that had failed and goes on, ``segment.tag_deleted`` if a tag was deleted meanwhile.
    """
    with resources.unit_of_work() as uow:
        export = uow.session.get(MemberExport, lease.subject_id)
        if export is None:
            raise JobCancelled
        sheet = export_sheets.of_export(uow, resources, lease, export)
    form = ExportFormat(export.format)
    file = bulk_files.create_file(resources, EXPORTS)
    with resources.unit_of_work() as uow:
        renew_lease(uow, lease)
        export = uow.session.get_one(MemberExport, export.id)
        # An earlier attempt, which may still be writing, has a prefix of its own.
        removals.forget_objects(uow, f"{export.object_prefix}/")
        removals.forget_objects(uow, f"{file.prefix}/", after=_UNFINISHED_FOR)
        file.assign_to(export)
    parts = file.writer
    rows = 0
    # The gzip header has no name and no time, so the same list gives the same file.
    with (
        gzip.GzipFile("", "wb", COMPRESSION, parts, mtime=0) as packed,
        # A batch is packed and stored while the next one is read.
        ThreadPoolExecutor(1) as packing,
    ):
        head = export_sheets.head(sheet, form, bom=export.bom)
        packed_before = packing.submit(packed.write, head)
        for batch in _batches(resources, sheet, failures=lease.retries):
            lease.check_cancelled()
            lines = export_sheets.lines(sheet, form, batch)
            packed_before.result()
            packed_before = packing.submit(packed.write, lines)
            rows += len(batch)
        packed_before.result()
    parts.close()
    with resources.unit_of_work() as uow:
        export = uow.session.get_one(MemberExport, export.id)
        if export.kind == ExportKind.MEMBERS and not export.by_operator:
            quotas.require_quota(uow, export.user_id, PlanQuota.STORAGE_MB, more=parts.size)
        export.rows, export.size, export.finished_at = rows, parts.size, func.now()
        if not removals.keep_object(uow, f"{export.object_prefix}/"):
            raise TransientError("The export took longer than an unfinished file is kept.")
        result = {"export_id": export.id, "rows": rows, "format": export.format}
        complete_job(uow, lease, result)
        _announce_end(uow, export, lease.job_id, JobStatus.SUCCEEDED)


_SCOPES = {ExportKind.MEMBERS: Scope.SUBSCRIPTION_READ, ExportKind.DELIVERY: Scope.DELIVERY}
EXPORT_JOBS = {
    kind: register_kind(
        JobKind(
            f"export.{kind}",
            Queue.EXPORT,
            scope,
            retryable=True,
            run=write_export,
            # An export holds one view of the database from first to last, so it can't take turns.
            deadline_seconds=3600.0,
            needs_recent_login=True,
            on_abandoned=call_with_subject(MemberExport, _abandon),
        )
    )
    for kind, scope in _SCOPES.items()
}


def _batches(resources: Resources, sheet: Sheet, *, failures: int) -> Iterator[list[Values]]:
    with resources.long_reads.view(_MAX_TIME, failures=failures) as reading:
        result = reading.execution_options(yield_per=_ROWS_AT_ONCE).execute(sheet.query)
        for rows in result.partitions():
            yield list(sheet.values(reading, rows))
