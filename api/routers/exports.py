from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import Field

from api.access.browsers import client_address
from api.access.requirements import OF_EXPORT_KIND, UNLIMITED
from api.bodies.json_route import JsonRoute
from api.job_answers import GOES_ON, job_response, wait_for_job
from api.limits.bulkheads import STORAGE
from api.middleware.paths import is_head
from api.openapi import PREFER_PARAMETER, file_of, refuses
from api.parameters import PathId, PreferenceOf, StateOf
from api.request_ids import current_request_id
from api.schemas.envelope import Body, Envelope
from api.schemas.jobs import JobRecord
from api.signed_files import download_headers, require_signed_url
from api.waiting.downloads import SLOW_DOWNLOADS
from core.lanes import Lane
from core.refusals import access, mailing, media, requests
from core.scopes import Scope
from services.access.caller import Caller
from services.mailing import exports
from services.mailing.exports import ExportKind

router = APIRouter(tags=["Bulk members"], route_class=JsonRoute)

WAIT_SECONDS = 30.0


class NewExport(Body):
    kind: Annotated[ExportKind, Field(strict=False)]


@router.post(
    "/lists/{list_id}/exports",
    openapi_extra={"parameters": [PREFER_PARAMETER]},
    response_model=Envelope[JobRecord],
    responses={
        202: {"model": Envelope[JobRecord], "description": GOES_ON},
        **refuses(
            mailing.LIST_NOT_OWNER,
            mailing.LIST_NOT_FOUND,
            access.AUTH_LOGIN_AGAIN,
            access.QUOTA_EXCEEDED,
            access.AUTH_INSUFFICIENT_SCOPE.filled(scope=Scope.DELIVERY),
            mailing.LIST_EMAIL_CHANNEL_DISABLED,
            requests.QUEUE_OVERLOADED,
        ),
    },
)
async def export_list(
    request: Request,
    state: StateOf,
    caller: Annotated[Caller, OF_EXPORT_KIND],
    list_id: PathId,
    body: NewExport,
    preference: PreferenceOf,
) -> JSONResponse:
    """Write a list to a CSV.gz file; the job's result has its `url` and its number of `rows`.

    `members`, for the owner: all present and former members, except those who were removed.
    `delivery`, for the program that sends the list's mail: all members who get it, each with a
    trace id and headers.
    """
    seconds, request_id = preference.seconds(WAIT_SECONDS), current_request_id()
    state.lane_ages.check(Lane.EXPORT, waits=seconds > 0)
    job_id = await state.in_unit_of_work(
        lambda uow: (
            exports.begin(
                uow,
                state.resources.settings,
                caller,
                list_id,
                body.kind,
                request_id=request_id,
            ).id
        )
    )
    job = await wait_for_job(request, state, job_id, seconds)
    return job_response(state, job)


@router.get(
    "/exports/{export_id}/file.csv.gz",
    dependencies=[UNLIMITED],
    response_class=StreamingResponse,
    responses={
        200: {"content": file_of("application/gzip"), "description": "The file"},
        **refuses(media.SIGNED_LINK_INVALID, mailing.EXPORT_NOT_FOUND, media.MEDIA_DAMAGED),
    },
)
@STORAGE.threaded
def download_export(request: Request, state: StateOf, export_id: PathId) -> StreamingResponse:
    """The file of an export, by its signed URL; it is kept for seven days."""
    require_signed_url(request)
    with state.resources.unit_of_work() as uow:
        export, mailing_list = exports.get_finished(uow, export_id)
    stored = exports.open_file(state.resources, export)
    headers = download_headers(f"{mailing_list.slug}-{export.kind}.csv.gz")
    headers["Content-Length"] = str(export.size)
    content = iter(()) if is_head(request.scope) else stored.stream()
    pieces = SLOW_DOWNLOADS.watched(client_address(request), STORAGE.iterate(content))
    return StreamingResponse(pieces, HTTPStatus.OK, headers, media_type="application/gzip")
