"""An owner's imports: all of them, and one from its dry run to its undo."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.responses import Response

from api.auth.csrf import CSRF_FIELD, require_csrf
from api.auth.redirects import redirect_to_path
from api.bodies.json_bodies import media_type
from api.bodies.multipart import MULTIPART
from api.bodies.upload_stream import store_upload
from api.console.assets import CONSOLE_PATH
from api.console.imports.status_values import STATUS_CHOICES, read_choices
from api.console.imports.views import (
    COLUMNS_ON_PAGE,
    DATE_ORDERS,
    FIELD_TYPES,
    ShownImport,
    chosen_by,
    is_new_field,
    mapping_of,
    roles_to_choose,
    shown_import,
)
from api.console.members.bulk import words_of
from api.console.navigation import get_list_path
from api.console.part_streams import LivePart, stream_part
from api.console.requests import (
    Console,
    ConsoleForm,
    EmptyForm,
    RecentConsole,
    RecentConsoleForm,
    build_router,
)
from api.console.typed_forms import TypedForm, field_error
from api.html.frame import redirect_to
from api.limits.bulkheads import RECORDS
from api.paging import Cursor
from api.record_ids import PathId
from api.responses.file_links import build_import_errors_url
from api.state import Transaction
from core.errors import DomainError
from core.errors import imports as errors
from core.errors.requests import BODY_NOT_MULTIPART
from core.queues import Queue
from models import ImportKind, Plan
from services.accounts import accounts
from services.jobs import records as jobs
from services.paging import PageRequest
from services.subscriptions import lists, tags
from services.subscriptions.bulk_actions import actions
from services.subscriptions.imports import accepting, records
from services.subscriptions.imports.dates import DateOrder
from services.subscriptions.imports.encodings import ENCODINGS
from services.subscriptions.imports.import_options import ImportOptions
from services.subscriptions.imports.undo_preview import forecast_undo
from storage.unit_of_work import UnitOfWork

PREFIX = f"{CONSOLE_PATH}/imports"
router = build_router(PREFIX)

IMPORTS_ON_PAGE = 50
FirstColumn = Annotated[int, Query(alias="columns", ge=0, le=500)]
# The form fields at which errors without a field of their own are shown.
PLACES = {
    errors.IMPORT_FILE_MISSING.code: "file",
    errors.IMPORT_SEVERAL_FILES.code: "file",
    errors.IMPORT_EMPTY_FILE.code: "file",
    errors.IMPORT_TOO_LARGE.code: "file",
}
KINDS = (
    (
        ImportKind.MEMBERS.value,
        "Members",
        "An export of another product, or a sheet of yours. Who left there stays away here too.",
    ),
    (
        ImportKind.SUPPRESSIONS.value,
        "Addresses that get no mail",
        "What your sending product suppresses, each row with its reason.",
    ),
    (ImportKind.BOUNCES.value, "Addresses whose mail bounced", ""),
    (ImportKind.COMPLAINTS.value, "Addresses that complained", ""),
)
UPDATE, START = "update", "start"


@router.get("")
def show_imports(console: Console, uow: Transaction, cursor: Cursor = None) -> Response:
    wanted = PageRequest(IMPORTS_ON_PAGE, cursor=cursor)
    found = records.list_imports(uow, console.caller, wanted, list_id=None)
    titles = lists.titles_of(uow, [task.list_id for task in found.rows])
    return console.render_page(
        "imports.html", imports=found.rows, titles=titles, next_cursor=found.next_cursor
    )


@router.get("/new")
def show_new_import(console: Console, form: EmptyForm, list_id: str = "") -> Response:
    """Show the form for a file, for the list that the query may name."""
    with console.unit_of_work() as uow:
        found = lists.list_choices(uow, console.user_id)
        is_paid = accounts.get_user(uow, console.user_id).plan == Plan.PAID
    own = [(str(each.id), each.title) for each in found]
    if len(own) > 1:
        own.insert(0, ("", "Choose a list"))
    form = form.fill({"list_id": list_id, "kind": ImportKind.MEMBERS.value})
    return console.render_form("new_import.html", form, lists=own, kinds=KINDS, is_paid=is_paid)


@router.post("/new")
async def upload_import(request: Request, console: Console) -> Response:
    state, resources = console.state, console.state.resources
    # The fields of the form, which come before the file.
    typed: dict[str, str] = {}
    chosen: list[tuple[int, ImportOptions]] = []

    async def check(fields: Mapping[str, str]) -> None:
        typed.update(fields)
        require_csrf(request, state, console.member.cookie, fields.get(CSRF_FIELD))
        chosen.append(_upload_choice(fields))
        state.queue_ages.check(Queue.BULK, waits=False)

        def check_list(uow: UnitOfWork) -> None:
            list_id, _ = chosen[0]
            console.get_own_list(uow, list_id)
            accepting.check_upload(uow, console.caller, list_id, dry_run=True)

        await state.in_unit_of_work(check_list)

    try:
        if media_type(request.headers.get("content-type", "")) != MULTIPART:
            require_csrf(request, state, console.member.cookie)
            raise BODY_NOT_MULTIPART()
        file, forget = accepting.create_file(resources), partial(accepting.discard_file, resources)
        received = await store_upload(
            request, file.writer, None, forget, caller_id=console.user_id, check=check
        )
        list_id, options = chosen[0]
        accepted = await RECORDS.run(
            accepting.accept_file,
            resources,
            console.user_id,
            list_id,
            file=file,
            filename=received.filename,
            options=options,
        )
    except DomainError as error:
        form = await RECORDS.run(replace(console, form=typed).add_error, error, PLACES)
        return await RECORDS.run(show_new_import, console, form)
    return redirect_to_path(state, f"{PREFIX}/{accepted.subject_id}")


def _upload_choice(form: Mapping[str, str]) -> tuple[int, ImportOptions]:
    """Return the list, and how the file is read in its dry run; raises ``body.invalid``."""
    try:
        list_id = lists.parse_list_id(form.get("list_id", ""))
    except DomainError:
        list_id = None
    if list_id is None:
        raise field_error("list_id", "Choose the list to which they come.")
    if form.get("kind") not in set(ImportKind):
        raise field_error("kind", "Choose what the rows of the file are.")
    kind, creates = ImportKind(form["kind"]), "create_fields" in form
    return list_id, ImportOptions(True, _on_existing(form), None, kind, creates)


def _on_existing(form: Mapping[str, str]) -> str:
    return UPDATE if UPDATE in form else "skip"


@router.get("/{import_id}")
def show_import(console: Console, import_id: PathId, columns: FirstColumn = 0) -> Response:
    shown = shown_import(console, import_id)
    return console.render_form("import.html", **_state_values(shown, reading_form(shown), columns))


@router.post("/{import_id}")
def read_import_again(
    console: ConsoleForm, import_id: PathId, columns: FirstColumn = 0
) -> Response:
    """Read a dry run's file in another way, or import it as it was read.

    A file is imported only as its owner has seen it: another choice makes another dry run.
    """
    shown = shown_import(console, import_id)
    path = f"{PREFIX}/{import_id}"
    starts = console.form.get("act") == START
    try:
        options, differs = _reading_choice(shown, console.form)
        dry_run = differs or not starts
        console.state.queue_ages.check(Queue.BULK, waits=False)
        with console.unit_of_work() as uow:
            records.read_again(uow, console.caller, import_id, replace(options, dry_run=dry_run))
    except DomainError as error:
        if error.code == errors.IMPORT_RUNNING.code:
            # Another window was quicker.
            return redirect_to_path(console.state, path)
        form = console.add_error(error)
        return console.render_form("import.html", **_state_values(shown, form, columns))
    if starts and differs:
        return console.redirect_with_notice(
            path, "You chose something else: look at it once more, then import it."
        )
    if not dry_run:
        return console.redirect_with_notice(path, "The import has started.")
    return redirect_to_path(console.state, path + (f"?columns={columns}" if columns else ""))


def reading_form(shown: ShownImport) -> TypedForm:
    typed = {each.box: each.chosen for each in shown.choices}
    if shown.task.on_existing == UPDATE:
        typed[UPDATE] = "on"
    typed["date_order"] = shown.task.date_order or ""
    typed["encoding"] = shown.task.encoding or ""
    typed |= {each.box: each.chosen for each in shown.status_values if each.box}
    return TypedForm(typed)


def _reading_choice(shown: ShownImport, form: Mapping[str, str]) -> tuple[ImportOptions, bool]:
    """Return how the file of a dry run is read now, and whether that differs from the last time.

    Raises ``body.invalid``.
    """
    task, choices = shown.task, shown.choices
    on_existing, mapping, creates = _on_existing(form), task.mapping, task.create_fields
    chosen = chosen_by(form, choices)
    order = form.get("date_order", task.date_order or "")
    if order and order not in set(DateOrder):
        raise field_error("date_order", "Choose what comes first.")
    encoding = form.get("encoding", task.encoding or "")
    if encoding and encoding not in ENCODINGS:
        raise field_error("encoding", "Choose the encoding of the file.")
    is_read_anew = order != (task.date_order or "") or encoding != (task.encoding or "")
    differs = on_existing != task.on_existing or chosen != [each.chosen for each in choices]
    if differs and choices:
        mapping = mapping_of(choices, chosen, shown.fields) or None
        creates = any(map(is_new_field, chosen))
    date_order = DateOrder(order) if order else None
    status_values = read_choices(task, shown.status_values, form)
    kind = ImportKind(task.kind)
    options = ImportOptions(
        *(True, on_existing, mapping, kind, creates, date_order, status_values, encoding or None)
    )
    return options, differs or is_read_anew or status_values != task.status_values


def _state_values(shown: ShownImport, form: TypedForm, first: int) -> dict[str, Any]:
    first = first if first < len(shown.choices) else 0
    return {
        "shown": shown,
        "kept_until": shown.file_kept_until,
        "form": form,
        "roles": roles_to_choose(shown.fields),
        "choices": shown.choices[first : first + COLUMNS_ON_PAGE],
        "first_column": first,
        "columns_on_page": COLUMNS_ON_PAGE,
        "date_orders": DATE_ORDERS,
        "encodings": [("", "Detect automatically"), *ENCODINGS.items()],
        "field_types": FIELD_TYPES,
        "status_choices": STATUS_CHOICES,
    }


@router.get("/{import_id}/events")
async def stream_import(request: Request, console: Console, import_id: PathId) -> Response:
    """Send the part of the page that changes, until it changes no more."""

    def look() -> LivePart:
        shown = shown_import(console, import_id)
        values = _state_values(shown, reading_form(shown), 0)
        return LivePart(
            console.render_part("import_state.html", **values), not shown.is_live, shown.job_ids
        )

    return stream_part(console, await RECORDS.run(look), look)


@router.post("/{import_id}/cancel")
def cancel_import(console: ConsoleForm, import_id: PathId) -> Response:
    """Cancel the import, or its undo; finished work stays."""
    shown = shown_import(console, import_id)
    worker = shown.undo if shown.is_undoing else shown.job
    with console.unit_of_work() as uow:
        cancelled = 0 if worker is None else jobs.cancel_own_job(uow, console.caller, worker.id)
    notice = "It stops at its next step." if cancelled else "It had ended already."
    return console.redirect_with_notice(f"{PREFIX}/{import_id}", notice)


@router.post("/{import_id}/retry")
def retry_import(console: ConsoleForm, uow: Transaction, import_id: PathId) -> Response:
    """Continue an import that broke, with the rows that are not done."""
    records.retry_import(uow, console.caller, import_id)
    return console.redirect_with_notice(f"{PREFIX}/{import_id}", "The import goes on.")


@router.get("/{import_id}/not-added")
def download_rejects(console: RecentConsole, uow: Transaction, import_id: PathId) -> Response:
    """Redirect to the file of the rows that were not added, by a link that is made now."""
    if records.get_import(uow, console.caller, import_id).files_removed_at is not None:
        raise errors.IMPORT_ERRORS_GONE()
    return redirect_to(build_import_errors_url(console.state, import_id))


@router.get("/{import_id}/undo")
def show_undo(console: RecentConsole, import_id: PathId, form: EmptyForm) -> Response:
    """Show whom the undo would take back, and links to what holds the others."""
    with console.unit_of_work() as uow:
        preview = forecast_undo(uow, records.get_import(uow, console.caller, import_id))
        ids = [each.id for each in preview.held_by if each.kind == "bulk_action"]
        bulks = {each.id: each for each in actions.find_bulk_actions(uow, console.caller, ids)}
        names = tags.find_tag_names(uow, (each.tag_id for each in bulks.values() if each.tag_id))
    holders = []
    for each in preview.held_by:
        words, path = f"The import of {each.name or 'members'}", f"{PREFIX}/{each.id}"
        if (bulk := bulks.get(each.id)) is not None and each.kind == "bulk_action":
            words = words_of(bulk, names)
            path = f"{get_list_path(bulk.list_id)}/bulk-actions/{bulk.id}"
        holders.append((words, path, each.members))
    shown = shown_import(console, import_id)
    return console.render_form(
        "undo_import.html", form, shown=shown, preview=preview, holders=holders
    )


@router.post("/{import_id}/undo")
def undo_import(console: RecentConsoleForm, import_id: PathId) -> Response:
    try:
        with console.unit_of_work() as uow:
            records.undo_import(uow, console.caller, import_id)
    except DomainError as error:
        return show_undo(console, import_id, console.add_error(error))
    return redirect_to_path(console.state, f"{PREFIX}/{import_id}")
