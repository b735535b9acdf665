"""The API endpoints for exports."""

from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, StreamingResponse

from api.auth.requirements import EXPORT_KIND_SCOPE, UNLIMITED
from api.limits.bulkheads import STORAGE
from api.openapi.declarations import (
    LIST_ERRORS,
    PREFER_PARAMETER,
    SELECTION_ERRORS,
    accepted_response,
    describe_file,
    error_responses,
)
from api.preferences import PreferenceOf
from api.record_ids import ListId, PathId
from api.responses.downloads import build_download_headers, stream_file
from api.responses.file_links import require_signed_url
from api.responses.jobs import build_job_response, wait_for_job
from api.route_classes import JsonRoute
from api.schemas.envelope import Envelope
from api.schemas.jobs import JobRecord
from api.schemas.segments import NewExport
from api.state import State, StateOf
from core.errors import access, mailing, media, requests
from core.queues import Queue
from services.access.caller import Caller
from services.subscriptions import exports
from services.subscriptions.export_sheets import ExportFormat
from services.subscriptions.exports import ExportOrder

router = APIRouter(tags=["Bulk members"], route_class=JsonRoute)

WAIT_SECONDS = 30.0


_FILE_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"content": describe_file("application/gzip"), "description": "The file of the export"},
    **error_responses(media.SIGNED_LINK_INVALID, mailing.EXPORT_NOT_FOUND, media.MEDIA_DAMAGED),
}


@router.post(
    "/lists/{list_id}/exports",
    summary="Export a list",
    openapi_extra={"parameters": [PREFER_PARAMETER]},
    response_model=Envelope[JobRecord],
    responses=accepted_response(
        Envelope[JobRecord],
        *LIST_ERRORS,
        access.AUTH_LOGIN_AGAIN,
        access.QUOTA_EXCEEDED,
        access.AUTH_DELIVERY_SCOPE_NEEDED,
        access.AUTH_DELIVERY_FORBIDDEN,
        mailing.LIST_EMAIL_CHANNEL_DISABLED,
        mailing.FILTER_INVALID,
        mailing.FILTER_TOO_LARGE,
        mailing.LIST_BUSY,
        *SELECTION_ERRORS,
        mailing.EXPORT_STATUS_OF_ROSTER,
        mailing.EXPORT_BOM,
        requests.QUEUE_OVERLOADED,
    ),
)
async def export_list(
    request: Request,
    state: StateOf,
    caller: Annotated[Caller, EXPORT_KIND_SCOPE],
    list_id: ListId,
    body: NewExport,
    preference: PreferenceOf,
) -> JSONResponse:
    """Export a list to a file. The job result contains the `url` of the file and the number of
    `rows`.

    The file is CSV or JSON Lines, compressed with gzip. A `members` export is for the owner of the
    list. The export contains current and former members, except removed members. Pass a segment, a
    filter or statuses to select members. A `delivery` export is for the program that sends the
    newsletter. The export contains members who receive mail, each with a trace id and mail headers.
    Pass a segment or a filter to select members.
    """
    seconds = preference.seconds(WAIT_SECONDS)
    state.queue_ages.check(Queue.EXPORT, waits=seconds > 0)
    statuses = None if body.status is None else tuple(dict.fromkeys(body.status))
    order = ExportOrder(
        kind=body.kind,
        segment_id=body.segment_id,
        written=body.filter,
        statuses=statuses,
        form=body.format,
        bom=body.bom,
        label=body.label,
    )
    begun_job = await state.in_unit_of_work(exports.begin_export, caller, list_id, order)
    job = await wait_for_job(request, state, begun_job.id, seconds)
    return build_job_response(state, job)


@router.get(
    "/exports/{export_id}/file.csv.gz",
    summary="Download an export as CSV",
    dependencies=[UNLIMITED],
    response_class=StreamingResponse,
    responses=_FILE_RESPONSES,
)
@STORAGE.threaded
def download_export(request: Request, state: StateOf, export_id: PathId) -> StreamingResponse:
    """Download the CSV file of an export with its signed URL. Files expire after seven days."""
    return _stream_export(request, state, export_id, ExportFormat.CSV)


@router.get(
    "/exports/{export_id}/file.jsonl.gz",
    summary="Download an export as JSON Lines",
    dependencies=[UNLIMITED],
    response_class=StreamingResponse,
    responses=_FILE_RESPONSES,
)
@STORAGE.threaded
def download_export_lines(request: Request, state: StateOf, export_id: PathId) -> StreamingResponse:
    """Download the JSON Lines file of an export, compressed with gzip."""
    return _stream_export(request, state, export_id, ExportFormat.JSONL)


def _stream_export(
    request: Request, state: State, export_id: int, form: ExportFormat
) -> StreamingResponse:
    require_signed_url(request)
    with state.resources.unit_of_work() as uow:
        export, mailing_list = exports.get_finished_export(uow, export_id, form)
    stored = exports.open_export_file(state.resources, export)
    headers = build_download_headers(f"{mailing_list.slug}-{export.kind}.{form}.gz")
    headers["Content-Length"] = str(export.size)
    return stream_file(request, STORAGE, stored.stream(), headers, "application/gzip")
