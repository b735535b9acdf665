"""The body of a request that a mail led to: a form or JSON, and a trace id in the body or query.

Mail clients post forms without credentials (RFC 8058), programs send JSON, links carry a query.
"""

from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import parse_qsl

import orjson
from fastapi import Depends, Query, Request

from api.bodies.media_types import FORM, MULTIPART, is_json, media_type, without_byte_order_mark
from api.bodies.multipart import read_form
from core.refusals import requests as refusals
from core.refusals.mailing import TRACE_AMBIGUOUS

MAX_FORM_FIELDS = 100
# RFC 8058, 3.1: what a mail client's own unsubscribe button posts.
_ONE_CLICK = ("List-Unsubscribe", "One-Click")

BodyFields = list[tuple[str, Any]]

# True and false in a query or a form, which hold nothing but text.
BOOLEAN_WORDS = {"1": True, "true": True, "0": False, "false": False}


def boolean_of(value: object) -> bool | None:
    """``None`` for any other word; upper case counts too."""
    return BOOLEAN_WORDS.get(str(value).lower())


@dataclass(frozen=True)
class FormOrJsonBody:
    """The fields of a request's body, and the one trace id of its query and body."""

    fields: dict[str, Any]
    is_form: bool
    trace_id: str | None

    @property
    def is_one_click(self) -> bool:
        return self.is_form and self.fields.get(_ONE_CLICK[0]) == _ONE_CLICK[1]

    def flag(self, name: str) -> bool:
        """A required boolean, in a form one of ``BOOLEAN_WORDS``; raises ``body.invalid``."""
        value = self.fields.get(name)
        if self.is_form and isinstance(value, str):
            value = boolean_of(value)
        if not isinstance(value, bool):
            raise refusals.invalid_field(f"body.{name}", "must be true or false")
        return value


async def read_form_or_json(
    request: Request,
    trace_id: Annotated[
        str | None,
        Query(description="From a mail of the list; stands for the person it was mailed to"),
    ] = None,
) -> FormOrJsonBody:
    """Raises ``trace.ambiguous`` for two that differ, and the refusals of a malformed body."""
    fields, is_form = await body_fields(request)
    named = [value for name, value in fields if name == "trace_id" and value is not None]
    if not all(isinstance(value, str) for value in named):
        raise refusals.invalid_field("body.trace_id", "must be a string")
    sent = {*request.query_params.getlist("trace_id"), *named} - {""}
    if len(sent) > 1:
        raise TRACE_AMBIGUOUS()
    return FormOrJsonBody(dict(fields), is_form, sent.pop() if sent else None)


FormOrJsonBodyOf = Annotated[FormOrJsonBody, Depends(read_form_or_json)]


async def body_fields(request: Request) -> tuple[BodyFields, bool]:
    """The fields in their order, in which a name may repeat, and whether they are a form's."""
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
            return form_pairs(body), True
        except ValueError:
            raise refusals.BODY_MALFORMED_FORM() from None
    if not is_json(content_type):
        raise refusals.BODY_NO_JSON_OR_FORM_TYPE()
    try:
        parsed = orjson.loads(without_byte_order_mark(body))
    except orjson.JSONDecodeError:
        raise refusals.BODY_NOT_JSON() from None
    if not isinstance(parsed, dict):
        raise refusals.BODY_INVALID(place="body", rule="must be an object")
    return list(parsed.items()), False


def nested_inputs(pairs: BodyFields, name: str) -> dict[str, Any]:
    """The inputs of a form as JSON would have them: those called ``name.key`` are in an object."""
    prefix = f"{name}."
    inside = {key.removeprefix(prefix): each for key, each in pairs if key.startswith(prefix)}
    return {**{key: each for key, each in pairs if not key.startswith(prefix)}, name: inside}


def form_pairs(body: bytes) -> list[tuple[str, str]]:
    """The fields of a form, repeated ones too; raises ``ValueError``."""
    return parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS)
