"""Streams a large file through the API into object storage: only one part is in memory at a time,
and no thread waits while a slow sender sends."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from fastapi import Request
from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header
from starlette.types import Scope

from api.bodies.part_headers import PartHead, PartHeaders
from api.limits.bulkheads import RECORDS
from api.limits.shares import UPLOADS_BY_CALLER
from api.middleware.body_limits import release_body
from api.middleware.layers import extend_deadline
from core.errors import imports, requests
from core.upload_limits import MAX_IMPORT_FILE_BYTES
from storage.parts import PART_BYTES, PartWriter


@dataclass
class ReceivedFile:
    filename: str | None
    size: int = 0


# Asked with the fields of a form that stand before its file, before the file is read.
Check = Callable[[Mapping[str, str]], Awaitable[None]]
# All fields before the file together.
MAX_FIELDS_BYTES = 16 * 1024


async def store_upload(
    request: Request,
    writer: PartWriter,
    filename: str | None,
    forget: Callable[[str], None],
    *,
    caller_id: int,
    check: Check | None = None,
    check_part: Callable[[str], None] | None = None,
) -> ReceivedFile:
    """Write the body, or its part `file`; `forget` the writer's prefix if that fails.

    ``check_part`` is asked with the name of each part as it arrives. Raises what ``check`` and
    ``check_part`` raise, ``body.malformed``, ``import.file_missing``, ``import.several_files``,
    ``import.empty``, ``import.too_large``.
    """
    arrived = ReceivedFile(filename)
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    content: AsyncIterator[bytes] = request.stream()
    if kind == b"multipart/form-data":
        content = _part(content, options.get(b"boundary", b""), arrived, check, check_part)
    try:
        await _store(content, request.scope, writer, arrived, caller_id)
    except BaseException:
        # BaseException: a sender who hangs up cancels this.
        await RECORDS.run(forget, writer.prefix)
        raise
    return arrived


async def _store(
    content: AsyncIterator[bytes],
    scope: Scope,
    writer: PartWriter,
    arrived: ReceivedFile,
    caller_id: int,
) -> None:
    held = bytearray()
    async for data in content:
        held += data
        extend_deadline(scope)
        arrived.size += len(data)
        if arrived.size > MAX_IMPORT_FILE_BYTES:
            raise imports.IMPORT_TOO_LARGE()
        if len(held) >= PART_BYTES:
            await UPLOADS_BY_CALLER.run(caller_id, writer.write, bytes(held))
            held.clear()
        if not held:
            # Bytes outside of the file are not held.
            release_body(scope)
    await UPLOADS_BY_CALLER.run(caller_id, writer.write, bytes(held))
    await UPLOADS_BY_CALLER.run(caller_id, writer.close)
    if not arrived.size:
        raise imports.IMPORT_EMPTY_FILE()


@dataclass
class _Parts:
    """The callbacks of a multipart parser, which keep the one file and skip other parts."""

    check_part: Callable[[str], None] | None
    data: bytearray = field(default_factory=bytearray)
    files: int = 0
    filename: str = ""
    ended: bool = False
    fields: dict[str, bytearray] = field(default_factory=dict)
    _in_file: bool = False
    _in_field: str | None = None
    _field_bytes: int = 0

    def callbacks(self) -> dict[str, Callable[..., None]]:
        return {
            **PartHeaders(self.on_head).callbacks(),
            "on_part_data": self.on_part_data,
            "on_part_end": self.on_part_end,
            "on_end": self.on_end,
        }

    def on_head(self, head: PartHead) -> None:
        name = head.name or ""
        if self.check_part:
            self.check_part(name)
        self._in_file = name == "file" and head.filename is not None
        if self._in_file:
            self.files += 1
            self.filename = head.filename or ""
        elif head.filename is None:
            self._in_field = name

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._in_file:
            self.data += data[start:end]
        elif self._in_field is not None:
            self._field_bytes += end - start + len(self._in_field)
            if self._field_bytes <= MAX_FIELDS_BYTES:
                self.fields.setdefault(self._in_field, bytearray()).extend(data[start:end])

    def on_part_end(self) -> None:
        self._in_file, self._in_field = False, None

    def on_end(self) -> None:
        self.ended = True

    def texts(self) -> dict[str, str]:
        # No keyboard types a NUL character, and the database stores no text with one.
        return {
            name: value.decode(errors="replace").replace("\0", "")
            for name, value in self.fields.items()
        }


async def _part(
    body: AsyncIterator[bytes],
    boundary: bytes,
    arrived: ReceivedFile,
    check: Check | None,
    check_part: Callable[[str], None] | None,
) -> AsyncIterator[bytes]:
    """Yield the content of the part `file` while it arrives."""
    parts, is_checked = _Parts(check_part), False
    try:
        parser = MultipartParser(boundary, parts.callbacks())  # type: ignore[arg-type]
        async for chunk in body:
            parser.write(chunk)
            if parts.files > 1:
                raise imports.IMPORT_SEVERAL_FILES()
            if parts.files and check and not is_checked:
                is_checked = True
                await check(parts.texts())
            yield bytes(parts.data)
            parts.data.clear()
    except FormParserError as error:
        raise requests.BODY_MALFORMED_UPLOAD() from error
    if not parts.ended:
        raise requests.BODY_CUT_SHORT()
    if check and not is_checked:
        await check(parts.texts())
    if not parts.files:
        raise imports.IMPORT_FILE_MISSING()
    arrived.filename = parts.filename or arrived.filename
