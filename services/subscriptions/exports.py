"""Creates exports, which are files with a list's members at one point in time.

An export of the kind ``members`` is for the list's owner. An export of the kind ``delivery``,
called a roster, is for the software that sends the list's mail. A roster contains the addresses and
trace ids of recipients. Callers with the scope ``delivery`` can create rosters of all lists. A
limited API key can create rosters of its lists. Trace ids in these rosters only let people leave.
"""

import gzip
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import and_, func, select
from sqlalchemy.orm import undefer

from core import ids
from core.errors import TransientError
from core.errors import mailing as errors
from core.errors.access import AUTH_DELIVERY_FORBIDDEN, AUTH_DELIVERY_SCOPE_NEEDED
from core.errors.media import MEDIA_DAMAGED
from core.ids import AccountId
from core.permissions import Permission
from core.queues import Queue
from core.scopes import Scope
from core.settings.notations import PlanQuota
from models import (
    Job,
    JobStatus,
    Mailing,
    MailingList,
    MemberExport,
    Segment,
    SubscriptionStatus,
)
from services import paging, removals
from services.access import quotas
from services.access.caller import Caller, require_permission, require_scope
from services.access.sessions import require_recent_login
from services.accounts import accounts
from services.feed.catalogue import FeedEventType, announce_event
from services.jobs.kinds import JobKind, JobPermissions, call_with_subject, register_kind
from services.jobs.lease import JobCancelled, Lease, renew_lease
from services.jobs.outbox import enqueue_job
from services.jobs.transitions import complete_job
from services.paging import PageOfRows, PageRequest
from services.security_events import EventType, record_event
from services.subscriptions import bulk_files, export_sheets, lists, segments
from services.subscriptions.bulk_files import EXPORTS
from services.subscriptions.export_sheets import ExportFormat, ExportKind, Sheet, Values
from storage.encryption import DecryptionFailed
from storage.parts import StoredFile
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# The number of rows that an export reads, compresses and writes as one batch.
_BATCH_ROWS = 5_000
GZIP_LEVEL = 6
MAX_MAILING_LABEL_CHARACTERS = 100
# The time limit for an export, which must be enough for the largest list.
_MAX_DURATION = timedelta(hours=1)
# How long an unfinished file is kept, which must be longer than any export takes.
_UNFINISHED_FILE_RETENTION = timedelta(days=1)
_SCOPES = {ExportKind.MEMBERS: Scope.SUBSCRIPTION_READ, ExportKind.DELIVERY: Scope.DELIVERY}
_PERMISSIONS = {
    ExportKind.MEMBERS: JobPermissions(Permission.FIGURES, Permission.EXPORT),
    ExportKind.DELIVERY: None,
}


def _abandon_export(uow: UnitOfWork, export: MemberExport, job_id: int, status: str) -> None:
    export.finished_at = func.now()
    removals.forget_objects(uow, f"{export.object_prefix}/")
    _announce_end(uow, export, job_id, status)


def _announce_end(uow: UnitOfWork, export: MemberExport, job_id: int, status: str) -> None:
    announce_event(
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
    """The members and the file format that a caller requests.

    Attributes:
        written: the filter in the request as decoded JSON.
        statuses: the statuses to export, or ``None`` for all except ``removed``.
        bom: whether the file begins with a byte-order mark, so that Excel opens the file as UTF-8.
    """

    kind: ExportKind
    segment_id: int | None = None
    written: Any = None
    statuses: tuple[SubscriptionStatus, ...] | None = None
    form: ExportFormat = ExportFormat.CSV
    bom: bool = False
    label: str | None = None


def begin_export(uow: UnitOfWork, caller: Caller, list_id: int, order: ExportOrder) -> Job:
    """Apply the quotas of the owner's plan, but not to the rosters of the operator's keys."""
    is_limited = order.kind is ExportKind.DELIVERY and bool(caller.list_ids)
    if order.kind is ExportKind.MEMBERS:
        require_scope(caller, EXPORT_JOBS[order.kind].scope)
        require_permission(caller, Permission.EXPORT)
        require_recent_login(uow, caller)
        mailing_list = lists.get_own_list(uow, caller, list_id)
        quotas.require_quota(uow, caller.account_id, PlanQuota.UNFINISHED_JOBS)
    else:
        mailing_list = get_list_to_mail(uow, caller, list_id)
        if is_limited and not caller.by_operator:
            _require_roster_quotas(uow, caller)
        if order.statuses is not None:
            raise errors.EXPORT_STATUS_OF_ROSTER()
    if order.bom and (order.kind, order.form) != (ExportKind.MEMBERS, ExportFormat.CSV):
        raise errors.EXPORT_BOM()
    stored_filter = segments.choose_filter(uow, mailing_list, order.segment_id, order.written)
    if order.kind is ExportKind.MEMBERS:
        filter_bytes = quotas.count_row_bytes(stored_filter)
        quotas.require_quota(uow, caller.account_id, PlanQuota.STORAGE_MB, more=filter_bytes)
    statuses = None if order.statuses is None else [*order.statuses]
    return enqueue_export(
        uow,
        caller.account_id,
        mailing_list,
        order.kind,
        limited_key_id=caller.key_id if is_limited else None,
        filter=stored_filter,
        statuses=statuses,
        format=order.form,
        bom=order.bom,
        label=order.label if order.kind is ExportKind.DELIVERY else None,
    )


def get_list_to_mail(uow: UnitOfWork, caller: Caller, list_id: int) -> MailingList:
    """Return a list that sends mail, and whose roster the caller may read."""
    if not caller.list_ids:
        require_scope(caller, Scope.DELIVERY)
    mailing_list = lists.get_list(uow, list_id)
    if caller.list_ids:
        _require_sending(uow, caller, mailing_list)
    _require_mail(mailing_list)
    return mailing_list


def _require_sending(uow: UnitOfWork, caller: Caller, mailing_list: MailingList) -> None:
    """Require that a limited API key may read the list's roster."""
    if not caller.by_operator and not uow.settings.owners_send:
        raise AUTH_DELIVERY_FORBIDDEN()
    # The list may have got another owner since its owner created the key.
    is_allowed = caller.by_operator or mailing_list.user_id == caller.account_id
    if not is_allowed or mailing_list.id not in caller.list_ids:
        raise AUTH_DELIVERY_SCOPE_NEEDED(needed_scope=Scope.DELIVERY)


def _require_mail(mailing_list: MailingList) -> None:
    if not mailing_list.email_channel_enabled:
        raise errors.LIST_EMAIL_CHANNEL_DISABLED()


def _require_roster_quotas(uow: UnitOfWork, caller: Caller) -> None:
    quotas.require_quota(uow, caller.account_id, PlanQuota.UNFINISHED_JOBS)
    stored_bytes = uow.session.scalar(
        select(func.coalesce(func.sum(MemberExport.size), 0)).where(
            MemberExport.user_id == caller.account_id,
            MemberExport.kind == ExportKind.DELIVERY,
            MemberExport.files_removed_at.is_(None),
        )
    )
    quotas.require_quota(uow, caller.account_id, PlanQuota.STORAGE_MB, more=int(stored_bytes or 0))


def enqueue_export(
    uow: UnitOfWork,
    account_id: AccountId,
    mailing_list: MailingList,
    kind: ExportKind,
    *,
    limited_key_id: int | None = None,
    **columns: Any,
) -> Job:
    """Enqueue an export without checking whether the user may export the list.

    ``limited_key_id``: the limited API key that requests a roster, if any.
    """
    if kind is ExportKind.DELIVERY:
        _require_mail(mailing_list)
    # Set a provisional prefix, because ``object_prefix`` must not be NULL. Each attempt to run the
    # export's job stores its files under a new prefix.
    prefix = EXPORTS + ids.random_hash_id(20)
    export = MemberExport(
        list_id=mailing_list.id, user_id=account_id, kind=kind, object_prefix=prefix, **columns
    )
    uow.session.add(export)
    uow.session.flush()
    record_event(
        uow,
        account_id,
        EventType.EXPORT_CREATED,
        export_id=export.id,
        list_id=mailing_list.id,
        kind=kind,
    )
    job_kind = EXPORT_JOBS[kind] if limited_key_id is None else LIMITED_ROSTER_JOB
    return enqueue_job(
        uow, job_kind, account_id=account_id, subject_id=export.id, key_id=limited_key_id
    )


def get_export(uow: UnitOfWork, caller: Caller, export_id: int) -> MemberExport:
    export = uow.session.get(MemberExport, export_id, options=[undefer(MemberExport.filter)])
    if export is None or export.user_id != caller.account_id:
        raise errors.EXPORT_NOT_FOUND()
    return export


def list_exports(uow: UnitOfWork, caller: Caller, page: PageRequest) -> PageOfRows[MemberExport]:
    query = paging.select_owner_page(
        select(MemberExport), MemberExport.user_id, caller.account_id, page
    )
    return paging.read_page(uow, query, page)


def find_segment_names(uow: UnitOfWork, export_ids: Collection[int]) -> dict[int, str | None]:
    """Map the id of each export that has a filter to the name of the segment with the same filter.

    An export is mapped to ``None`` if no segment of the list has the same filter, for example
    because the owner changed the segment after the export.
    """
    query = (
        select(MemberExport.id, func.min(Segment.name))
        .outerjoin(
            Segment,
            and_(Segment.list_id == MemberExport.list_id, Segment.filter == MemberExport.filter),
        )
        .where(MemberExport.id.in_(export_ids), MemberExport.filter.is_not(None))
        .group_by(MemberExport.id)
    )
    return dict(uow.session.execute(query).tuples().all())


def get_finished_export(
    uow: UnitOfWork, export_id: int, form: ExportFormat = ExportFormat.CSV
) -> tuple[MemberExport, MailingList]:
    export = uow.session.get(MemberExport, export_id)
    if export is None or export.size is None or export.files_removed_at is not None:
        raise errors.EXPORT_NOT_FOUND()
    if export.format != form or accounts.get_owner(uow, export.user_id).erased_at is not None:
        raise errors.EXPORT_NOT_FOUND()
    return export, uow.session.get_one(MailingList, export.list_id)


def open_export_file(resources: Resources, export: MemberExport) -> StoredFile:
    try:
        return bulk_files.open_stored_file(resources, export)
    except DecryptionFailed as error:
        raise MEDIA_DAMAGED() from error


def write_export(resources: Resources, lease: Lease) -> None:
    with resources.unit_of_work() as uow:
        export = uow.session.get(MemberExport, lease.subject_id)
        if export is None:
            raise JobCancelled
        is_limited = lease.kind == LIMITED_ROSTER_JOB.name
        sheet = export_sheets.build_sheet(uow, resources, lease, export, is_limited=is_limited)
    form = ExportFormat(export.format)
    file = bulk_files.create_file(resources, EXPORTS)
    with resources.unit_of_work() as uow:
        renew_lease(uow, lease)
        export = uow.session.get_one(MemberExport, export.id)
        # Remove the unfinished file of a failed attempt to run the job. Each attempt uses a new
        # prefix, because a failed attempt may still be writing to the old prefix.
        removals.forget_objects(uow, f"{export.object_prefix}/")
        removals.forget_objects(uow, f"{file.prefix}/", after=_UNFINISHED_FILE_RETENTION)
        file.assign_to(export)
    parts = file.writer
    rows = 0
    measured = 0
    # Omit the name and the time from the gzip header, so that exports of the same members are
    # byte-identical.
    with (
        gzip.GzipFile("", "wb", GZIP_LEVEL, parts, mtime=0) as gzip_file,
        # The writer thread compresses and stores one batch of rows while the main thread reads the
        # next batch.
        ThreadPoolExecutor(1) as writer_thread,
    ):
        header = export_sheets.format_header(sheet, form, bom=export.bom)
        previous_write = writer_thread.submit(gzip_file.write, header)
        for batch in _read_batches(resources, sheet, failures=lease.retries):
            lease.check_cancelled()
            lines = export_sheets.format_lines(sheet, form, batch)
            previous_write.result()
            previous_write = writer_thread.submit(gzip_file.write, lines)
            rows += len(batch)
            if export.kind == ExportKind.DELIVERY:
                measured += export_sheets.count_measured(sheet, batch)
        previous_write.result()
    parts.close()
    with resources.unit_of_work() as uow:
        export = uow.session.get_one(MemberExport, export.id)
        if export.kind == ExportKind.MEMBERS and not export.by_operator:
            quotas.require_quota(uow, export.user_id, PlanQuota.STORAGE_MB, more=parts.size)
        export.rows = rows
        export.size = parts.size
        export.finished_at = func.now()
        if not removals.keep_object(uow, f"{export.object_prefix}/"):
            raise TransientError("The export took too long, and its unfinished file expired.")
        if export.kind == ExportKind.DELIVERY:
            uow.session.add(
                Mailing(
                    id=lease.job_id,
                    list_id=export.list_id,
                    label=export.label,
                    created_at=export.created_at,
                    rows=rows,
                    measured=measured,
                )
            )
        result = {"export_id": export.id, "rows": rows, "format": export.format}
        complete_job(uow, lease, result)
        _announce_end(uow, export, lease.job_id, JobStatus.SUCCEEDED)


def _register_kind(
    name: str, scope: Scope, permissions: JobPermissions | None, *, retryable: bool = True
) -> JobKind:
    return register_kind(
        JobKind(
            name,
            Queue.EXPORT,
            scope,
            permissions=permissions,
            retryable=retryable,
            run=write_export,
            # An export's job isn't interrupted, because all rows must come from one database
            # snapshot.
            deadline_seconds=3600.0,
            needs_recent_login=True,
            on_abandoned=call_with_subject(MemberExport, _abandon_export),
        )
    )


EXPORT_JOBS = {
    kind: _register_kind(f"export.{kind}", scope, _PERMISSIONS[kind])
    for kind, scope in _SCOPES.items()
}
# The rosters of limited API keys have a job kind of their own, because a worker of release 1.1.0
# would write unlimited trace ids. They can't be retried, because a retry doesn't check whether the
# key may still export the list.
LIMITED_ROSTER_JOB = _register_kind(
    "export.limited_delivery", Scope.DELIVERY, None, retryable=False
)
ALL_EXPORT_JOBS = (*EXPORT_JOBS.values(), LIMITED_ROSTER_JOB)


def _read_batches(resources: Resources, sheet: Sheet, *, failures: int) -> Iterator[list[Values]]:
    with resources.replica_reads.view(_MAX_DURATION, failures=failures) as connection:
        result = connection.execution_options(yield_per=_BATCH_ROWS).execute(sheet.query)
        for rows in result.partitions():
            yield list(sheet.convert_rows(connection, rows))
