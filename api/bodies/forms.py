"""Reads forms: the file of an upload, the pairs of a page's form, and requests by a trace id.

Requests that a mail led to have their trace id in the body or the query: mail clients post forms
without credentials (RFC 8058), programs send JSON, links carry a query.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import Depends, Query, Request
from fastapi.responses import JSONResponse, Response
from python_multipart import MultipartParser
from python_multipart.decoders import Base64Decoder, QuotedPrintableDecoder
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from api.bodies.json_bodies import is_json, media_type, read_json
from api.bodies.part_headers import PartHead, PartHeaders
from api.limits.bulkheads import STORAGE
from core.errors import mailing, media, requests
from services.oauth.adapters import OAuthRequest, OAuthResponse

FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"

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
        """Return names and contents in order, for the fingerprint of an idempotency key."""
        pieces = [piece for name, value in self.fields for piece in (name.encode(), value)]
        for part in self.files:
            pieces += [part.name.encode(), part.filename.encode(), part.data]
        return pieces


_DECODERS: dict[bytes, type[Base64Decoder] | type[QuotedPrintableDecoder]] = {
    b"base64": Base64Decoder,
    b"quoted-printable": QuotedPrintableDecoder,
}


class _FormReader:
    """Callbacks for ``MultipartParser`` that collect all parts of a form in memory."""

    def __init__(self) -> None:
        self.form = MultipartForm()
        self._head = PartHead()
        self._content = BytesIO()
        self._decoder: Base64Decoder | QuotedPrintableDecoder | None = None

    def callbacks(self) -> dict[str, Callable[..., None]]:
        return {
            **PartHeaders(self._begin_part).callbacks(),
            "on_part_data": self._write,
            "on_part_end": self._end_part,
        }

    def _begin_part(self, head: PartHead) -> None:
        if head.name is None:
            raise FormParserError("The part has no name.")
        self._head, self._content = head, BytesIO()
        decoder = _DECODERS.get(head.transfer_encoding)
        self._decoder = None if decoder is None else decoder(self._content)

    def _write(self, data: bytes, start: int, end: int) -> None:
        (self._decoder or self._content).write(data[start:end])

    def _end_part(self) -> None:
        if self._decoder is not None:
            self._decoder.finalize()
        name, content = self._head.name or "", self._content.getvalue()
        if self._head.filename is None:
            self.form.fields.append((name, content))
        else:
            self.form.files.append(FilePart(name, self._head.filename, content))


async def read_form(request: Request) -> MultipartForm:
    """Read a multipart body while it arrives, into memory only.

    The route's body limit bounds it. Nothing is spooled to a file, so that an upload that is to be
    encrypted leaves no plain bytes on a disk. Raises ``body.not_multipart``, ``body.malformed``.
    """
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary")
    if kind != b"multipart/form-data" or not boundary:
        raise requests.BODY_NOT_MULTIPART()
    reader = _FormReader()
    form = reader.form
    try:
        parser = MultipartParser(boundary, reader.callbacks())  # type: ignore[arg-type]
        async for chunk in request.stream():
            parser.write(chunk)
            if len(form.files) + len(form.fields) > MAX_MULTIPART_PARTS:
                raise requests.BODY_MALFORMED_MULTIPART(most=MAX_MULTIPART_PARTS)
        parser.finalize()
    except FormParserError as error:
        raise requests.BODY_MALFORMED_MULTIPART(most=MAX_MULTIPART_PARTS) from error
    return form


def file_named(form: MultipartForm, name: str) -> FilePart:
    """Return the only file in the form field with this name.

    If the user chose no file, browsers send a part with an empty file name. Raises
    ``attachment.file_missing`` and ``attachment.several_files``.
    """
    files = [part for part in form.files if part.name == name and part.filename]
    if len(files) > 1:
        raise media.ATTACHMENT_SEVERAL_FILES(part=name)
    if not files:
        raise media.ATTACHMENT_FILE_MISSING(part=name)
    return files[0]


MAX_FORM_FIELDS = 100
# A longer form is decoded in a thread, because decoding its percent escapes can take a second.
MAX_FORM_BYTES_ON_LOOP = 64 * 1024
# The form field that a mail client's unsubscribe button posts (RFC 8058, 3.1), in lower case.
_ONE_CLICK = ("list-unsubscribe", "one-click")

BodyFields = list[tuple[str, Any]]

# True and false in a query or a form, which hold nothing but text.
BOOLEAN_WORDS = {"1": True, "true": True, "0": False, "false": False}


def boolean_of(value: object) -> bool | None:
    """Return ``None`` for any other word; upper case counts too."""
    return BOOLEAN_WORDS.get(str(value).lower())


@dataclass(frozen=True)
class FormOrJsonBody:
    """The fields of a request's body, and the one trace id of its query and body."""

    fields: dict[str, Any]
    is_form: bool
    trace_id: str | None

    @property
    def is_one_click(self) -> bool:
        return self.is_form and _has_one_click(self.fields.items())

    def flag(self, name: str) -> bool:
        """Read a required boolean, in a form one of ``BOOLEAN_WORDS``; raises ``body.invalid``."""
        value = self.fields.get(name)
        if self.is_form and isinstance(value, str):
            value = boolean_of(value)
        if not isinstance(value, bool):
            raise requests.invalid_field(f"body.{name}", "must be true or false")
        return value


async def read_form_or_json(
    request: Request,
    trace_id: Annotated[
        str | None,
        Query(description="From a mail of the list; stands for the person it was mailed to"),
    ] = None,
) -> FormOrJsonBody:
    """Raises ``trace.ambiguous`` for two that differ, and the errors of a malformed body."""
    fields, is_form = await body_fields(request)
    named = [value for name, value in fields if name == "trace_id" and value is not None]
    if not all(isinstance(value, str) for value in named):
        raise requests.invalid_field("body.trace_id", "must be a string")
    sent = {*request.query_params.getlist("trace_id"), *named} - {""}
    if len(sent) > 1:
        raise mailing.TRACE_AMBIGUOUS()
    return FormOrJsonBody(dict(fields), is_form, sent.pop() if sent else None)


FormOrJsonBodyOf = Annotated[FormOrJsonBody, Depends(read_form_or_json)]


async def body_fields(request: Request) -> tuple[BodyFields, bool]:
    """Return the fields of the body in their order, and whether the body is a form.

    A name may occur several times. Some mail systems post ``List-Unsubscribe=One-Click`` as plain
    text or without a Content-Type. Any body with this field counts as a form, unless its type is
    JSON.
    """
    content_type = request.headers.get("content-type", "")
    kind = media_type(content_type)
    if kind == MULTIPART:
        form = await read_form(request)
        return [(name, value.decode(errors="replace")) for name, value in form.fields], True
    body = await request.body()
    if not body:
        return [], False
    if kind == FORM:
        try:
            return await _read_pairs(body), True
        except ValueError:
            raise requests.BODY_MALFORMED_FORM() from None
    if not is_json(content_type):
        with suppress(ValueError):
            pairs = await _read_pairs(body)
            if _has_one_click(pairs):
                return pairs, True
        raise requests.BODY_NO_JSON_OR_FORM_TYPE()
    parsed = read_json(request, body)
    if not isinstance(parsed, dict):
        raise requests.BODY_INVALID(place="body", rule="must be an object")
    return list(parsed.items()), False


def _has_one_click(pairs: Iterable[tuple[str, Any]]) -> bool:
    """Return whether a form has the field ``List-Unsubscribe=One-Click``.

    Some mail systems copy the field from the mail's header together with spaces or a line break.
    """
    return any(
        (name.strip().lower(), value.strip().lower()) == _ONE_CLICK
        for name, value in pairs
        if isinstance(value, str)
    )


def nested_inputs(pairs: BodyFields, name: str) -> dict[str, Any]:
    """Return a form's inputs as JSON has them: those called ``name.key`` are in an object."""
    prefix = f"{name}."
    inside = {key.removeprefix(prefix): each for key, each in pairs if key.startswith(prefix)}
    return {**{key: each for key, each in pairs if not key.startswith(prefix)}, name: inside}


def form_pairs(body: bytes) -> list[tuple[str, str]]:
    """Return all fields of a form, including repeated ones; raises ``ValueError``.

    Whitespace around the body is removed. Such whitespace can't belong to a value, because a
    form encodes the whitespace in its values.
    """
    text = body.decode().strip()
    return parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS)


async def _read_pairs(body: bytes) -> list[tuple[str, str]]:
    """Return all fields of a form; raises ``ValueError`` for a malformed form.

    A long form is decoded in a thread, so that the event loop isn't blocked.
    """
    if len(body) <= MAX_FORM_BYTES_ON_LOOP:
        return form_pairs(body)
    return await STORAGE.run(form_pairs, body)


async def _oauth_request(request: Request) -> OAuthRequest:
    """Keep the fields of a form, repeated ones too; a body that is no form has none."""
    form: list[tuple[str, str]] = []
    if media_type(request.headers.get("content-type", "")) == FORM:
        with suppress(ValueError):
            form = await _read_pairs(await request.body())
    header = ", ".join(request.headers.getlist("authorization"))
    return OAuthRequest(request.method, request.scope["path"], form, header or None)


OAuthRequestOf = Annotated[OAuthRequest, Depends(_oauth_request)]


def oauth_request_of_query(request: Request) -> OAuthRequest:
    return OAuthRequest("GET", request.scope["path"], request.query_params.multi_items())


def oauth_response(reply: OAuthResponse) -> Response:
    # Only the client may keep the tokens, and no cache.
    headers = {"Cache-Control": "no-store", **reply.headers}
    headers.pop("Content-Type", None)
    return JSONResponse(reply.body, reply.status, headers=headers)
