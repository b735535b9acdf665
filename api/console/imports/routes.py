"""Pages on which an owner imports members, from the dry run of a file to the undo."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from fastapi import Depends, Query, Request
from fastapi.responses import Response

from api.auth.csrf import CSRF_FIELD, require_csrf
from api.bodies.json_bodies import parse_media_type
from api.bodies.multipart import MULTIPART
from api.bodies.upload_stream import store_upload
from api.console.assets import CONSOLE_PATH
from api.console.imports.column_choices import (
    FIELD_TYPES,
    build_mapping,
    is_new_field,
    list_roles,
    read_column_choices,
)
from api.console.imports.status_values import STATUS_CHOICES, read_status_choices
from api.console.imports.views import (
    COLUMNS_ON_PAGE,
    DATE_ORDERS,
    ImportView,
    describe_result,
    read_view,
)
from api.console.members.bulk import describe_bulk_action
from api.console.navigation import get_list_path
from api.console.part_streams import LivePart, stream_part
from api.console.plan_notices import IMPORTING_FILES_TEXT, find_plan_notice
from api.console.requests import (
    ConsoleAccess,
    ConsoleRequest,
    EditForm,
    EditPage,
    EmptyForm,
    FiguresPage,
    build_router,
    shows_errors_on,
)
from api.console.typed_forms import TypedForm, build_field_error
from api.html.frame import redirect_to
from api.limits.bulkheads import RECORDS
from api.paging import Cursor
from api.record_ids import PathId
from api.responses.file_links import build_import_errors_url
from api.state import Transaction
from core.errors import DomainError
from core.errors import imports as errors
from core.errors.requests import BODY_NOT_MULTIPART
from core.permissions import Permission
from core.queues import Queue
from core.settings.notations import PlanQuota
from models import ImportKind
from services.jobs import records as jobs
from services.paging import PageRequest
from services.subscriptions import lists, tags
from services.subscriptions.bulk_actions import actions
from services.subscriptions.imports import accepting, records
from services.subscriptions.imports.columns.dates import DateOrder
from services.subscriptions.imports.formats.encodings import ENCODINGS
from services.subscriptions.imports.import_options import ImportOptions
from services.subscriptions.imports.undo_preview import forecast_undo
from storage.unit_of_work import UnitOfWork

PREFIX = f"{CONSOLE_PATH}/imports"
router = build_router(PREFIX)

IMPORTS_ON_PAGE = 50
FirstColumn = Annotated[int, Query(alias="columns", ge=0, le=500)]
# Maps an error code to the form field that shows the error.
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
        "From a spreadsheet or another service. People who unsubscribed there stay unsubscribed.",
    ),
    (
        ImportKind.SUPPRESSIONS.value,
        "Suppression list",
        "Addresses that your e-mail service has blocked, with a reason in each row.",
    ),
    (ImportKind.BOUNCES.value, "Bounced addresses", ""),
    (ImportKind.COMPLAINTS.value, "Spam complaints", ""),
)
UPDATE_HINT = (
    "Existing members get the name, tier and fields from the file. Without this option, the import "
    "only fills empty fields of existing members and adds tags."
)
# Uploading a file and refreshing its preview require that these quotas aren't exhausted.
_UPLOAD_QUOTAS = (PlanQuota.UNFINISHED_JOBS, PlanQuota.STORAGE_MB)
UPDATE_FIELD = "update"
START_BUTTON = "start"
RecentMembersPage = Annotated[
    ConsoleRequest, Depends(ConsoleAccess(permission=Permission.MEMBERS, is_recent=True))
]
RecentEditPage = Annotated[
    ConsoleRequest, Depends(ConsoleAccess(permission=Permission.EDIT, is_recent=True))
]
RecentEditForm = Annotated[
    ConsoleRequest, Depends(ConsoleAccess(permission=Permission.EDIT, is_form=True, is_recent=True))
]


@router.get("")
def show_imports(console: FiguresPage, uow: Transaction, cursor: Cursor = None) -> Response:
    page_request = PageRequest(IMPORTS_ON_PAGE, cursor=cursor)
    page = records.list_imports(uow, console.caller, page_request, list_id=None)
    titles = lists.read_titles(uow, [task.list_id for task in page.rows])
    views = [ImportView(task, titles[task.list_id], None, None) for task in page.rows]
    # Previews whose file is still stored wait for the owner.
    views.sort(key=lambda view: view.file_kept_until is None)
    return console.render_page(
        "imports.html",
        imports=[(view, describe_result(view.task)) for view in views],
        kinds={value: label for value, label, _ in KINDS},
        next_cursor=page.next_cursor,
    )


@router.get("/new")
def show_new_import(
    console: EditPage, uow: Transaction, form: EmptyForm, list_id: str = ""
) -> Response:
    """Show the form for a new import. ``list_id``: the preselected list, or an empty string."""
    own_lists = lists.list_choices(uow, console.account_id)
    list_choices = [(str(each.id), each.title) for each in own_lists]
    if len(list_choices) > 1:
        list_choices.insert(0, ("", "Choose a list"))
    form = form.fill({"list_id": list_id, "kind": ImportKind.MEMBERS.value})
    return console.render_page(
        "new_import.html",
        form,
        lists=list_choices,
        kinds=KINDS,
        update_hint=UPDATE_HINT,
        refusal=find_plan_notice(uow, console.account_id, *_UPLOAD_QUOTAS),
        import_notice=find_plan_notice(
            uow, console.account_id, paid_plan_text=IMPORTING_FILES_TEXT
        ),
    )


@router.post("/new")
async def upload_import(request: Request, console: EditPage) -> Response:
    state = console.state
    resources = console.state.resources
    # The form fields precede the uploaded file in the request body.
    inputs: dict[str, str] = {}
    list_options: list[tuple[int, ImportOptions]] = []

    async def check(fields: Mapping[str, str]) -> None:
        inputs.update(fields)
        require_csrf(request, state, console.member.cookie, fields.get(CSRF_FIELD))
        list_options.append(_read_upload_choices(fields))
        state.queue_ages.check(Queue.BULK, waits=False)

        def check_list(uow: UnitOfWork) -> None:
            list_id, _ = list_options[0]
            console.get_own_list(uow, list_id)
            accepting.check_upload(uow, console.caller, list_id, dry_run=True)

        await state.in_unit_of_work(check_list)

    try:
        if parse_media_type(request.headers.get("content-type", "")) != MULTIPART:
            require_csrf(request, state, console.member.cookie)
            raise BODY_NOT_MULTIPART()
        file = accepting.create_file(resources)
        discard = partial(accepting.discard_file, resources)
        received = await store_upload(
            request, file.writer, None, discard, account_id=console.account_id, check=check
        )
        list_id, options = list_options[0]
        accepted = await RECORDS.run(
            accepting.accept_file,
            resources,
            console.account_id,
            list_id,
            file=file,
            filename=received.filename,
            options=options,
        )
    except DomainError as error:
        form = await RECORDS.run(replace(console, form=inputs).add_error, error, PLACES)
        return await state.in_unit_of_work(lambda uow: show_new_import(console, uow, form))
    return console.redirect(f"{PREFIX}/{accepted.subject_id}")


def _read_upload_choices(form: Mapping[str, str]) -> tuple[int, ImportOptions]:
    try:
        list_id = lists.parse_list_id(form.get("list_id", ""))
    except DomainError:
        list_id = None
    if list_id is None:
        raise build_field_error("list_id", "Choose a list.")
    if form.get("kind") not in set(ImportKind):
        raise build_field_error("kind", "Choose what the file contains.")
    kind = ImportKind(form["kind"])
    create_fields = "create_fields" in form
    return list_id, ImportOptions(True, _read_on_existing(form), None, kind, create_fields)


def _read_on_existing(form: Mapping[str, str]) -> str:
    return UPDATE_FIELD if UPDATE_FIELD in form else "skip"


@router.get("/{import_id}")
def show_import(
    console: FiguresPage, uow: Transaction, import_id: PathId, columns: FirstColumn = 0
) -> Response:
    view = read_view(uow, console, import_id)
    return console.render_page(
        "import.html", **_build_page_values(uow, console, view, build_reading_form(view), columns)
    )


@router.post("/{import_id}")
def read_import_again(
    console: EditForm, uow: Transaction, import_id: PathId, columns: FirstColumn = 0
) -> Response:
    """Repeat a dry run with changed options, or import the file if no option has changed.

    A file is imported only with the options of its last dry run, because the owner must see the
    preview first.
    """
    view = read_view(uow, console, import_id)
    path = f"{PREFIX}/{import_id}"
    starts = console.form.get("act") == START_BUTTON
    try:
        options, differs = _read_reading_choices(view, console.form)
        dry_run = differs or not starts
        console.state.queue_ages.check(Queue.BULK, waits=False)
        records.read_again(uow, console.caller, import_id, replace(options, dry_run=dry_run))
    except DomainError as error:
        uow.roll_back()
        if error.code == errors.IMPORT_RUNNING.code:
            # The owner has started the import in another browser window.
            return console.redirect(path)
        form = console.add_error(error)
        return console.render_page(
            "import.html", **_build_page_values(uow, console, view, form, columns)
        )
    if starts and differs:
        return console.redirect(
            path, "You changed the options. Check the new preview, then import the file."
        )
    is_on_other_columns = dry_run and columns > 0
    return console.redirect(path + (f"?columns={columns}" if is_on_other_columns else ""))


def build_reading_form(view: ImportView) -> TypedForm:
    inputs = {each.box: each.chosen for each in view.choices}
    if view.task.on_existing == UPDATE_FIELD:
        inputs[UPDATE_FIELD] = "on"
    inputs["date_order"] = view.task.date_order or ""
    inputs["encoding"] = view.task.encoding or ""
    inputs["sheet"] = view.sheet
    inputs |= {each.box: each.chosen for each in view.status_values if each.box}
    return TypedForm(inputs)


def _read_reading_choices(view: ImportView, form: Mapping[str, str]) -> tuple[ImportOptions, bool]:
    """Return the submitted import options, and whether they differ from the last dry run."""
    task = view.task
    choices = view.choices
    on_existing = _read_on_existing(form)
    mapping = task.mapping
    create_fields = task.create_fields
    chosen_roles = read_column_choices(form, choices)
    order = form.get("date_order", task.date_order or "")
    if order and order not in set(DateOrder):
        raise build_field_error("date_order", "Choose the order of day and month.")
    encoding = form.get("encoding", task.encoding or "")
    if encoding and encoding not in ENCODINGS:
        raise build_field_error("encoding", "Choose the encoding of the file.")
    sheet = form.get("sheet", view.sheet)
    if sheet and sheet not in view.sheet_names:
        raise build_field_error("sheet", "Choose a sheet of the workbook.")
    has_new_format = order != (task.date_order or "") or encoding != (task.encoding or "")
    differs = on_existing != task.on_existing
    differs = differs or chosen_roles != [each.chosen for each in choices]
    if differs and choices:
        mapping = build_mapping(choices, chosen_roles, view.fields) or None
        create_fields = any(map(is_new_field, chosen_roles))
    if sheet != view.sheet:
        # Discard the mapping, because it is for the columns of the previous sheet.
        differs = True
        mapping = None
    date_order = DateOrder(order) if order else None
    status_values = read_status_choices(task, view.status_values, form)
    kind = ImportKind(task.kind)
    options = ImportOptions(
        dry_run=True,
        on_existing=on_existing,
        mapping=mapping,
        kind=kind,
        create_fields=create_fields,
        date_order=date_order,
        status_values=status_values,
        encoding=encoding or None,
        sheet=sheet or None,
    )
    return options, differs or has_new_format or status_values != task.status_values


def _build_page_values(
    uow: UnitOfWork, console: ConsoleRequest, view: ImportView, form: TypedForm, first_column: int
) -> dict[str, Any]:
    notice = None
    if view.is_broken:
        notice = find_plan_notice(uow, console.account_id, *_UPLOAD_QUOTAS)
    elif view.task.dry_run and not view.is_live and not view.is_refused:
        notice = find_plan_notice(
            uow, console.account_id, *_UPLOAD_QUOTAS, paid_plan_text=IMPORTING_FILES_TEXT
        )
    first_column = first_column if first_column < len(view.choices) else 0
    choices = sorted(view.choices, key=lambda each: not each.needs_owner)
    return {
        "list": console.find_open_list(uow, view.task.list_id),
        "view": view,
        "refusal": notice,
        "kept_until": view.file_kept_until,
        "form": form,
        "roles": list_roles(view.fields),
        "choices": choices[first_column : first_column + COLUMNS_ON_PAGE],
        "left_out": view.left_out_columns,
        "first_column": first_column,
        "columns_on_page": COLUMNS_ON_PAGE,
        "date_orders": DATE_ORDERS,
        "encodings": [("", "Detect automatically"), *ENCODINGS.items()],
        "field_types": FIELD_TYPES,
        "sheets": view.list_sheet_choices(),
        "status_choices": STATUS_CHOICES,
        "update_hint": UPDATE_HINT,
    }


@router.get("/{import_id}/events")
async def stream_import(request: Request, console: FiguresPage, import_id: PathId) -> Response:
    def read_part(uow: UnitOfWork) -> LivePart:
        view = read_view(uow, console, import_id)
        values = _build_page_values(uow, console, view, build_reading_form(view), 0)
        return LivePart(
            console.render_part("import_state.html", **values), not view.is_live, view.job_ids
        )

    return await stream_part(console, read_part)


@router.post("/{import_id}/cancel")
def cancel_import(console: EditForm, uow: Transaction, import_id: PathId) -> Response:
    """Cancel a running import, or an undo. Rows that the import has already written are kept."""
    view = read_view(uow, console, import_id)
    job = view.undo if view.is_undoing else view.job
    cancelled = 0 if job is None else jobs.cancel_own_job(uow, console.caller, job.id)
    work = "undo" if view.is_undoing else "import"
    notice = "" if cancelled else f"The {work} had already ended."
    return console.redirect(f"{PREFIX}/{import_id}", notice)


@router.post("/{import_id}/retry")
def retry_import(console: EditForm, uow: Transaction, import_id: PathId) -> Response:
    """Resume an import that failed because of an internal error."""
    records.retry_import(uow, console.caller, import_id)
    return console.redirect(f"{PREFIX}/{import_id}", "The import was resumed.")


@router.get("/{import_id}/not-added")
def download_rejects(console: RecentMembersPage, uow: Transaction, import_id: PathId) -> Response:
    """Redirect to a new signed URL of the file with the rows that weren't added."""
    if records.get_import(uow, console.caller, import_id).files_removed_at is not None:
        raise errors.IMPORT_ERRORS_GONE()
    return redirect_to(build_import_errors_url(console.state, import_id))


@router.get("/{import_id}/undo")
def show_undo(
    console: RecentEditPage, uow: Transaction, import_id: PathId, form: EmptyForm
) -> Response:
    """Show a preview of undoing an import.

    Members who were changed after the import are not fully restored.
    """
    preview = forecast_undo(uow, records.get_import(uow, console.caller, import_id))
    ids = [each.id for each in preview.held_by if each.kind == "bulk_action"]
    bulks = {each.id: each for each in actions.find_bulk_actions(uow, console.caller, ids)}
    names = tags.find_tag_names(uow, (each.tag_id for each in bulks.values() if each.tag_id))
    holders = []
    for each in preview.held_by:
        title = f"Import of {each.name or 'members'}"
        path = f"{PREFIX}/{each.id}"
        if (bulk := bulks.get(each.id)) is not None and each.kind == "bulk_action":
            title = describe_bulk_action(bulk, names)
            path = f"{get_list_path(bulk.list_id)}/bulk-actions/{bulk.id}"
        holders.append((title, path, each.members))
    view = read_view(uow, console, import_id)
    return console.render_page(
        "undo_import.html",
        form,
        list=console.find_open_list(uow, view.task.list_id),
        view=view,
        preview=preview,
        holders=holders,
    )


@router.post("/{import_id}/undo")
@shows_errors_on(show_undo)
def undo_import(console: RecentEditForm, uow: Transaction, import_id: PathId) -> Response:
    records.undo_import(uow, console.caller, import_id)
    return console.redirect(f"{PREFIX}/{import_id}")
