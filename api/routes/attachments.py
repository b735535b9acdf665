"""The API endpoints for attachments."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse
from pydantic import BeforeValidator

from api.auth.requirements import requires_scope
from api.bodies.multipart import MULTIPART
from api.bodies.multipart_forms import find_only_file, read_multipart_form
from api.bodies.unknown_names import refuse_parts
from api.bodies.url_encoded_forms import parse_boolean
from api.idempotency_keys import read_idempotency_key
from api.limits.bulkheads import RECORDS
from api.limits.keyed_bulkheads import UPLOADS_BY_CALLER
from api.middleware.body_limits import release_body
from api.openapi.declarations import (
    IDEMPOTENCY_ERRORS,
    IDEMPOTENCY_KEY_PARAMETER,
    PREFER_PARAMETER,
    QUEUE_ERRORS,
    accepted_response,
    error_responses,
)
from api.paging import Paging
from api.preferences import PreferenceOf
from api.route_classes import JsonRoute
from api.schemas.attachments import AttachmentChanges, AttachmentRecord, LinkRecord, NewLink
from api.schemas.envelope import Envelope, Page, build_envelope, build_page
from api.state import State, StateOf, Transaction
from api.waiting.disconnects import run_while_connected
from core.errors import DomainError, access, media, requests
from core.permissions import Permission
from core.queues import Queue
from core.scopes import Scope
from core.upload_limits import MAX_IMAGE_MEGABYTES
from models import Attachment, AttachmentStatus
from services.access.caller import Caller
from services.attachments import records, upload
from services.attachments.upload import Upload, clean_filename
from services.jobs.idempotency import AcceptedJob
from storage.redis.notifications import build_job_topic

router = APIRouter(tags=["Attachments"], route_class=JsonRoute)

WAIT_SECONDS = 15.0

AttachmentCaller = Annotated[Caller, requires_scope(Scope.ATTACHMENT, Permission.IMAGES)]
_NOT_FOUND = error_responses(media.ATTACHMENT_NOT_FOUND)


_FILE_SCHEMA = {
    "type": "string",
    "format": "binary",
    "description": f"PNG, JPEG, GIF, WebP or ICO, at most {MAX_IMAGE_MEGABYTES} MB",
}
_FORM_SCHEMA = {"type": "object", "required": ["file"], "properties": {"file": _FILE_SCHEMA}}
_UPLOAD_BODY: dict[str, Any] = {
    "parameters": [PREFER_PARAMETER, IDEMPOTENCY_KEY_PARAMETER],
    "requestBody": {"required": True, "content": {MULTIPART: {"schema": _FORM_SCHEMA}}},
}


def _parse_required_boolean(value: object) -> bool:
    flag = parse_boolean(value)
    if flag is None:
        raise ValueError("must be true, false, 1 or 0")
    return flag


Encrypted = Annotated[
    bool,
    BeforeValidator(_parse_required_boolean),
    Query(description="Whether to store the file encrypted and serve it only to its owner"),
]

Renditions = Annotated[
    bool,
    BeforeValidator(_parse_required_boolean),
    Query(description="Whether to create smaller copies for web pages and one copy for e-mails"),
]


@router.post(
    "/attachments",
    summary="Upload an image",
    response_model=Envelope[AttachmentRecord],
    openapi_extra=_UPLOAD_BODY,
    responses=accepted_response(
        Envelope[AttachmentRecord],
        media.ATTACHMENT_FILE_MISSING,
        media.ATTACHMENT_SEVERAL_FILES,
        requests.BODY_NOT_MULTIPART,
        requests.BODY_MALFORMED_MULTIPART,
        requests.OPTION_IN_BODY.fill(name="encrypted"),
        media.ATTACHMENT_GONE,
        access.QUOTA_EXCEEDED,
        requests.BODY_TOO_SLOW,
        media.ATTACHMENT_TOO_LARGE,
        media.ATTACHMENT_UNSUPPORTED_TYPE,
        media.ATTACHMENT_EMPTY,
        media.IMAGE_UNREADABLE,
        media.IMAGE_TRUNCATED,
        media.IMAGE_SIDE_TOO_LONG,
        media.IMAGE_TOO_MANY_PIXELS,
        media.IMAGE_TOO_MANY_FRAMES,
        *IDEMPOTENCY_ERRORS,
        *QUEUE_ERRORS,
        requests.SERVICE_BUSY,
        requests.SERVICE_UNAVAILABLE,
        description="The conversion continues in the background. The `Location` header "
        "contains the URL of the attachment.",
    ),
)
async def upload_attachment(
    request: Request,
    state: StateOf,
    caller: AttachmentCaller,
    preference: PreferenceOf,
    *,
    encrypted: Encrypted = False,
    renditions: Renditions = False,
) -> JSONResponse:
    """Upload an image and convert it to WebP. An ICO file becomes a PNG.

    The file type is detected from the content of the file. The image is rotated upright, converted
    to sRGB, and stripped of metadata. With `renditions=1`, smaller copies are created: WebP copies
    for web pages, 320, 640 and 1280 pixels wide, and a JPEG or PNG copy for e-mails. The request
    waits up to 15 seconds for the conversion. Set `Prefer: wait=N` to wait up to N seconds instead.
    """
    seconds = preference.seconds(WAIT_SECONDS)
    account_id = caller.account_id
    state.admit(Queue.MEDIA, account_id, seconds)
    accepted = await _accept_upload(
        request, state, caller, encrypted=encrypted, with_renditions=renditions
    )
    job_end = state.jobs.wait(build_job_topic(accepted.job_id), seconds, account_id=account_id)
    await run_while_connected(request.receive, job_end)
    return await RECORDS.run(_build_upload_response, state, accepted)


async def _accept_upload(
    request: Request, state: State, caller: Caller, *, encrypted: bool, with_renditions: bool
) -> AcceptedJob:
    """Read and store an uploaded image.

    A separate function reads the image, so that the image's memory is free while the route waits
    for the job.
    """
    form = await read_multipart_form(request)
    refuse_parts(request, form.list_names())
    part = find_only_file(form, "file")
    key = read_idempotency_key(request, caller, form.list_parts())
    accepted = await UPLOADS_BY_CALLER.run(
        caller.account_id,
        upload.accept_upload,
        state.resources,
        caller.account_id,
        Upload(clean_filename(part.filename), part.data, encrypted, with_renditions),
        key=key,
    )
    release_body(request.scope)
    return accepted


def _build_upload_response(state: State, accepted: AcceptedJob) -> JSONResponse:
    with state.resources.unit_of_work() as uow:
        attachment = records.find_outcome(uow, accepted)
        if isinstance(attachment, DomainError):
            records.delete_failed_attachment(uow, accepted)
    if isinstance(attachment, DomainError):
        raise attachment
    record = AttachmentRecord.of(attachment, state.resources.settings)
    headers = {"Idempotent-Replayed": "true"} if accepted.replayed else {}
    status = 200
    if attachment.status != AttachmentStatus.READY:
        status = 202
        headers["Location"] = f"/attachments/{attachment.hash_id}"
    return JSONResponse(build_envelope(record).model_dump(mode="json"), status, headers)


@router.get(
    "/attachments",
    summary="List all attachments",
    responses=error_responses(requests.CURSOR_INVALID),
)
def list_attachments(
    uow: Transaction, caller: AttachmentCaller, paging: Paging
) -> Envelope[Page[AttachmentRecord]]:
    """List your attachments, newest first."""
    settings = uow.settings

    def convert(rows: list[Attachment]) -> list[AttachmentRecord]:
        return [AttachmentRecord.of(attachment, settings) for attachment in rows]

    return build_envelope(
        build_page(paging, partial(records.list_attachments, uow, caller), convert)
    )


@router.get("/attachments/{hash_id}", summary="Retrieve an attachment", responses=_NOT_FOUND)
def read_attachment(
    uow: Transaction, caller: AttachmentCaller, hash_id: str
) -> Envelope[AttachmentRecord]:
    """Retrieve one of your attachments in any status."""
    attachment = records.get_attachment(uow, caller, hash_id)
    return build_envelope(AttachmentRecord.of(attachment, uow.settings))


@router.patch("/attachments/{hash_id}", summary="Update an attachment", responses=_NOT_FOUND)
def change_attachment(
    uow: Transaction, caller: AttachmentCaller, hash_id: str, body: AttachmentChanges
) -> Envelope[AttachmentRecord]:
    """Update the alt text, title or tags of an attachment.

    Fields that the request omits don't change.
    """
    attachment = records.change_attachment(uow, caller, hash_id, body.sent())
    uow.session.refresh(attachment)
    return build_envelope(AttachmentRecord.of(attachment, uow.settings))


@router.delete("/attachments/{hash_id}", summary="Delete an attachment", responses=_NOT_FOUND)
def delete_attachment(uow: Transaction, caller: AttachmentCaller, hash_id: str) -> Envelope[int]:
    """Delete an attachment and its file. Copies in browsers and caches remain until they expire."""
    return build_envelope(records.delete_attachment(uow, caller, hash_id))


@router.post(
    "/attachments/{hash_id}/links",
    summary="Create a signed URL for an attachment",
    responses=error_responses(
        media.ATTACHMENT_NOT_FOUND,
        media.MEDIA_NOT_FOUND,
        media.SIGNED_LINK_NOT_ENCRYPTED,
        access.AUTH_LOGIN_AGAIN,
    ),
)
def create_attachment_link(
    uow: Transaction, caller: AttachmentCaller, hash_id: str, body: NewLink
) -> Envelope[LinkRecord]:
    """Create a signed URL for an encrypted file. Anyone with the URL can see the file until the URL
    expires.

    Callers with a session cookie must have logged in within the last 15 minutes.
    """
    url, expires_at = records.sign_link(
        uow, caller, hash_id, expires_in=body.expires_in, filename=body.filename
    )
    return build_envelope(LinkRecord(url=url, expires_at=expires_at))
