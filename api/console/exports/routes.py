"""Pages on which an owner exports members to files."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import Depends, Request
from fastapi.responses import Response

from api.console.assets import CONSOLE_PATH
from api.console.members.member_page import STATUSES
from api.console.part_streams import LivePart, stream_part
from api.console.plan_notices import find_plan_notice
from api.console.requests import (
    ConsoleAccess,
    ConsoleRequest,
    EmptyForm,
    FiguresPage,
    build_router,
    shows_errors_on,
)
from api.console.typed_forms import parse_body
from api.html.frame import redirect_to
from api.paging import Cursor
from api.record_ids import ListId, PathId, parse_id_or_text
from api.responses.file_links import sign_export_url
from api.responses.lists import describe_list
from api.schemas.segments import NewExport
from api.state import Transaction
from core import clock
from core.errors.mailing import (
    EXPORT_NOT_FOUND,
    SEGMENT_FIELD_RETIRED,
    SEGMENT_NOT_FOUND,
    SEGMENT_TAG_DELETED,
)
from core.permissions import Permission
from core.queues import Queue
from core.settings.notations import PlanQuota
from models import FINISHED, Job, MemberExport, SubscriptionStatus
from services.jobs import records as jobs
from services.jobs.records import Progress
from services.paging import UNPAGED, PageRequest
from services.subscriptions import exports, lists, segments
from services.subscriptions.bulk_files import BULK_FILE_RETENTION
from services.subscriptions.export_sheets import ExportFormat, ExportKind
from services.subscriptions.exports import ExportOrder
from storage.unit_of_work import UnitOfWork

router = build_router(CONSOLE_PATH)

PATH = f"{CONSOLE_PATH}/exports"
EXPORTS_ON_PAGE = 50
EXPORT_KINDS = exports.ALL_EXPORT_JOBS
# Maps an error code to the form field that shows the error.
PLACES = {
    SEGMENT_NOT_FOUND.code: "segment_id",
    SEGMENT_FIELD_RETIRED.code: "segment_id",
    SEGMENT_TAG_DELETED.code: "segment_id",
}
FORMATS = (
    (ExportFormat.CSV.value, "CSV", "For spreadsheets and other newsletter services."),
    (ExportFormat.JSONL.value, "JSON Lines", "For apps. Each line is one JSON object."),
)
_STATUS_PREFIX = "status_"
STATUS_BOXES = tuple((_STATUS_PREFIX + value, label) for value, label in STATUSES.items())
ExportForm = Annotated[
    ConsoleRequest, Depends(ConsoleAccess(permission=Permission.EXPORT, is_form=True))
]
RecentExportPage = Annotated[
    ConsoleRequest, Depends(ConsoleAccess(permission=Permission.EXPORT, is_recent=True))
]
RecentExportForm = Annotated[
    ConsoleRequest,
    Depends(ConsoleAccess(permission=Permission.EXPORT, is_form=True, is_recent=True)),
]


@dataclass(frozen=True)
class ExportView:
    """An export of members, formatted for a page.

    Attributes:
        job: the export's unfinished job, or else its latest job. ``None`` if the export has a file.
        segment_names: maps the export's id to the name of its segment, or to ``None`` if the name
            is unknown. ``segment_names`` is empty if the export has no filter.
    """

    export: MemberExport
    list_title: str
    job: Job | None
    segment_names: Mapping[int, str | None]

    @property
    def is_running(self) -> bool:
        if self.export.size is not None:
            return False
        is_retried = self.job is not None and self.job.status not in FINISHED
        return self.export.finished_at is None or is_retried

    @property
    def expires_at(self) -> datetime | None:
        return find_expiry(self.export)

    @property
    def reason(self) -> str | None:
        """Return why an export has no file, or ``None`` if the reason is unknown."""
        if self.job is None or self.is_running:
            return None
        error = jobs.describe_error(self.job)
        return None if error is None else str(error["message"])

    @property
    def progress(self) -> Progress | None:
        return None if self.job is None else jobs.measure_progress(self.job)


def find_expiry(export: MemberExport) -> datetime | None:
    """Return when the export's file will be deleted, or ``None`` if there is no file."""
    has_file = export.size is not None and export.files_removed_at is None
    if not has_file or export.finished_at is None:
        return None
    expires_at = export.finished_at + BULK_FILE_RETENTION
    return expires_at if expires_at > clock.now() else None


@router.get("/exports")
def show_exports(console: FiguresPage, uow: Transaction, cursor: Cursor = None) -> Response:
    page = exports.list_exports(uow, console.caller, PageRequest(EXPORTS_ON_PAGE, cursor=cursor))
    return console.render_page(
        "exports.html",
        exports=[(each, find_expiry(each)) for each in page.rows],
        segment_names=exports.find_segment_names(uow, [each.id for each in page.rows]),
        statuses=STATUSES,
        titles=lists.read_titles(uow, [export.list_id for export in page.rows]),
        lists=lists.list_choices(uow, console.account_id),
        next_cursor=page.next_cursor,
    )


@router.get("/lists/{list_id}/export")
def show_new_export(
    console: RecentExportPage, uow: Transaction, list_id: ListId, form: EmptyForm
) -> Response:
    mailing_list = console.get_own_list(uow, list_id)
    own_segments = segments.list_segments(uow, mailing_list, UNPAGED).rows
    return console.render_page(
        "new_export.html",
        form.fill({"format": ExportFormat.CSV}),
        list=mailing_list,
        segments=[("", "All members"), *((str(each.id), each.name) for each in own_segments)],
        active_count=describe_list(uow, console.state, mailing_list).subscriber_count,
        formats=FORMATS,
        statuses=STATUS_BOXES,
        refusal=find_plan_notice(
            uow, console.account_id, PlanQuota.UNFINISHED_JOBS, PlanQuota.STORAGE_MB
        ),
    )


@router.post("/lists/{list_id}/export")
@shows_errors_on(show_new_export, PLACES)
def start_export(console: RecentExportForm, uow: Transaction, list_id: ListId) -> Response:
    form = console.form
    statuses = [status.value for status in SubscriptionStatus if _STATUS_PREFIX + status in form]
    values = {
        # The console exports no rosters, because rosters are for apps that send mail.
        "kind": ExportKind.MEMBERS.value,
        "format": form.get("format", ""),
        "status": statuses or None,
        "segment_id": parse_id_or_text(form.get("segment_id")),
        # Add a byte order mark, because Excel needs it to recognise UTF-8.
        "bom": form.get("format") == ExportFormat.CSV,
    }
    body = parse_body(NewExport, values)
    chosen_statuses = None if body.status is None else tuple(body.status)
    order = ExportOrder(body.kind, body.segment_id, None, chosen_statuses, body.format, body.bom)
    console.state.queue_ages.check(Queue.EXPORT, waits=False)
    console.get_own_list(uow, list_id)
    job = exports.begin_export(uow, console.caller, list_id, order)
    return console.redirect(f"{PATH}/{job.subject_id}")


@router.get("/exports/{export_id}")
def show_export(console: FiguresPage, uow: Transaction, export_id: PathId) -> Response:
    view = _get_view(uow, console, export_id)
    return console.render_page(
        "export.html",
        list=console.find_open_list(uow, view.export.list_id),
        view=view,
        statuses=STATUSES,
    )


@router.get("/exports/{export_id}/events")
async def stream_export(request: Request, console: FiguresPage, export_id: PathId) -> Response:
    def read_part(uow: UnitOfWork) -> LivePart:
        view = _get_view(uow, console, export_id)
        job_ids = [] if view.job is None else [view.job.id]
        return LivePart(
            console.render_part("export_state.html", view=view), not view.is_running, job_ids
        )

    return await stream_part(console, read_part)


@router.post("/exports/{export_id}/cancel")
def cancel_export(console: ExportForm, uow: Transaction, export_id: PathId) -> Response:
    job = _get_view(uow, console, export_id).job
    cancelled = 0 if job is None else jobs.cancel_own_job(uow, console.caller, job.id)
    notice = "The export is being cancelled." if cancelled else "The export had already ended."
    return console.redirect(f"{PATH}/{export_id}", notice)


@router.get("/exports/{export_id}/file")
def download_export_file(
    console: RecentExportPage, uow: Transaction, export_id: PathId
) -> Response:
    export = exports.get_export(uow, console.caller, export_id)
    if find_expiry(export) is None:
        raise EXPORT_NOT_FOUND()
    return redirect_to(sign_export_url(console.state, export.id, export.format))


def _get_view(uow: UnitOfWork, console: ConsoleRequest, export_id: int) -> ExportView:
    export = exports.get_export(uow, console.caller, export_id)
    title = lists.read_titles(uow, [export.list_id])[export.list_id]
    job = None
    if export.size is None:
        job = jobs.find_unfinished_job(uow, export.user_id, EXPORT_KINDS, export.id)
        job = job or jobs.find_recent_job(uow, export.user_id, EXPORT_KINDS, export.id)
    return ExportView(export, title, job, exports.find_segment_names(uow, [export.id]))
