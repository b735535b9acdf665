from dataclasses import dataclass, field

from fastapi import Request
from python_multipart import FormParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from core.refusals.media import ATTACHMENT_FILE_MISSING, ATTACHMENT_SEVERAL_FILES
from core.refusals.requests import BODY_MALFORMED_MULTIPART, BODY_NOT_MULTIPART

# Each part costs far more memory than its bytes; our own forms have one part.
MAX_MULTIPART_PARTS = 100


@dataclass(frozen=True)
class FilePart:
    name: str
    filename: str
    data: bytes


@dataclass(frozen=True)
class MultipartForm:
    files: list[FilePart] = field(default_factory=list)
    fields: list[tuple[str, bytes]] = field(default_factory=list)

    def names(self) -> list[str]:
        return [name for name, _ in self.fields] + [part.name for part in self.files]

    def parts(self) -> list[bytes]:
        """Names and contents in order, for the fingerprint of an idempotency key."""
        pieces = [piece for name, value in self.fields for piece in (name.encode(), value)]
        for part in self.files:
            pieces += [part.name.encode(), part.filename.encode(), part.data]
        return pieces


async def read_form(request: Request) -> MultipartForm:
    """Read a multipart body while it arrives, into memory only.

    The route's body limit bounds it. Nothing is spooled to a file, so that an upload that is to be
    encrypted leaves no plain bytes on a disk. Raises ``body.not_multipart``, ``body.malformed``.
    """
    form = MultipartForm()
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary")
    if kind != b"multipart/form-data" or not boundary:
        raise BODY_NOT_MULTIPART()
    parser = FormParser(
        "multipart/form-data",
        on_field=lambda part: form.fields.append((_text(part.field_name), part.value or b"")),
        on_file=lambda part: form.files.append(_file(part)),
        boundary=boundary,
        config={"MAX_MEMORY_FILE_SIZE": float("inf")},
    )
    try:
        async for chunk in request.stream():
            parser.write(chunk)
            if len(form.files) + len(form.fields) > MAX_MULTIPART_PARTS:
                raise BODY_MALFORMED_MULTIPART(most=MAX_MULTIPART_PARTS)
        parser.finalize()
    except FormParserError as error:
        raise BODY_MALFORMED_MULTIPART(most=MAX_MULTIPART_PARTS) from error
    return form


def file_named(form: MultipartForm, name: str) -> FilePart:
    """The one file of that name.

    Raises ``attachment.file_missing``, ``attachment.several_files``. A browser's form in which
    no file was chosen has a part without a filename.
    """
    files = [part for part in form.files if part.name == name and part.filename]
    if len(files) > 1:
        raise ATTACHMENT_SEVERAL_FILES(part=name)
    if not files:
        raise ATTACHMENT_FILE_MISSING(part=name)
    return files[0]


def _file(part: object) -> FilePart:
    stream = part.file_object  # type: ignore[attr-defined]
    stream.seek(0)
    data = stream.read()
    part.close()  # type: ignore[attr-defined]
    return FilePart(_text(part.field_name), _text(part.file_name), data)  # type: ignore[attr-defined]


def _text(value: bytes | None) -> str:
    # Don't refuse a file for a name in another encoding than UTF-8.
    return (value or b"").decode(errors="replace")
