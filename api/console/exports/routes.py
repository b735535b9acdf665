"""An owner's exports: all of them, and one from its order to its file."""

from dataclasses import dataclass
from datetime import datetime

from fastapi import Request
from fastapi.responses import Response

from api.console.assets import CONSOLE_PATH
from api.console.part_streams import LivePart, stream_part
from api.console.requests import (
    Console,
    ConsoleForm,
    ConsoleRequest,
    EmptyForm,
    RecentConsole,
    RecentConsoleForm,
    build_router,
)
from api.console.typed_forms import parse_body
from api.html.frame import redirect_to
from api.limits.bulkheads import RECORDS
from api.paging import Cursor
from api.record_ids import ListId, PathId, parse_id_or_text
from api.responses.file_links import sign_export_url
from api.schemas.segments import NewExport
from api.state import Transaction
from core import clock
from core.errors import DomainError
from core.errors.mailing import (
    EXPORT_NOT_FOUND,
    SEGMENT_FIELD_RETIRED,
    SEGMENT_NOT_FOUND,
    SEGMENT_TAG_DELETED,
)
from core.queues import Queue
from models import FINISHED, Job, MemberExport, SubscriptionStatus
from services.jobs import records as jobs
from services.jobs.records import Progress
from services.paging import WHOLE, PageRequest
from services.subscriptions import exports, lists, segments
from services.subscriptions.bulk_files import BULK_FILE_RETENTION
from services.subscriptions.export_sheets import ExportFormat, ExportKind
from services.subscriptions.exports import ExportOrder
from storage.unit_of_work import UnitOfWork

router = build_router(CONSOLE_PATH)

PATH = f"{CONSOLE_PATH}/exports"
EXPORTS_ON_PAGE = 50
EXPORT_KINDS = tuple(exports.EXPORT_JOBS.values())
# The form fields at which errors without a field of their own are shown.
PLACES = {
    SEGMENT_NOT_FOUND.code: "segment_id",
    SEGMENT_FIELD_RETIRED.code: "segment_id",
    SEGMENT_TAG_DELETED.code: "segment_id",
}
FORMATS = (
    (ExportFormat.CSV.value, "CSV", "For spreadsheets and other products."),
    (ExportFormat.JSONL.value, "JSON Lines", "One object a line, for apps."),
)
_BOX = "status_"
STATUS_BOXES = (
    (_BOX + SubscriptionStatus.PENDING, "People who have not confirmed yet"),
    (_BOX + SubscriptionStatus.ACTIVE, "Active members"),
    (_BOX + SubscriptionStatus.UNSUBSCRIBED, "People who left"),
    (_BOX + SubscriptionStatus.REMOVED, "People who were removed"),
)


@dataclass(frozen=True)
class ShownExport:
    """An export at any time.

    Attributes:
        job: the job that works on it, or the last one that did.
    """

    export: MemberExport
    list_title: str
    job: Job | None

    @property
    def is_running(self) -> bool:
        if self.export.size is not None:
            return False
        is_retried = self.job is not None and self.job.status not in FINISHED
        return self.export.finished_at is None or is_retried

    @property
    def lapses_at(self) -> datetime | None:
        return lapses_at(self.export)

    @property
    def reason(self) -> str | None:
        """The reason why there is no file, as long as it is kept."""
        if self.job is None or self.is_running:
            return None
        error = jobs.describe_error(self.job)
        return None if error is None else str(error["message"])

    @property
    def progress(self) -> Progress | None:
        return None if self.job is None else jobs.measure_progress(self.job)


def lapses_at(export: MemberExport) -> datetime | None:
    """Return until when the file is kept, ``None`` if there is none (any more)."""
    has_file = export.size is not None and export.files_removed_at is None
    if not has_file or export.finished_at is None:
        return None
    until = export.finished_at + BULK_FILE_RETENTION
    return until if until > clock.now() else None


@router.get("/exports")
def show_exports(console: Console, uow: Transaction, cursor: Cursor = None) -> Response:
    found = exports.list_exports(uow, console.caller, PageRequest(EXPORTS_ON_PAGE, cursor=cursor))
    return console.render_page(
        "exports.html",
        exports=[(each, lapses_at(each)) for each in found.rows],
        titles=lists.titles_of(uow, [export.list_id for export in found.rows]),
        lists=lists.list_choices(uow, console.user_id),
        next_cursor=found.next_cursor,
    )


@router.get("/lists/{list_id}/export")
def show_new_export(console: RecentConsole, list_id: ListId, form: EmptyForm) -> Response:
    with console.unit_of_work() as uow:
        mailing_list = console.get_own_list(uow, list_id)
        kept = segments.list_segments(uow, mailing_list, WHOLE).rows
    return console.render_form(
        "new_export.html",
        form.fill({"format": ExportFormat.CSV}),
        list=mailing_list,
        segments=[("", "All of them"), *((str(each.id), each.name) for each in kept)],
        formats=FORMATS,
        statuses=STATUS_BOXES,
    )


@router.post("/lists/{list_id}/export")
def make_export(console: RecentConsoleForm, list_id: ListId) -> Response:
    form = console.form
    statuses = [status.value for status in SubscriptionStatus if _BOX + status in form]
    values = {
        # A roster is for the app that sends.
        "kind": ExportKind.MEMBERS.value,
        "format": form.get("format", ""),
        "status": statuses or None,
        "segment_id": parse_id_or_text(form.get("segment_id")),
        # Most people open the file in Excel, which needs the byte-order mark.
        "bom": form.get("format") == ExportFormat.CSV,
    }
    try:
        body = parse_body(NewExport, values)
        chosen = None if body.status is None else tuple(body.status)
        order = ExportOrder(body.kind, body.segment_id, None, chosen, body.format, body.bom)
        console.state.queue_ages.check(Queue.EXPORT, waits=False)
        with console.unit_of_work() as uow:
            console.get_own_list(uow, list_id)
            job = exports.begin_export(uow, console.caller, list_id, order)
    except DomainError as error:
        return show_new_export(console, list_id, console.add_error(error, PLACES))
    return console.redirect_with_notice(f"{PATH}/{job.subject_id}", "The export has started.")


@router.get("/exports/{export_id}")
def show_export(console: Console, uow: Transaction, export_id: PathId) -> Response:
    return console.render_page("export.html", shown=_shown(uow, console, export_id))


@router.get("/exports/{export_id}/events")
async def stream_export(request: Request, console: Console, export_id: PathId) -> Response:
    """Send the part of the page that changes, until it changes no more."""

    def look() -> LivePart:
        with console.unit_of_work() as uow:
            shown = _shown(uow, console, export_id)
        job_ids = [] if shown.job is None else [shown.job.id]
        return LivePart(
            console.render_part("export_state.html", shown=shown), not shown.is_running, job_ids
        )

    return stream_part(console, await RECORDS.run(look), look)


@router.post("/exports/{export_id}/cancel")
def cancel_export(console: ConsoleForm, uow: Transaction, export_id: PathId) -> Response:
    job = _shown(uow, console, export_id).job
    cancelled = 0 if job is None else jobs.cancel_own_job(uow, console.caller, job.id)
    notice = "It stops at its next step." if cancelled else "It had ended already."
    return console.redirect_with_notice(f"{PATH}/{export_id}", notice)


@router.get("/exports/{export_id}/file")
def download_export_file(console: RecentConsole, uow: Transaction, export_id: PathId) -> Response:
    """Redirect to the file, by a link that is made now."""
    export = exports.get_export(uow, console.caller, export_id)
    if lapses_at(export) is None:
        raise EXPORT_NOT_FOUND()
    return redirect_to(sign_export_url(console.state, export.id, export.format))


def _shown(uow: UnitOfWork, console: ConsoleRequest, export_id: int) -> ShownExport:
    """Return the caller's export; raises ``export.not_found``."""
    export = exports.get_export(uow, console.caller, export_id)
    title = lists.titles_of(uow, [export.list_id])[export.list_id]
    job = None
    if export.size is None:
        job = jobs.find_unfinished_job(uow, export.user_id, EXPORT_KINDS, export.id)
        job = job or jobs.find_recent_job(uow, export.user_id, EXPORT_KINDS, export.id)
    return ShownExport(export, title, job)
