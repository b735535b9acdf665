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
from api.openapi import (
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
from core.queues import Queue
from models import ImportKind, MemberImport
from services.access.sessions import has_recent_login
from services.subscriptions.imports import (
    accepting,
    endings,
    import_options,
    records,
    rejected_rows,
)
from services.subscriptions.imports.dates import DateOrder
from services.subscriptions.imports.encodings import ENCODINGS
from services.subscriptions.imports.import_options import ImportOptions
from services.subscriptions.imports.undo import IMPORT_UNDO
from services.subscriptions.imports.undo_preview import forecast_undo

router = APIRouter(tags=["Bulk members"], route_class=JsonRoute)

# By default, a request doesn't wait for an import job, because an import takes long.
IMPORT_WAIT_SECONDS = 0.0

Filename = Annotated[
    str | None, Query(max_length=255, description="Of a file that is the body itself")
]
DryRun = Annotated[bool, Query(description="Judge every row and change nothing")]
OnExisting = Annotated[
    Literal["skip", "update"],
    Query(
        description="update: active members get the file's name, tier and fields; skip: they only "
        "get fields and tags that they lack"
    ),
]
CreateFields = Annotated[
    bool,
    Query(description="Create a field of each column that nothing else is known of; at most 50"),
]
Mapping = Annotated[
    str | None,
    Query(
        description="JSON object: columns, by name or place from 0, and what they are: email, "
        "name, first_name, middle_name, last_name, tier, paid_expiry, status, subscribed, "
        "unsubscribed, confirmed, tags, joined_at, fields.<key>, "
        "fields.<key>:<type> with the type of a new field, "
        "consent.at, consent.ip, consent.url, consent.wording, consent.confirmed_at, "
        "consent.confirmed_ip or ignore",
        examples=['{"Mail": "email", "Company": "fields.company"}'],
    ),
]

StatusValues = Annotated[
    str | None,
    Query(
        description="JSON object that maps each consent value in the file to a status: "
        "subscribed, unsubscribed, bounced, complained or not_subscribed",
        examples=['{"1": "subscribed", "2": "unsubscribed"}'],
    ),
]

DateOrderOf = Annotated[
    DateOrder | None,
    Query(
        description="Whether the day or the month comes first in dates such as 03/04/2025, where "
        "no date of the same column shows it. Without it such a file fails with "
        "import.date_order_needed"
    ),
]

EncodingOf = Annotated[
    str | None,
    Query(
        description="The encoding of the file: " + ", ".join(ENCODINGS) + ". Without it, the "
        "encoding is detected; if it is uncertain, the import fails with import.encoding_needed",
        examples=["cp1250"],
    ),
]

Kind = Annotated[
    ImportKind,
    Query(
        description="members, or the addresses that a sending product suppresses: suppressions "
        "names each row's reason, or bounces, or complaints"
    ),
]

_FILE_SCHEMA = {"type": "string", "format": "binary", "description": "At most 2 GB"}
_FORM_SCHEMA = {
    "type": "object",
    "description": "The file alone: options go into the query",
    "required": ["file"],
    "properties": {"file": _FILE_SCHEMA},
}


@router.post(
    "/lists/{list_id}/imports",
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
) -> JSONResponse:
    """Import members from a file of up to 2 GB, on the paid plan; a dry run needs none.

    CSV, TSV and JSON Lines, also as .gz or .zip, as the part `file` of a form or as the body
    itself. Exports of Mailchimp, Substack, Ghost, Buttondown, Kit and beehiiv need no changes. The
    job's result has what each column becomes. A row of another `kind` than members is an opt-out.
    Answers 202 with the job once the file is stored; `Prefer: wait=N` waits for the job's end.
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
    )
    state.queue_ages.check(Queue.BULK, waits=False)
    await state.in_unit_of_work(accepting.check_upload, caller, list_id, dry_run=dry_run)
    file = accepting.create_file(state.resources)
    received = await store_upload(
        request,
        file.writer,
        filename,
        partial(accepting.discard_file, state.resources),
        caller_id=caller.user_id,
        check_part=lambda name: refuse_parts(request, [name]),
    )
    accepted = await RECORDS.run(
        accepting.accept_file,
        state.resources,
        caller.user_id,
        list_id,
        file=file,
        filename=received.filename,
        options=options,
    )
    seconds = preference.seconds(IMPORT_WAIT_SECONDS)
    job = await wait_for_job(request, state, accepted.job_id, seconds)
    return await RECORDS.run(build_job_response, state, job)


@router.get("/imports", responses=error_responses(requests.CURSOR_INVALID))
def list_imports(
    state: StateOf,
    uow: Transaction,
    caller: ListReader,
    paging: Paging,
    list_id: Annotated[int | None, Query(ge=0, description="Of this list alone")] = None,
) -> Envelope[Page[ImportRecord]]:
    """The caller's imports, newest first.

    If the login of a session is older than 15 minutes, each `errors_url` lacks its signature, so it
    can't be opened.
    """
    is_recent = has_recent_login(uow, caller)

    def convert(rows: list[MemberImport]) -> list[ImportRecord]:
        return [_build_record(state, task, has_recent_login=is_recent) for task in rows]

    return build_envelope(
        build_page(paging, partial(records.list_imports, uow, caller, list_id=list_id), convert)
    )


@router.get("/imports/{import_id}", responses=error_responses(imports.IMPORT_NOT_FOUND))
def read_import(
    state: StateOf, uow: Transaction, caller: ListReader, import_id: PathId
) -> Envelope[ImportRecord]:
    """Return one of the caller's imports: its options, its progress and its counts.

    If the login of a session is older than 15 minutes, `errors_url` lacks its signature, so it
    can't be opened.
    """
    task = records.get_import(uow, caller, import_id)
    return build_envelope(
        _build_record(state, task, has_recent_login=has_recent_login(uow, caller))
    )


@router.get(
    "/imports/{import_id}/errors.csv",
    dependencies=[UNLIMITED],
    response_class=StreamingResponse,
    responses={
        200: {
            "content": describe_text(
                "text/csv",
                "Email Address,Name,line,code,reason\n"
                "ada@,Ada Reader,17,email.invalid,There must be something after the @-sign.\n",
            ),
            "description": "The original columns, then ours",
        },
        **error_responses(media.SIGNED_LINK_INVALID, imports.IMPORT_ERRORS_GONE),
    },
)
def download_import_errors(
    request: Request, state: StateOf, import_id: PathId
) -> StreamingResponse:
    """The rows that were not added, each with its line, code and reason; by a signed URL."""
    require_signed_url(request)
    headers = build_download_headers(f"import-{import_id}-not-added.csv")
    lines = rejected_rows.stream_rejected_rows(state.resources, import_id)
    return stream_file(request, RECORDS, lines, headers, "text/csv; charset=utf-8")


@router.get("/imports/{import_id}/undo", responses=error_responses(imports.IMPORT_NOT_FOUND))
def preview_undo(uow: Transaction, caller: ListReader, import_id: PathId) -> Envelope[UndoPreview]:
    """Count whom an undo would take back now, and name what holds the members who would stay.

    Looks at no more than 100,000 of the import's members.
    """
    forecast = forecast_undo(uow, records.get_import(uow, caller, import_id))
    return build_envelope(UndoPreview.model_validate(forecast, from_attributes=True))


@router.delete(
    "/imports/{import_id}/members",
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
    """Undo an import; the answer is how many members are as they were before it.

    A member who was changed since then stays, and is counted as `kept` in the job's result; once
    nothing holds them any more, another call takes them back too. 0: the import was undone whole
    before. It can be undone until `undo_until`. Waits 30 s unless `Prefer` says
    otherwise; a 202 has the job's id. A session needs a login of the last 15 minutes.
    """
    undo = partial(records.undo_import, caller=caller, import_id=import_id)
    return await respond_to_undo(request, state, preference, undo)


def _build_record(state: State, task: MemberImport, *, has_recent_login: bool) -> ImportRecord:
    return ImportRecord.of_row(
        task,
        **endings.get_columns(task),
        errors_url=build_import_errors_url(state, task.id, has_recent_login=has_recent_login),
        undo_until=IMPORT_UNDO.available_until(task),
    )
