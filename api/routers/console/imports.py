"""An owner's imports: all of them, and one from its dry run to its undo."""

from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from api.access.page_sessions import redirect_to_path
from api.access.requirements import PUBLIC
from api.console.assets import CONSOLE_PATH
from api.console.of_imports.import_columns import COLUMNS_ON_PAGE, roles_to_choose
from api.console.of_imports.import_forms import START, reading_choice, reading_form
from api.console.of_imports.shown_imports import ShownImport, shown_import
from api.console.of_jobs.part_streams import LivePart, part_stream
from api.console.typed_forms import TypedForm
from api.console.visits import ConsoleVisit, FormVisit, Visit
from api.limits.bulkheads import RECORDS
from api.pages.frame import redirect
from api.parameters import Cursor, PathId
from api.request_ids import current_request_id
from api.signed_files import import_errors_url
from core.errors import DomainError
from core.lanes import Lane
from core.refusals.imports import IMPORT_ERRORS_GONE, IMPORT_RUNNING
from services.jobs import records as jobs
from services.mailing import lists
from services.mailing.imports import records
from services.paging import PageRequest

# No operations of the API, so not in its document.
PREFIX = f"{CONSOLE_PATH}/imports"
router = APIRouter(prefix=PREFIX, dependencies=[PUBLIC], include_in_schema=False)

IMPORTS_ON_PAGE = 50
FirstColumn = Annotated[int, Query(alias="columns", ge=0, le=500)]


@router.get("")
@RECORDS.threaded
def show_imports(visit: Visit, cursor: Cursor = None) -> Response:
    """The owner's imports into all lists, newest first."""
    with visit.unit_of_work() as uow:
        wanted = PageRequest(IMPORTS_ON_PAGE, cursor=cursor)
        found = records.list_of(uow, visit.caller, wanted, list_id=None)
        titles = lists.titles_of(uow, [task.list_id for task in found.rows])
    return visit.page(
        "imports.html",
        imports=found.rows,
        titles=titles,
        next_cursor=found.next_cursor,
        cursor=cursor,
    )


@router.get("/{import_id}")
@RECORDS.threaded
def show_import(visit: Visit, import_id: PathId, columns: FirstColumn = 0) -> Response:
    """One import as it is now, in any window."""
    shown = _shown(visit, import_id)
    return _import_page(visit, shown, reading_form(shown), columns)


@router.post("/{import_id}")
@RECORDS.threaded
def read_import_again(visit: FormVisit, import_id: PathId, columns: FirstColumn = 0) -> Response:
    """Look at a dry run by another choice, or import what was looked at."""
    shown = _shown(visit, import_id)
    path = f"{PREFIX}/{import_id}"
    starts = visit.form.get("act") == START
    try:
        choice = reading_choice(shown, visit.form)
        is_looked_at = starts and not choice.differs
        options = replace(choice.options, dry_run=not is_looked_at)
        visit.state.lane_ages.check(Lane.BULK, waits=False)
        with visit.unit_of_work() as uow:
            records.read_again(
                uow,
                visit.state.resources.settings,
                visit.caller,
                import_id,
                options,
                request_id=current_request_id(),
            )
    except DomainError as error:
        if error.code == IMPORT_RUNNING.code:
            # Another window was quicker.
            return redirect_to_path(visit.state, path)
        return _import_page(visit, shown, visit.refused(error), columns)
    if starts and choice.differs:
        return visit.done(path, "You chose something else: look at it once more, then import it.")
    if not options.dry_run:
        return visit.done(path, "The import has begun.")
    more = f"?columns={columns}" if columns else ""
    return redirect_to_path(visit.state, path + more)


@router.get("/{import_id}/events")
async def stream_import(request: Request, visit: Visit, import_id: PathId) -> Response:
    """The part of the page that changes, until it changes no more."""
    look = partial(_live_part, visit, import_id)
    return part_stream(visit, await RECORDS.run(look), look)


@router.post("/{import_id}/cancel")
@RECORDS.threaded
def cancel_import(visit: FormVisit, import_id: PathId) -> Response:
    """Cancel the import, or its undo: what is done already stays."""
    shown = _shown(visit, import_id)
    worker = shown.undo if shown.is_undoing else shown.job
    with visit.unit_of_work() as uow:
        cancelled = 0 if worker is None else jobs.cancel(uow, visit.caller, worker.id)
    notice = "It stops at its next step." if cancelled else "It had ended already."
    return visit.done(f"{PREFIX}/{import_id}", notice)


@router.post("/{import_id}/retry")
@RECORDS.threaded
def retry_import(visit: FormVisit, import_id: PathId) -> Response:
    """Go on with an import that broke, with the rows that are not done."""
    with visit.unit_of_work() as uow:
        records.retry(uow, visit.caller, import_id, settings=visit.state.resources.settings)
    return visit.done(f"{PREFIX}/{import_id}", "The import goes on.")


@router.get("/{import_id}/not-added")
@RECORDS.threaded
def download_rejects(visit: Visit, import_id: PathId) -> Response:
    """To the file of the rows that were not added, by a link that has just been made."""
    with visit.unit_of_work() as uow:
        task = records.get(uow, visit.caller, import_id)
    if task.files_removed_at is not None:
        raise IMPORT_ERRORS_GONE()
    return redirect(import_errors_url(visit.state, import_id))


@router.get("/{import_id}/undo")
@RECORDS.threaded
def show_undo(visit: Visit, import_id: PathId) -> Response:
    """How many members it is about, before it is undone."""
    return visit.form_page("undo_import.html", TypedForm(), shown=_shown(visit, import_id))


@router.post("/{import_id}/undo")
@RECORDS.threaded
def undo_import(visit: FormVisit, import_id: PathId) -> Response:
    try:
        with visit.unit_of_work() as uow:
            records.undo(uow, visit.caller, import_id, current_request_id())
    except DomainError as error:
        form = visit.refused(error)
        return visit.form_page("undo_import.html", form, shown=_shown(visit, import_id))
    return redirect_to_path(visit.state, f"{PREFIX}/{import_id}")


def _shown(visit: ConsoleVisit, import_id: int) -> ShownImport:
    return shown_import(visit.state, visit.caller, import_id)


def _live_part(visit: ConsoleVisit, import_id: int) -> LivePart:
    shown = _shown(visit, import_id)
    values = _state_values(shown, reading_form(shown), 0)
    return LivePart(visit.part("import_state.html", **values), not shown.is_live, shown.job_ids)


def _import_page(visit: ConsoleVisit, shown: ShownImport, form: TypedForm, first: int) -> Response:
    return visit.form_page("import.html", **_state_values(shown, form, first))


def _state_values(shown: ShownImport, form: TypedForm, first: int) -> dict[str, Any]:
    first = first if first < len(shown.choices) else 0
    return {
        "shown": shown,
        "kept_until": shown.file_kept_until,
        "can_be_undone": shown.can_be_undone,
        "undo_stopped": shown.undo_stopped,
        "time_left": shown.time_left,
        "form": form,
        "roles": roles_to_choose(shown.fields),
        "choices": shown.choices[first : first + COLUMNS_ON_PAGE],
        "first_column": first,
        "columns_on_page": COLUMNS_ON_PAGE,
    }
