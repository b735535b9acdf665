"""Reads request bodies that may be a form or JSON.

Sign-up forms and mail clients (RFC 8058) send form data, and programs send JSON. The body or the
query may contain a trace id, which identifies the recipient of a mail.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Query, Request

from api.bodies.json_bodies import is_json, parse_media_type, read_json
from api.bodies.multipart import MULTIPART
from api.bodies.multipart_forms import read_multipart_form
from api.bodies.url_encoded_forms import FORM, parse_boolean, read_pairs
from core.errors import mailing, requests

# The form field that the unsubscribe button of a mail client posts (RFC 8058, 3.1), in lower case.
_ONE_CLICK = ("list-unsubscribe", "one-click")

BodyFields = list[tuple[str, Any]]


@dataclass(frozen=True)
class FormOrJsonBody:
    fields: dict[str, Any]
    is_form: bool
    trace_id: str | None

    @property
    def is_one_click(self) -> bool:
        return self.is_form and _has_one_click(self.fields.items())

    def read_boolean(self, name: str) -> bool:
        """Raise ``body.invalid`` if the field is missing or isn't a boolean."""
        value = self.fields.get(name)
        if self.is_form and isinstance(value, str):
            value = parse_boolean(value)
        if not isinstance(value, bool):
            raise requests.invalid_field(f"body.{name}", "must be true or false")
        return value


async def read_form_or_json(
    request: Request,
    trace_id: Annotated[
        str | None,
        Query(
            description="The trace id from an e-mail of the list, which identifies the recipient "
            "of the e-mail"
        ),
    ] = None,
) -> FormOrJsonBody:
    """Raise ``trace.ambiguous`` if the request contains two different trace ids."""
    fields, is_form = await read_body_fields(request)
    body_trace_ids = [value for name, value in fields if name == "trace_id" and value is not None]
    if not all(isinstance(value, str) for value in body_trace_ids):
        raise requests.invalid_field("body.trace_id", "must be a string")
    trace_ids = {*request.query_params.getlist("trace_id"), *body_trace_ids} - {""}
    if len(trace_ids) > 1:
        raise mailing.TRACE_AMBIGUOUS()
    return FormOrJsonBody(dict(fields), is_form, trace_ids.pop() if trace_ids else None)


FormOrJsonBodyOf = Annotated[FormOrJsonBody, Depends(read_form_or_json)]


async def read_body_fields(request: Request) -> tuple[BodyFields, bool]:
    """Return the names and values of all fields, and whether the body is a form.

    Some mail systems post the field ``List-Unsubscribe=One-Click`` as plain text. A body with this
    field counts as a form, unless its media type is JSON.
    """
    content_type = request.headers.get("content-type", "")
    kind = parse_media_type(content_type)
    if kind == MULTIPART:
        form = await read_multipart_form(request)
        return [(name, value.decode(errors="replace")) for name, value in form.fields], True
    body = await request.body()
    if not body:
        return [], False
    if kind == FORM:
        try:
            return await read_pairs(body), True
        except ValueError:
            raise requests.BODY_MALFORMED_FORM() from None
    if not is_json(content_type):
        with suppress(ValueError):
            pairs = await read_pairs(body)
            if _has_one_click(pairs):
                return pairs, True
        raise requests.BODY_NO_JSON_OR_FORM_TYPE()
    parsed = await read_json(request, body)
    if not isinstance(parsed, dict):
        raise requests.BODY_INVALID(place="body", rule="must be an object")
    return list(parsed.items()), False


def _has_one_click(pairs: Iterable[tuple[str, Any]]) -> bool:
    """Ignore whitespace around the field's name and value, because some mail systems add it."""
    return any(
        (name.strip().lower(), value.strip().lower()) == _ONE_CLICK
        for name, value in pairs
        if isinstance(value, str)
    )


def nest_inputs(pairs: BodyFields, name: str) -> dict[str, Any]:
    """Move inputs with the prefix ``name``, such as ``fields.city``, into a nested dictionary."""
    prefix = f"{name}."
    inner = {key.removeprefix(prefix): value for key, value in pairs if key.startswith(prefix)}
    outer = {key: value for key, value in pairs if not key.startswith(prefix)}
    return {**outer, name: inner}
