from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse
from pydantic import BeforeValidator

from api.access.requirements import requires_scope
from api.bodies.forms import boolean_of
from api.bodies.json_route import JsonRoute
from api.bodies.media_types import MULTIPART
from api.bodies.multipart import file_named, read_form
from api.bodies.query_options import refuse_parts
from api.limits.bulkheads import RECORDS
from api.limits.shares import UPLOADS_BY_CALLER
from api.middleware.body_limits import release_body
from api.openapi import IDEMPOTENCY_KEY_PARAMETER, PREFER_PARAMETER, refuses
from api.parameters import Paging, PreferenceOf, StateOf, idempotency_key
from api.request_ids import current_request_id
from api.schemas.attachments import AttachmentChanges, AttachmentRecord, LinkRecord, NewLink
from api.schemas.envelope import Envelope, Page, envelope, page
from api.state import State
from api.waiting.disconnects import while_connected
from core import clock
from core.errors import DomainError
from core.lanes import Lane
from core.refusals import media, requests
from core.refusals.access import QUOTA_EXCEEDED
from core.scopes import Scope
from models import AttachmentStatus
from services.access.caller import Caller
from services.jobs.idempotency import AcceptedJob
from services.media.attachments import records, signed_links, upload
from services.media.attachments.upload import Upload, clean_filename
from storage.redis.notifications import job_topic

router = APIRouter(tags=["Attachments"], route_class=JsonRoute)

WAIT_SECONDS = 15.0

AttachmentCaller = Annotated[Caller, requires_scope(Scope.ATTACHMENT)]
_NOT_FOUND = refuses(media.ATTACHMENT_NOT_FOUND)


def _flag(value: object) -> bool:
    flag = boolean_of(value)
    if flag is None:
        raise ValueError("must be true, false, 1 or 0")
    return flag


Encrypted = Annotated[
    bool, BeforeValidator(_flag), Query(description="Keep the file encrypted, for its owner only")
]

Renditions = Annotated[
    bool,
    BeforeValidator(_flag),
    Query(description="Make smaller copies for pages too, and one for mails"),
]

_FILE = {
    "type": "string",
    "format": "binary",
    "description": "PNG, JPEG, GIF, WebP or ICO, at most 5 MB",
}
_FORM = {"type": "object", "required": ["file"], "properties": {"file": _FILE}}
_UPLOAD: dict[str, Any] = {
    "parameters": [PREFER_PARAMETER, IDEMPOTENCY_KEY_PARAMETER],
    "requestBody": {"required": True, "content": {MULTIPART: {"schema": _FORM}}},
}


@router.post(
    "/attachments",
    response_model=Envelope[AttachmentRecord],
    openapi_extra=_UPLOAD,
    responses={
        202: {
            "model": Envelope[AttachmentRecord],
            "description": "The wait ran out; the work goes on. Location leads to the record.",
        },
        **refuses(
            media.ATTACHMENT_FILE_MISSING,
            media.ATTACHMENT_SEVERAL_FILES,
            requests.BODY_NOT_MULTIPART,
            requests.BODY_MALFORMED_MULTIPART,
            requests.OPTION_IN_BODY.filled(name="encrypted"),
            requests.IDEMPOTENCY_KEY_INVALID,
            media.ATTACHMENT_GONE,
            QUOTA_EXCEEDED,
            requests.IDEMPOTENCY_IN_PROGRESS,
            requests.BODY_TOO_SLOW,
            media.ATTACHMENT_TOO_LARGE,
            media.ATTACHMENT_UNSUPPORTED_TYPE,
            media.ATTACHMENT_EMPTY,
            media.IMAGE_UNREADABLE,
            media.IMAGE_TRUNCATED,
            media.IMAGE_SIDE_TOO_LONG,
            media.IMAGE_TOO_MANY_PIXELS,
            media.IMAGE_TOO_MANY_FRAMES,
            requests.IDEMPOTENCY_KEY_REUSED,
            requests.QUEUE_OVERLOADED,
            requests.QUEUE_TOO_MANY_OF_YOURS,
            requests.QUEUE_TOO_MANY_WAITERS,
            requests.SERVICE_BUSY,
            requests.SERVICE_UNAVAILABLE,
        ),
    },
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
    """Upload an image and get it back as WebP (an ICO as PNG), ready to be shown.

    The file's bytes decide its type. The picture is turned upright, converted to sRGB and stripped
    of its metadata. With `renditions=1` in the query it gets smaller copies for pages (320, 640 and
    1280 pixels wide) and a JPEG or PNG for mails. The call waits for the conversion, 15 s unless
    `Prefer: wait=N` says otherwise.
    """
    seconds, owner_id = preference.seconds(WAIT_SECONDS), caller.user_id
    state.admit(Lane.MEDIA, owner_id, seconds)
    accepted = await _accept(
        request, state, caller, encrypted=encrypted, with_renditions=renditions
    )
    ended = state.jobs.wait(job_topic(accepted.job_id), seconds, owner_id=owner_id)
    await while_connected(request.receive, ended)
    return await RECORDS.run(_answer, state, accepted)


async def _accept(
    request: Request, state: State, caller: Caller, *, encrypted: bool, with_renditions: bool
) -> AcceptedJob:
    """A function of its own, so that nothing holds the file's bytes while the caller waits."""
    form = await read_form(request)
    refuse_parts(request, form.names())
    part = file_named(form, "file")
    key = idempotency_key(request, caller, form.parts())
    accepted = await UPLOADS_BY_CALLER.run(
        caller.user_id,
        upload.accept,
        state.resources,
        caller,
        Upload(clean_filename(part.filename), part.data, encrypted, with_renditions),
        key=key,
        request_id=current_request_id(),
    )
    release_body(request.scope)
    return accepted


def _answer(state: State, accepted: AcceptedJob) -> JSONResponse:
    with state.resources.unit_of_work() as uow:
        attachment = records.outcome(uow, accepted)
        if isinstance(attachment, DomainError):
            records.forget_failed(uow, accepted)
    if isinstance(attachment, DomainError):
        raise attachment
    record = AttachmentRecord.of(attachment, state.resources.settings)
    headers = {"Idempotent-Replayed": "true"} if accepted.replayed else {}
    status = 200
    if attachment.status != AttachmentStatus.READY:
        status = 202
        headers["Location"] = f"/attachments/{attachment.hash_id}"
    return JSONResponse(envelope(record).model_dump(mode="json"), status, headers)


@router.get("/attachments", responses=refuses(requests.CURSOR_INVALID))
@RECORDS.threaded
def list_attachments(
    state: StateOf, caller: AttachmentCaller, paging: Paging
) -> Envelope[Page[AttachmentRecord]]:
    """The caller's attachments, newest first."""
    with state.resources.unit_of_work() as uow:
        found = records.list_of(uow, caller, paging)
    settings = state.resources.settings
    items = [AttachmentRecord.of(attachment, settings) for attachment in found.rows]
    return envelope(page(items, paging, found))


@router.get("/attachments/{hash_id}", responses=_NOT_FOUND)
@RECORDS.threaded
def read_attachment(
    state: StateOf, caller: AttachmentCaller, hash_id: str
) -> Envelope[AttachmentRecord]:
    """One of the caller's attachments, whatever its status."""
    with state.resources.unit_of_work() as uow:
        attachment = records.get(uow, caller, hash_id)
    return envelope(AttachmentRecord.of(attachment, state.resources.settings))


@router.patch("/attachments/{hash_id}", responses=_NOT_FOUND)
@RECORDS.threaded
def change_attachment(
    state: StateOf, caller: AttachmentCaller, hash_id: str, body: AttachmentChanges
) -> Envelope[AttachmentRecord]:
    """Set the picture's text for people who don't see it, its title or its tags.

    Unnamed fields stay.
    """
    with state.resources.unit_of_work() as uow:
        attachment = records.change(uow, caller, hash_id, body.sent())
        uow.session.refresh(attachment)
        return envelope(AttachmentRecord.of(attachment, state.resources.settings))


@router.delete("/attachments/{hash_id}", responses=_NOT_FOUND)
@RECORDS.threaded
def delete_attachment(state: StateOf, caller: AttachmentCaller, hash_id: str) -> Envelope[int]:
    """Delete the record and the file. Copies in browsers and caches stay until they expire."""
    with state.resources.unit_of_work() as uow:
        return envelope(records.remove(uow, caller, hash_id))


@router.post(
    "/attachments/{hash_id}/links",
    responses=refuses(
        media.ATTACHMENT_NOT_FOUND, media.MEDIA_NOT_FOUND, media.SIGNED_LINK_NOT_ENCRYPTED
    ),
)
@RECORDS.threaded
def create_attachment_link(
    state: StateOf, caller: AttachmentCaller, hash_id: str, body: NewLink
) -> Envelope[LinkRecord]:
    """Create a signed URL, by which anyone can see an encrypted file until it expires."""
    with state.resources.unit_of_work() as uow:
        attachment = records.get(uow, caller, hash_id)
    url, expires_at = signed_links.create(
        state.resources.keyring,
        attachment,
        attachment.filename if body.filename is None else body.filename,
        base=state.resources.settings.public_base,
        expires_in=body.expires_in,
        now=clock.now(),
    )
    return envelope(LinkRecord(url=url, expires_at=expires_at))
