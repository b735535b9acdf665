"""Reads multipart forms that are small enough to be kept in memory.

``BodyLimitMiddleware`` limits the size of request bodies. Parts aren't written to temporary files,
because an image must be encrypted before it is written to disk.
"""

from dataclasses import dataclass, field
from io import BytesIO

from fastapi import Request
from python_multipart.decoders import Base64Decoder, QuotedPrintableDecoder
from python_multipart.exceptions import FormParserError

from api.bodies.multipart import MultipartReader, PartEnd, PartEvent, read_boundary
from api.bodies.part_headers import PartHead
from core.errors import media, requests

# The maximum number of parts in a multipart form. The number of parts is limited, because each part
# needs far more memory than its content.
MAX_MULTIPART_PARTS = 100

_DECODERS: dict[bytes, type[Base64Decoder] | type[QuotedPrintableDecoder]] = {
    b"base64": Base64Decoder,
    b"quoted-printable": QuotedPrintableDecoder,
}


@dataclass(frozen=True)
class FilePart:
    name: str
    filename: str
    data: bytes


@dataclass(frozen=True)
class MultipartForm:
    files: list[FilePart] = field(default_factory=list)
    fields: list[tuple[str, bytes]] = field(default_factory=list)

    def list_names(self) -> list[str]:
        return [name for name, _ in self.fields] + [part.name for part in self.files]

    def list_parts(self) -> list[bytes]:
        """Return the names and contents of all parts, for an idempotency key's fingerprint."""
        pieces = [piece for name, value in self.fields for piece in (name.encode(), value)]
        for part in self.files:
            pieces += [part.name.encode(), part.filename.encode(), part.data]
        return pieces


async def read_multipart_form(request: Request) -> MultipartForm:
    boundary = read_boundary(request)
    if not boundary:
        raise requests.BODY_NOT_MULTIPART()
    form = MultipartForm()
    collector = _PartCollector(form)
    try:
        async for events in MultipartReader(boundary).read(request.stream()):
            for event in events:
                collector.add(event)
            if len(form.files) + len(form.fields) > MAX_MULTIPART_PARTS:
                raise requests.BODY_MALFORMED_MULTIPART(most=MAX_MULTIPART_PARTS)
    except FormParserError as error:
        raise requests.BODY_MALFORMED_MULTIPART(most=MAX_MULTIPART_PARTS) from error
    return form


def find_only_file(form: MultipartForm, name: str) -> FilePart:
    """Raise an error unless the form field contains exactly one file."""
    # If the user chose no file, browsers send a part with an empty file name.
    files = [part for part in form.files if part.name == name and part.filename]
    if len(files) > 1:
        raise media.ATTACHMENT_SEVERAL_FILES(part=name)
    if not files:
        raise media.ATTACHMENT_FILE_MISSING(part=name)
    return files[0]


class _PartCollector:
    def __init__(self, form: MultipartForm) -> None:
        self._form = form
        self._head = PartHead()
        self._content = BytesIO()
        self._decoder: Base64Decoder | QuotedPrintableDecoder | None = None

    def add(self, event: PartEvent) -> None:
        if isinstance(event, PartHead):
            self._begin(event)
        elif isinstance(event, PartEnd):
            self._end()
        else:
            (self._decoder or self._content).write(bytes(event))

    def _begin(self, head: PartHead) -> None:
        if head.name is None:
            raise FormParserError("The part has no name.")
        self._head = head
        self._content = BytesIO()
        decoder = _DECODERS.get(head.transfer_encoding)
        self._decoder = None if decoder is None else decoder(self._content)

    def _end(self) -> None:
        if self._decoder is not None:
            self._decoder.finalize()
        name = self._head.name or ""
        content = self._content.getvalue()
        if self._head.filename is None:
            self._form.fields.append((name, content))
        else:
            self._form.files.append(FilePart(name, self._head.filename, content))
