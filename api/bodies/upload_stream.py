"""Stores the upload of a large file in the object storage while the file arrives.

The uploaded file is stored in parts, and only one part is in memory at a time. Threads are used
only for writing to the object storage, so a slow sender doesn't occupy a thread.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass

from fastapi import Request
from python_multipart.exceptions import FormParserError
from starlette.types import Scope

from api.bodies.multipart import MultipartReader, PartEnd, PartEvent, read_boundary
from api.bodies.part_headers import PartHead
from api.limits.bulkheads import RECORDS
from api.limits.keyed_bulkheads import UPLOADS_BY_CALLER
from api.middleware.body_limits import release_body
from api.middleware.deadlines import extend_deadline
from core.errors import imports, requests
from core.ids import AccountId
from core.upload_limits import MAX_IMPORT_FILE_BYTES
from storage.parts import PART_BYTES, PartWriter

# The maximum total size of the fields in an upload form.
MAX_FIELDS_BYTES = 16 * 1024

# A function that checks the form fields before the uploaded file is read.
Check = Callable[[Mapping[str, str]], Awaitable[None]]


@dataclass
class ReceivedFile:
    filename: str | None
    size: int = 0


async def store_upload(
    request: Request,
    writer: PartWriter,
    filename: str | None,
    delete_parts: Callable[[str], None],
    *,
    account_id: AccountId,
    check: Check | None = None,
    check_part: Callable[[str], None] | None = None,
) -> ReceivedFile:
    """Store an uploaded file, which is the form field `file` or the whole request body.

    Args:
        delete_parts: a function that deletes the stored parts of the file if the upload fails.
        check: a function that checks the form fields that precede the file.
        check_part: a function that checks the name of each form field.
    """
    file = ReceivedFile(filename)
    content: AsyncIterator[bytes] = request.stream()
    boundary = read_boundary(request)
    if boundary is not None:
        content = _read_file_part(content, boundary, file, check, check_part)
    try:
        await _store(content, request.scope, writer, file, account_id)
    except BaseException:
        # Catch ``BaseException``, because ``CancelledError`` is raised when the sender disconnects.
        await RECORDS.run(delete_parts, writer.prefix)
        raise
    return file


async def _store(
    content: AsyncIterator[bytes],
    scope: Scope,
    writer: PartWriter,
    file: ReceivedFile,
    account_id: AccountId,
) -> None:
    part = bytearray()
    async for data in content:
        part += data
        extend_deadline(scope)
        file.size += len(data)
        if file.size > MAX_IMPORT_FILE_BYTES:
            raise imports.IMPORT_TOO_LARGE()
        if len(part) >= PART_BYTES:
            await UPLOADS_BY_CALLER.run(account_id, writer.write, bytes(part))
            part.clear()
        if not part:
            # All received bytes were stored or skipped, so release the memory of the request body.
            release_body(scope)
    await UPLOADS_BY_CALLER.run(account_id, writer.write, bytes(part))
    await UPLOADS_BY_CALLER.run(account_id, writer.close)
    if not file.size:
        raise imports.IMPORT_EMPTY_FILE()


async def _read_file_part(
    body: AsyncIterator[bytes],
    boundary: bytes,
    file: ReceivedFile,
    check: Check | None,
    check_part: Callable[[str], None] | None,
) -> AsyncIterator[bytes]:
    """Yield the uploaded file, and set ``file.filename``."""
    form = _UploadForm(check_part)
    is_checked = False
    try:
        reader = MultipartReader(boundary)
        async for events in reader.read(body):
            content = b"".join(map(form.read_content, events))
            if form.files > 1:
                raise imports.IMPORT_SEVERAL_FILES()
            if form.files and check and not is_checked:
                is_checked = True
                await check(form.texts())
            yield content
    except FormParserError as error:
        raise requests.BODY_MALFORMED_UPLOAD() from error
    if not reader.is_complete:
        raise requests.BODY_CUT_SHORT()
    if check and not is_checked:
        await check(form.texts())
    if not form.files:
        raise imports.IMPORT_FILE_MISSING()
    file.filename = form.filename or file.filename


class _UploadForm:
    """The fields of an upload form, without the uploaded file."""

    def __init__(self, check_part: Callable[[str], None] | None) -> None:
        self.files = 0
        self.filename = ""
        self._check_part = check_part
        self._fields: dict[str, bytearray] = {}
        self._fields_bytes = 0
        self._is_in_file = False
        self._field: str | None = None

    def read_content(self, event: PartEvent) -> bytes | bytearray:
        """Process an event of the multipart parser, and return the event's file bytes."""
        if isinstance(event, PartHead):
            self._begin_part(event)
        elif isinstance(event, PartEnd):
            self._is_in_file = False
            self._field = None
        elif self._is_in_file:
            return event
        elif self._field is not None:
            self._add_to_field(self._field, event)
        return b""

    def texts(self) -> dict[str, str]:
        # Remove NUL characters, because the database can't store them.
        return {
            name: value.decode(errors="replace").replace("\0", "")
            for name, value in self._fields.items()
        }

    def _begin_part(self, head: PartHead) -> None:
        name = head.name or ""
        if self._check_part:
            self._check_part(name)
        self._is_in_file = name == "file" and head.filename is not None
        if self._is_in_file:
            self.files += 1
            self.filename = head.filename or ""
        elif head.filename is None:
            self._field = name

    def _add_to_field(self, name: str, data: bytearray) -> None:
        self._fields_bytes += len(data) + len(name)
        if self._fields_bytes <= MAX_FIELDS_BYTES:
            self._fields.setdefault(name, bytearray()).extend(data)
