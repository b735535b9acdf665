"""Stores uploads of large files in the object storage while they arrive.

Only one part of the object is in memory at a time, and no thread waits for a slow sender.
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
from core.upload_limits import MAX_IMPORT_FILE_BYTES
from storage.parts import PART_BYTES, PartWriter

# The maximum size of all fields before the file.
MAX_FIELDS_BYTES = 16 * 1024

# A function that checks the fields that precede the file in a form, before the file is read.
Check = Callable[[Mapping[str, str]], Awaitable[None]]


@dataclass
class ReceivedFile:
    """The name and the size of an upload."""

    filename: str | None
    size: int = 0


async def store_upload(
    request: Request,
    writer: PartWriter,
    filename: str | None,
    delete_parts: Callable[[str], None],
    *,
    caller_id: int,
    check: Check | None = None,
    check_part: Callable[[str], None] | None = None,
) -> ReceivedFile:
    """Store the file, which is the part `file` of a form or the whole body.

    Raises ``body.malformed``, ``import.file_missing``, ``import.several_files``, ``import.empty``,
    ``import.too_large``, and the errors of ``check`` and ``check_part``.

    Args:
        delete_parts: deletes the stored parts with the writer's prefix after an error.
        check: checks the fields of the form.
        check_part: checks the name of each part of the form when the part arrives.
    """
    file = ReceivedFile(filename)
    content: AsyncIterator[bytes] = request.stream()
    boundary = read_boundary(request)
    if boundary is not None:
        content = _read_file_part(content, boundary, file, check, check_part)
    try:
        await _store(content, request.scope, writer, file, caller_id)
    except BaseException:
        # A disconnect of the sender raises ``CancelledError``, which is not an ``Exception``.
        await RECORDS.run(delete_parts, writer.prefix)
        raise
    return file


async def _store(
    content: AsyncIterator[bytes],
    scope: Scope,
    writer: PartWriter,
    file: ReceivedFile,
    caller_id: int,
) -> None:
    part = bytearray()
    async for data in content:
        part += data
        extend_deadline(scope)
        file.size += len(data)
        if file.size > MAX_IMPORT_FILE_BYTES:
            raise imports.IMPORT_TOO_LARGE()
        if len(part) >= PART_BYTES:
            await UPLOADS_BY_CALLER.run(caller_id, writer.write, bytes(part))
            part.clear()
        if not part:
            # All bytes so far are stored or skipped, so the body needs no memory now.
            release_body(scope)
    await UPLOADS_BY_CALLER.run(caller_id, writer.write, bytes(part))
    await UPLOADS_BY_CALLER.run(caller_id, writer.close)
    if not file.size:
        raise imports.IMPORT_EMPTY_FILE()


async def _read_file_part(
    body: AsyncIterator[bytes],
    boundary: bytes,
    file: ReceivedFile,
    check: Check | None,
    check_part: Callable[[str], None] | None,
) -> AsyncIterator[bytes]:
    """Yield the content of the part `file` in each chunk of the body, and set the file's name."""
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
    """A form with one file. The form keeps its small fields in memory."""

    def __init__(self, check_part: Callable[[str], None] | None) -> None:
        self.files = 0
        self.filename = ""
        self._check_part = check_part
        self._fields: dict[str, bytearray] = {}
        self._fields_bytes = 0
        self._is_in_file = False
        self._field: str | None = None

    def read_content(self, event: PartEvent) -> bytes | bytearray:
        """Return the bytes of the file in this event."""
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
