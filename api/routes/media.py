"""Serves the files of attachments, either whole files or byte ranges."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse

from api.auth.identification import identify_caller
from api.auth.requirements import UNLIMITED
from api.errors import problem_response
from api.limits.bulkheads import STORAGE
from api.middleware.request_rewriting import is_head
from api.openapi.declarations import describe_file, error_responses
from api.responses.downloads import stream_file
from api.responses.file_links import is_signed
from api.route_classes import JsonRoute
from api.state import State, state_of
from core.errors import DomainError, access, media
from core.permissions import Permission
from core.scopes import Scope
from models import Attachment
from services.access.caller import require_permission, require_scope
from services.attachments import records
from services.attachments.files import MediaFile, get_file_key
from services.attachments.records import MEDIA_URLS
from storage.objects import STREAM_BYTES, ObjectMissing

router = APIRouter(tags=["Attachments"], route_class=JsonRoute)

# Browsers may show a file, but must not run scripts in the file.
_SAFETY_HEADERS = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox"}
_MEDIA_TYPES = ("image/webp", "image/png", "image/jpeg")
_CACHE_FOREVER = "public, max-age=31536000, immutable"
# A byte position with more than 30 digits isn't accepted, because no file is that large.
_RANGE = re.compile(r"bytes=\s*([0-9]{0,30})-([0-9]{0,30})\s*\Z", re.IGNORECASE)


@dataclass(frozen=True)
class ByteRange:
    """A range of bytes in a file.

    As in HTTP, ``end`` is the position of the last byte in the range.
    """

    start: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.start + 1


class RangeNotSatisfiable(Exception):
    """The exception for a requested byte range that begins after the end of the file."""


def parse_range(header: str | None, size: int) -> ByteRange | None:
    """Return the byte range in a ``Range`` header, or ``None`` for the whole file.

    A malformed header, or a header with several byte ranges, is ignored, as RFC 9110, section 14.2,
    allows. Raises ``RangeNotSatisfiable``.
    """
    match = _RANGE.match(header) if header else None
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        start = max(size - int(last), 0)
        end = size - 1
        is_satisfiable = int(last) > 0
    else:
        start = int(first)
        end = min(int(last or size - 1), size - 1)
        if last and int(last) < start:
            return None
        is_satisfiable = start < size
    if not is_satisfiable:
        raise RangeNotSatisfiable
    return ByteRange(start, end)


@router.get(
    "/media/{filename}",
    summary="Download a file",
    dependencies=[UNLIMITED],
    response_class=StreamingResponse,
    responses={
        200: {"content": describe_file(*_MEDIA_TYPES), "description": "The file"},
        206: {"content": describe_file(*_MEDIA_TYPES), "description": "The requested byte range"},
        304: {"description": "The copy that `If-None-Match` identifies is still current."},
        **error_responses(
            access.AUTH_INSUFFICIENT_SCOPE.fill(scope=Scope.ATTACHMENT),
            media.MEDIA_NOT_FOUND,
            media.MEDIA_RANGE_UNSATISFIABLE,
        ),
    },
)
@STORAGE.threaded
def download_media(request: Request, filename: str) -> Response:
    """Download the file of an attachment. An encrypted file needs the credentials of its owner or a
    signed URL.
    """
    state = state_of(request)
    with state.resources.unit_of_work() as uow:
        attachment, file = records.find_media(uow, filename)
    if attachment.encrypted and not is_signed(request, MEDIA_URLS, file.filename):
        _require_owner(request, attachment)
    etag = f'"{file.checksum}"'
    headers = {
        **_SAFETY_HEADERS,
        "ETag": etag,
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-store" if attachment.encrypted else _CACHE_FOREVER,
        "Content-Disposition": f'inline; filename="{file.filename}"',
    }
    if_none_match = ",".join(request.headers.getlist("if-none-match"))
    etags = [candidate.strip().removeprefix("W/") for candidate in if_none_match.split(",")]
    if etag in etags or etags == ["*"]:
        return Response(status_code=304, headers=headers)
    # Ignore the requested byte range for a HEAD request, or if the caller has another version of
    # the file.
    is_ranged = not is_head(request.scope) and request.headers.get("if-range", etag) == etag
    range_header = request.headers.get("range") if is_ranged else None
    try:
        byte_range = parse_range(range_header, file.size)
    except RangeNotSatisfiable:
        response = problem_response(media.MEDIA_RANGE_UNSATISFIABLE())
        response.headers["Content-Range"] = f"bytes */{file.size}"
        return response
    return _stream_media(request, state, (attachment, file), byte_range, headers)


def _require_owner(request: Request, attachment: Attachment) -> None:
    """Raise ``media.not_found`` unless the caller is the owner of the file."""
    try:
        caller = identify_caller(request)
    except DomainError:
        caller = None
    if caller is None or caller.account_id != attachment.user_id:
        raise media.MEDIA_NOT_FOUND()
    require_scope(caller, Scope.ATTACHMENT)
    require_permission(caller, Permission.IMAGES)


def _stream_media(
    request: Request,
    state: State,
    attachment_and_file: tuple[Attachment, MediaFile],
    byte_range: ByteRange | None,
    headers: dict[str, str],
) -> Response:
    attachment, file = attachment_and_file
    part = byte_range or ByteRange(0, file.size - 1)
    headers["Content-Length"] = str(part.length)
    if byte_range:
        headers["Content-Range"] = f"bytes {part.start}-{part.end}/{file.size}"
    content = iter(()) if is_head(request.scope) else _read_content(state, attachment, file, part)
    status = 206 if byte_range else 200
    return stream_file(request, STORAGE, content, headers, file.mime_type, status=status)


def _read_content(
    state: State, attachment: Attachment, file: MediaFile, part: ByteRange
) -> Iterator[bytes]:
    """Return an iterator over the bytes of a file's part.

    Raises ``media.not_found`` before the response begins if the file is missing.
    """
    if attachment.encrypted:
        content = records.read_encrypted_file(state.resources, attachment, file)
        plain = content[part.start : part.end + 1]
        return (plain[start : start + STREAM_BYTES] for start in range(0, len(plain), STREAM_BYTES))
    stream = state.resources.objects.stream(
        get_file_key(attachment, file), offset=part.start, length=part.length
    )
    try:
        first = next(stream)
    except (ObjectMissing, StopIteration):
        raise media.MEDIA_NOT_FOUND() from None
    return chain((first,), stream)
