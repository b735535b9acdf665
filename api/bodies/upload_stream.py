"""Streams a large file through the API into object storage: only one part is in memory at a time,
and no thread waits while a slow sender sends."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from fastapi import Request
from python_multipart import MultipartParser
from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import parse_options_header
from starlette.types import Scope

from api.limits.bulkheads import RECORDS
from api.limits.shares import UPLOADS_BY_CALLER
from api.middleware.body_limits import release_body
from api.middleware.deadlines import extend_deadline
from core.refusals import imports as refusals
from core.refusals.requests import BODY_CUT_SHORT, BODY_MALFORMED_UPLOAD
from core.upload_limits import MAX_IMPORT_FILE_BYTES
from storage.parts import PART_BYTES, PartWriter


@dataclass
class ReceivedFile:
    filename: str | None
    size: int = 0


async def store_upload(
    request: Request,
    writer: PartWriter,
    filename: str | None,
    forget: Callable[[str], None],
    *,
    caller_id: int,
) -> ReceivedFile:
    """Write the body, or its part `file`; `forget` the writer's prefix if that fails.

    Raises ``body.malformed``, ``import.file_missing``, ``import.several_files``, ``import.empty``,
    ``import.too_large``.
    """
    arrived = ReceivedFile(filename)
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    content: AsyncIterator[bytes] = request.stream()
    if kind == b"multipart/form-data":
        content = _part(content, options.get(b"boundary", b""), arrived)
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
            raise refusals.IMPORT_TOO_LARGE()
        if len(held) >= PART_BYTES:
            await UPLOADS_BY_CALLER.run(caller_id, writer.write, bytes(held))
            held.clear()
        if not held:
            # Bytes outside of the file are not held.
            release_body(scope)
    await UPLOADS_BY_CALLER.run(caller_id, writer.write, bytes(held))
    await UPLOADS_BY_CALLER.run(caller_id, writer.close)
    if not arrived.size:
        raise refusals.IMPORT_EMPTY_FILE()


@dataclass
class _Parts:
    """The callbacks of a multipart parser, which keep the one file and skip other parts."""

    data: bytearray = field(default_factory=bytearray)
    files: int = 0
    filename: str = ""
    ended: bool = False
    _in_file: bool = False
    _name: bytearray = field(default_factory=bytearray)
    _value: bytearray = field(default_factory=bytearray)

    def callbacks(self) -> dict[str, Callable[..., None]]:
        return {
            "on_header_field": lambda data, start, end: self._name.extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
            "on_header_end": self.on_header_end,
            "on_part_data": self.on_part_data,
            "on_part_end": self.on_part_end,
            "on_end": self.on_end,
        }

    def on_header_end(self) -> None:
        if bytes(self._name).lower() == b"content-disposition":
            _, options = parse_options_header(bytes(self._value))
            self._in_file = options.get(b"name") == b"file" and b"filename" in options
            if self._in_file:
                self.files += 1
                self.filename = options[b"filename"].decode(errors="replace")
        self._name.clear()
        self._value.clear()

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._in_file:
            self.data += data[start:end]

    def on_part_end(self) -> None:
        self._in_file = False

    def on_end(self) -> None:
        self.ended = True


async def _part(
    body: AsyncIterator[bytes], boundary: bytes, arrived: ReceivedFile
) -> AsyncIterator[bytes]:
    """The content of the part `file`, while it arrives."""
    parts = _Parts()
    try:
        parser = MultipartParser(boundary, parts.callbacks())  # type: ignore[arg-type]
        async for chunk in body:
            parser.write(chunk)
            if parts.files > 1:
                raise refusals.IMPORT_SEVERAL_FILES()
            yield bytes(parts.data)
            parts.data.clear()
    except MultipartParseError as error:
        raise BODY_MALFORMED_UPLOAD() from error
    if not parts.ended:
        raise BODY_CUT_SHORT()
    if not parts.files:
        raise refusals.IMPORT_FILE_MISSING()
    arrived.filename = parts.filename or arrived.filename
