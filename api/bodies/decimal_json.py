"""JSON bodies whose numbers are money: read exactly, from the text that was sent."""

import json
import re
import time
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

import orjson
from fastapi.responses import Response

from api.bodies.media_types import is_json, without_byte_order_mark
from core.refusals.requests import BODY_NO_JSON_TYPE, BODY_NOT_JSON, invalid_field

_DIGITS_OF_64_BITS = 20
# JSON can name NUL and half a character (a lone surrogate), which no stored text holds.
_NO_CHARACTER = re.compile("[\0\ud800-\udfff]")


def read(content_type: str, body: bytes) -> dict[str, Any]:
    """The object in the body, its fractions as ``Decimal``.

    Raises ``body.unsupported_type``, ``body.not_json``, ``body.invalid``.
    """
    if not is_json(content_type):
        raise BODY_NO_JSON_TYPE()
    try:
        parsed = json.loads(
            without_byte_order_mark(body).decode(),
            parse_float=_exact,
            # Python refuses to read thousands of digits as an integer: they are JSON all the same.
            parse_int=lambda text: int(text) if len(text) <= _DIGITS_OF_64_BITS else Decimal(text),
            parse_constant=_refuse_constant,
        )
    except (ValueError, RecursionError):
        raise BODY_NOT_JSON() from None
    if not isinstance(parsed, dict):
        raise invalid_field("body", "must be an object")
    return parsed


def _exact(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        # JSON, but with an exponent that no number here has.
        return Decimal("Infinity")


def _refuse_constant(name: str) -> NoReturn:
    # NaN and Infinity: Python's own, and in no standard.
    raise ValueError(name)


def number(fields: dict[str, Any], name: str) -> Decimal:
    """A required number; raises ``body.invalid``."""
    value = _required(fields, name)
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise invalid_field(f"body.{name}", "must be a number")
    return Decimal(value)


def optional_number(fields: dict[str, Any], name: str) -> Decimal | None:
    return None if fields.get(name) is None else number(fields, name)


def optional_string(fields: dict[str, Any], name: str) -> str | None:
    return None if fields.get(name) is None else string(fields, name)


def string(fields: dict[str, Any], name: str) -> str:
    """A required string; raises ``body.invalid``."""
    value = _required(fields, name)
    if not isinstance(value, str):
        raise invalid_field(f"body.{name}", "must be a string")
    if _NO_CHARACTER.search(value):
        rule = "has a character that can't be stored: NUL, or half of a surrogate pair"
        raise invalid_field(f"body.{name}", rule)
    return value


def _required(fields: dict[str, Any], name: str) -> object:
    if name not in fields:
        # The words in which pydantic says so of the bodies that it reads.
        raise invalid_field(f"body.{name}", "Field required", "missing")
    return fields[name]


def optional_object(fields: dict[str, Any], name: str) -> dict[str, Any] | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, dict):
        raise invalid_field(f"body.{name}", "must be an object")
    return value


def decimal_response(data: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    """The envelope around a record whose decimals are written as they are, never as binary."""
    return decimal_response_of_text(orjson.dumps(data, default=_as_written).decode(), headers)


def decimal_response_of_text(data: str, headers: dict[str, str] | None = None) -> Response:
    """The same for a record that the database wrote as JSON."""
    body = f'{{"data":{data},"ts":{int(time.time())}}}'
    return Response(body, headers=headers, media_type="application/json")


def _as_written(value: object) -> orjson.Fragment:
    if isinstance(value, Decimal):
        return orjson.Fragment(format(value, "f"))
    raise TypeError(type(value).__name__)
