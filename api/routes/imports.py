"""The API endpoints for imports."""

from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, StreamingResponse

from api.auth.requirements import UNLIMITED, ListEditor, ListReader
from api.bodies.multipart import MULTIPART
from api.bodies.unknown_names import refuse_parts
from api.bodies.upload_stream import store_upload
from api.limits.bulkheads import RECORDS
from api.openapi.declarations import (
    LIST_ERRORS,
    PREFER_PARAMETER,
    accepted_response,
    describe_text,
    error_responses,
)
from api.paging import Paging
from api.preferences import PreferenceOf
from api.record_ids import ListId, PathId
from api.responses.downloads import build_download_headers, stream_file
from api.responses.file_links import build_import_errors_url, require_signed_url
from api.responses.jobs import build_job_response, respond_to_undo, wait_for_job
from api.route_classes import JsonRoute
from api.schemas.envelope import Envelope, Page, build_envelope, build_page
from api.schemas.imports import ImportRecord, UndoPreview
from api.schemas.jobs import JobId, JobRecord
from api.state import State, StateOf, Transaction
from core.errors import access, imports, mailing, media, requests
from core.permissions import Permission
from core.queues import Queue
from models import ImportKind, MemberImport
from services.access.caller import Caller
from services.access.sessions import has_recent_login
from services.subscriptions.imports import accepting, endings, import_options, records
from services.subscriptions.imports.chunks import rejected_rows
from services.subscriptions.imports.columns.dates import DateOrder
from services.subscriptions.imports.formats.encodings import ENCODINGS
from services.subscriptions.imports.formats.workbooks.refusals import MAX_SHEET_NAME_CHARACTERS
from services.subscriptions.imports.import_options import ImportOptions
from services.subscriptions.imports.undo import IMPORT_UNDO
from services.subscriptions.imports.undo_preview import forecast_undo

router = APIRouter(tags=["Bulk members"], route_class=JsonRoute)

# By default, a request doesn't wait for an import job, because an import takes long.
IMPORT_WAIT_SECONDS = 0.0

Filename = Annotated[
    str | None,
    Query(
        max_length=255, description="The name of the file if the request body is the file itself"
    ),
]
DryRun = Annotated[
    bool, Query(description="Whether to check every row without changing any member")
]
OnExisting = Annotated[
    Literal["skip", "update"],
    Query(
        description="What to do with active members. With `update`, the values in the file "
        "replace the name, tier and fields. With `skip`, only missing fields and "
        "tags are added."
    ),
]
CreateFields = Annotated[
    bool,
    Query(description="Whether to create a field for each unknown column, at most 50 fields"),
]
Mapping = Annotated[
    str | None,
    Query(
        description="A JSON object that maps each column of the file to its meaning. A key is the "
        "name of a column, or the column's position, starting at 0. A value is email, name, "
        "first_name, middle_name, last_name, tier, paid_expiry, status, "
        "subscribed, unsubscribed, confirmed, tags, joined_at, fields.<key>, "
        "consent.at, consent.ip, consent.url, consent.wording, "
        "consent.confirmed_at, consent.confirmed_ip, origin.utm_source, "
        "origin.utm_medium, origin.utm_campaign, origin.utm_term, origin.utm_content, "
        "origin.referrer, origin.landing or ignore. To "
        "create a member field, use fields.<key>:<type>.",
        examples=['{"Mail": "email", "Company": "fields.company"}'],
    ),
]

StatusValues = Annotated[
    str | None,
    Query(
        description="A JSON object that maps each consent value in the file to a status: "
        "subscribed, unsubscribed, bounced, complained or not_subscribed",
        examples=['{"1": "subscribed", "2": "unsubscribed"}'],
    ),
]

DateOrderOf = Annotated[
    DateOrder | None,
    Query(
        description="Whether the day or the month comes first in ambiguous dates such as "
        "03/04/2025. Without this parameter, a file with only ambiguous dates in "
        "a column fails with import.date_order_needed."
    ),
]

EncodingOf = Annotated[
    str | None,
    Query(
        description="The encoding of the file: " + ", ".join(ENCODINGS) + ". Without "
        "this parameter, the encoding is detected. If the encoding is uncertain, the import fails "
        "with import.encoding_needed.",
        examples=["cp1250"],
    ),
]

SheetName = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=MAX_SHEET_NAME_CHARACTERS,
        pattern=r"^[^\x00]+$",
        description="The sheet of an Excel workbook to read. Without this parameter, the first "
        "visible sheet with an e-mail column is read. Other files ignore this parameter.",
        examples=["Members"],
    ),
]

Kind = Annotated[
    ImportKind,
    Query(
        description="The kind of rows in the file. Use suppressions, bounces or complaints "
        "for suppression lists of a sending product. In a suppressions file, each "
        "row contains its reason."
    ),
]

_FILE_SCHEMA = {"type": "string", "format": "binary", "description": "A file of at most 2 GB"}
_FORM_SCHEMA = {
    "type": "object",
    "description": "A form with the file. Pass the options in the query string.",
    "required": ["file"],
    "properties": {"file": _FILE_SCHEMA},
}


@router.post(
    "/lists/{list_id}/imports",
    summary="Import members from a file",
    openapi_extra={
        "parameters": [PREFER_PARAMETER],
        "requestBody": {
            "required": True,
            "content": {
                MULTIPART: {"schema": _FORM_SCHEMA},
                "application/octet-stream": {"schema": _FILE_SCHEMA},
            },
        },
    },
    response_model=Envelope[JobRecord],
    responses=accepted_response(
        Envelope[JobRecord],
        *LIST_ERRORS,
        mailing.PLAN_REQUIRED,
        access.QUOTA_EXCEEDED,
        requests.BODY_MALFORMED_UPLOAD,
        requests.OPTION_IN_BODY,
        imports.IMPORT_FILE_MISSING,
        imports.IMPORT_SEVERAL_FILES,
        imports.IMPORT_EMPTY_FILE,
        imports.IMPORT_MAPPING,
        imports.IMPORT_STATUS_VALUES,
        imports.IMPORT_ENCODING,
        requests.BODY_TOO_SLOW,
        imports.IMPORT_TOO_LARGE,
        requests.QUEUE_OVERLOADED,
    ),
)
async def import_members(
    request: Request,
    state: StateOf,
    caller: ListEditor,
    list_id: ListId,
    preference: PreferenceOf,
    *,
    filename: Filename = None,
    dry_run: DryRun = False,
    on_existing: OnExisting = "skip",
    mapping: Mapping = None,
    kind: Kind = ImportKind.MEMBERS,
    create_fields: CreateFields = False,
    date_order: DateOrderOf = None,
    status_values: StatusValues = None,
    encoding: EncodingOf = None,
    sheet: SheetName = None,
) -> JSONResponse:
    """Import members from a file of up to 2 GB. Imports require the paid plan, but dry runs don't.

    The file can be an Excel workbook (.xlsx), CSV, TSV or JSON Lines. CSV, TSV and JSON Lines can
    be compressed as .gz or .zip. Send the file as the form part `file` or as the request body.
    Exports from Mailchimp, Substack, Ghost, Buttondown, Kit and beehiiv need no changes. The
    job's result contains the meaning of each column of the file. If `kind` isn't `members`, each
    row of the file becomes an opt-out. After the file is stored, the response has the status 202
    and contains the job. Set `Prefer: wait=N` to wait for the end of the job.
    """
    columns = import_options.read_mapping(mapping, imports.IMPORT_MAPPING)
    statuses = import_options.read_status_values(status_values)
    options = ImportOptions(
        dry_run,
        on_existing,
        columns,
        kind,
        create_fields,
        date_order,
        statuses,
        import_options.read_encoding(encoding),
        sheet,
    )
    state.queue_ages.check(Queue.BULK, waits=False)
    await state.in_unit_of_work(accepting.check_upload, caller, list_id, dry_run=dry_run)
    file = accepting.create_file(state.resources)
    received = await store_upload(
        request,
        file.writer,
        filename,
        partial(accepting.discard_file, state.resources),
        account_id=caller.account_id,
        check_part=lambda name: refuse_parts(request, [name]),
    )
    accepted = await RECORDS.run(
        accepting.accept_file,
        state.resources,
        caller.account_id,
        list_id,
        file=file,
        filename=received.filename,
        options=options,
    )
    seconds = preference.seconds(IMPORT_WAIT_SECONDS)
    job = await wait_for_job(request, state, accepted.job_id, seconds)
    return await RECORDS.run(build_job_response, state, job)


@router.get(
    "/imports", summary="List all imports", responses=error_responses(requests.CURSOR_INVALID)
)
def list_imports(
    state: StateOf,
    uow: Transaction,
    caller: ListReader,
    paging: Paging,
    list_id: Annotated[
        int | None, Query(ge=0, description="Return only imports into this list")
    ] = None,
) -> Envelope[Page[ImportRecord]]:
    """List your imports, newest first.

    If the session logged in more than 15 minutes ago, each `errors_url` lacks its signature and
    can't be opened.
    """
    is_recent = has_recent_login(uow, caller)

    def convert(rows: list[MemberImport]) -> list[ImportRecord]:
        return [_build_record(state, caller, task, has_recent_login=is_recent) for task in rows]

    return build_envelope(
        build_page(paging, partial(records.list_imports, uow, caller, list_id=list_id), convert)
    )


@router.get(
    "/imports/{import_id}",
    summary="Retrieve an import",
    responses=error_responses(imports.IMPORT_NOT_FOUND),
)
def read_import(
    state: StateOf, uow: Transaction, caller: ListReader, import_id: PathId
) -> Envelope[ImportRecord]:
    """Retrieve the options, progress and counts of an import.

    If the session logged in more than 15 minutes ago, `errors_url` lacks its signature and can't be
    opened.
    """
    task = records.get_import(uow, caller, import_id)
    return build_envelope(
        _build_record(state, caller, task, has_recent_login=has_recent_login(uow, caller))
    )


@router.get(
    "/imports/{import_id}/errors.csv",
    summary="Download rejected rows",
    dependencies=[UNLIMITED],
    response_class=StreamingResponse,
    responses={
        200: {
            "content": describe_text(
                "text/csv",
                "Email Address,Name,line,code,reason\n"
                "ada@,Ada Reader,17,email.invalid,There must be something after the @-sign.\n",
            ),
            "description": "The original columns, followed by the columns line, code and reason",
        },
        **error_responses(media.SIGNED_LINK_INVALID, imports.IMPORT_ERRORS_GONE),
    },
)
def download_import_errors(
    request: Request, state: StateOf, import_id: PathId
) -> StreamingResponse:
    """Download the rejected rows of an import, each with its line, code and reason. The request
    needs the signed URL.
    """
    require_signed_url(request)
    headers = build_download_headers(f"import-{import_id}-not-added.csv")
    lines = rejected_rows.stream_rejected_rows(state.resources, import_id)
    return stream_file(request, RECORDS, lines, headers, "text/csv; charset=utf-8")


@router.get(
    "/imports/{import_id}/undo",
    summary="Preview the undo of an import",
    responses=error_responses(imports.IMPORT_NOT_FOUND),
)
def preview_undo(uow: Transaction, caller: ListReader, import_id: PathId) -> Envelope[UndoPreview]:
    """Count the members that an undo would restore or keep. The response also lists actions that
    block the undo for some members.

    At most 100,000 members of the import are counted.
    """
    forecast = forecast_undo(uow, records.get_import(uow, caller, import_id))
    return build_envelope(UndoPreview.model_validate(forecast, from_attributes=True))


@router.delete(
    "/imports/{import_id}/members",
    summary="Undo an import",
    openapi_extra={"parameters": [PREFER_PARAMETER]},
    response_model=Envelope[int],
    responses=accepted_response(
        Envelope[JobId],
        imports.IMPORT_NOT_FOUND,
        imports.IMPORT_RUNNING,
        imports.IMPORT_UNDO_OVER,
        access.AUTH_LOGIN_AGAIN,
    ),
)
async def undo_import(
    request: Request,
    state: StateOf,
    caller: ListEditor,
    import_id: PathId,
    preference: PreferenceOf,
) -> JSONResponse:
    """Undo an import, and return the number of restored members.

    Members who were changed after the import are not restored. In the job result, `kept` is the
    number of members who were not restored. To restore members who were changed after the import,
    first revert these changes, and then undo the import again. If the import is already undone, the
    returned number is 0. You can undo an import until `undo_until`. The request waits up to 30
    seconds unless `Prefer` sets a different time. A 202 response contains the id of the job.
    Callers with a session cookie must have logged in within the last 15 minutes.
    """
    undo = partial(records.undo_import, caller=caller, import_id=import_id)
    return await respond_to_undo(request, state, preference, undo)


def _build_record(
    state: State, caller: Caller, task: MemberImport, *, has_recent_login: bool
) -> ImportRecord:
    errors_url = build_import_errors_url(state, task.id, has_recent_login=has_recent_login)
    return ImportRecord.of_row(
        task,
        **endings.get_columns(task),
        errors_url=errors_url if caller.may(Permission.MEMBERS) else None,
        undo_until=IMPORT_UNDO.available_until(task),
        left=task.undo_left or 0,
    )
