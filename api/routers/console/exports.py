"""An owner's exports: all of them, and one from its order to its file."""

from functools import partial

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.access.requirements import PUBLIC
from api.console.assets import CONSOLE_PATH
from api.console.of_exports.export_forms import (
    FORMATS,
    PLACES,
    export_body,
    status_boxes,
)
from api.console.of_exports.shown_exports import lapses_at, shown_export
from api.console.of_jobs.part_streams import LivePart, part_stream
from api.console.own_lists import own_list
from api.console.typed_forms import TypedForm
from api.console.visits import ConsoleVisit, FormVisit, RecentFormVisit, RecentVisit, Visit
from api.limits.bulkheads import RECORDS
from api.pages.frame import redirect
from api.parameters import Cursor, ListId, PathId
from api.request_ids import current_request_id
from api.signed_files import export_url
from core.errors import DomainError
from core.lanes import Lane
from core.refusals.mailing import EXPORT_NOT_FOUND
from services.jobs import records as jobs
from services.mailing import exports, lists
from services.mailing.exports import ExportOrder
from services.mailing.segments import saved
from services.paging import WHOLE, PageRequest

# No operations of the API, so not in its document.
router = APIRouter(prefix=CONSOLE_PATH, dependencies=[PUBLIC], include_in_schema=False)

PATH = f"{CONSOLE_PATH}/exports"
EXPORTS_ON_PAGE = 50


@router.get("/exports")
@RECORDS.threaded
def show_exports(visit: Visit, cursor: Cursor = None) -> Response:
    """The owner's exports of all lists, newest first, and the lists to export."""
    with visit.unit_of_work() as uow:
        wanted = PageRequest(EXPORTS_ON_PAGE, cursor=cursor)
        found = exports.list_of(uow, visit.caller, wanted)
        titles = lists.titles_of(uow, [export.list_id for export in found.rows])
        own = lists.list_of(uow, visit.user_id, WHOLE).rows
    return visit.page(
        "exports.html",
        exports=[(each, lapses_at(each)) for each in found.rows],
        titles=titles,
        lists=own,
        next_cursor=found.next_cursor,
        cursor=cursor,
    )


@router.get("/lists/{list_id}/export")
@RECORDS.threaded
def show_new_export(visit: RecentVisit, list_id: ListId) -> Response:
    return _new_page(visit, list_id, TypedForm({"format": FORMATS[0][0]}))


@router.post("/lists/{list_id}/export")
@RECORDS.threaded
def make_export(visit: RecentFormVisit, list_id: ListId) -> Response:
    try:
        body = export_body(visit.form)
        statuses = None if body.status is None else tuple(body.status)
        order = ExportOrder(body.kind, body.segment_id, None, statuses, body.format)
        visit.state.lane_ages.check(Lane.EXPORT, waits=False)
        settings, request_id = visit.state.resources.settings, current_request_id()
        with visit.unit_of_work() as uow:
            own_list(uow, visit.caller, list_id)
            job = exports.begin(uow, settings, visit.caller, list_id, order, request_id=request_id)
    except DomainError as error:
        return _new_page(visit, list_id, visit.refused(error, PLACES))
    return visit.done(f"{PATH}/{job.subject_id}", "The export has begun.")


@router.get("/exports/{export_id}")
@RECORDS.threaded
def show_export(visit: Visit, export_id: PathId) -> Response:
    """One export as it is now, in any window."""
    return visit.page("export.html", shown=shown_export(visit.state, visit.caller, export_id))


@router.get("/exports/{export_id}/events")
async def stream_export(request: Request, visit: Visit, export_id: PathId) -> Response:
    """The part of the page that changes, until it changes no more."""
    look = partial(_live_part, visit, export_id)
    return part_stream(visit, await RECORDS.run(look), look)


@router.post("/exports/{export_id}/cancel")
@RECORDS.threaded
def cancel_export(visit: FormVisit, export_id: PathId) -> Response:
    shown = shown_export(visit.state, visit.caller, export_id)
    with visit.unit_of_work() as uow:
        cancelled = 0 if shown.job is None else jobs.cancel(uow, visit.caller, shown.job.id)
    notice = "It stops at its next step." if cancelled else "It had ended already."
    return visit.done(f"{PATH}/{export_id}", notice)


@router.get("/exports/{export_id}/file")
@RECORDS.threaded
def download_export_file(visit: RecentVisit, export_id: PathId) -> Response:
    """To the file, by a link that has just been made."""
    export = shown_export(visit.state, visit.caller, export_id).export
    if lapses_at(export) is None:
        raise EXPORT_NOT_FOUND()
    return redirect(export_url(visit.state, export.id, export.format))


def _live_part(visit: ConsoleVisit, export_id: int) -> LivePart:
    shown = shown_export(visit.state, visit.caller, export_id)
    job_ids = [] if shown.job is None else [shown.job.id]
    return LivePart(visit.part("export_state.html", shown=shown), not shown.is_running, job_ids)


def _new_page(visit: ConsoleVisit, list_id: int, form: TypedForm) -> Response:
    with visit.unit_of_work() as uow:
        mailing_list = own_list(uow, visit.caller, list_id)
        segments = saved.list_of(uow, mailing_list, WHOLE).rows
    own = [("", "All of them"), *((str(each.id), each.name) for each in segments)]
    return visit.form_page(
        "new_export.html",
        form,
        list=mailing_list,
        segments=own,
        formats=FORMATS,
        statuses=status_boxes(),
    )
