"""Reads the JSON bodies of requests.

The JSON parser refuses NaN, encodings other than UTF-8 (RFC 8259) and deep nesting. Amounts of
money are parsed without rounding.
"""

import json
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from itertools import count
from typing import Any, NoReturn, TypeVar

import orjson
from fastapi import Request
from pydantic import BaseModel, ValidationError

from api.bodies.unknown_names import check_body_names, has_strict_handling
from api.errors import body_error
from api.limits.bulkheads import STORAGE
from core.errors import requests

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_DIGITS_OF_64_BITS = 20
# The maximum number of numeric values in a JSON body that contains amounts of money.
MAX_EXACT_NUMBERS = 10_000

M = TypeVar("M", bound=BaseModel)


def parse_media_type(content_type: str) -> str:
    """Return the media type of a ``Content-Type`` header, without parameters and in lower case."""
    return content_type.partition(";")[0].strip().lower()


def is_json(content_type: str) -> bool:
    """Return whether the content type is JSON or a subtype such as ``application/problem+json``."""
    kind = parse_media_type(content_type)
    return kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )


def require_json_type(request: Request) -> None:
    if not is_json(request.headers.get("content-type", "")):
        raise requests.BODY_NO_JSON_TYPE()


def remove_byte_order_mark(body: bytes) -> bytes:
    """Remove a byte order mark, which some editors write at the start of a JSON file."""
    return body.removeprefix(_BYTE_ORDER_MARK)


def read_json(request: Request, body: bytes) -> Any:
    """Return the parsed JSON body of a request.

    Call ``read_json`` in a thread if the body may be several megabytes long, so that parsing
    doesn't block the event loop. Raises ``body.unsupported_type`` or ``body.not_json`` if the body
    isn't JSON.
    """
    return _read_body(request, body, _parse)


def read_exact_json(request: Request, body: bytes, schema: type[M]) -> M:
    """Parse and validate a JSON request body that contains amounts of money.

    Numbers with decimal places become ``Decimal``, so that amounts of money aren't rounded. Raises
    ``body.invalid`` if the body doesn't match ``schema``.
    """
    parsed = _read_body(request, body, _parse_exactly)
    try:
        return schema.model_validate(parsed)
    except ValidationError as error:
        raise body_error(error) from None


def _read_body(request: Request, body: bytes, parse: Callable[[bytes], Any]) -> Any:
    require_json_type(request)
    try:
        parsed = parse(remove_byte_order_mark(body))
    except (ValueError, RecursionError):
        raise requests.BODY_NOT_JSON() from None
    check_body_names(request, parsed)
    return parsed


def _parse(body: bytes) -> Any:
    return orjson.loads(body)


def _parse_exactly(body: bytes) -> Any:
    """Parse JSON, and convert each number with decimal places to a ``Decimal``.

    A body may contain only ``MAX_EXACT_NUMBERS`` numbers, because a ``Decimal`` needs thirty times
    the memory of its digits. Raises ``body.invalid`` if the body contains more than
    ``MAX_EXACT_NUMBERS`` numbers. Raises ``ValueError`` or ``RecursionError`` for invalid JSON.
    """
    counter = count(1)

    def parse_number(text: str) -> int | Decimal:
        if next(counter) > MAX_EXACT_NUMBERS:
            raise requests.invalid_field(
                "body", f"must contain at most {MAX_EXACT_NUMBERS} numbers"
            )
        # Keep long integers as ``Decimal``, because ``int`` raises an error for thousands of
        # digits.
        if len(text) <= _DIGITS_OF_64_BITS and text.removeprefix("-").isdecimal():
            return int(text)
        try:
            return Decimal(text)
        except InvalidOperation:
            # The number's exponent is too large for ``Decimal``.
            return Decimal("Infinity")

    return json.loads(
        body.decode(),
        parse_float=parse_number,
        parse_int=parse_number,
        parse_constant=_refuse_constant,
    )


def _refuse_constant(name: str) -> NoReturn:
    # Python's JSON parser would accept NaN and Infinity, which the JSON standard forbids.
    raise ValueError(name)


class JsonRequest(Request):
    """A request that parses its JSON body strictly (RFC 8259)."""

    async def json(self) -> Any:
        """Return the parsed JSON body. Raises ``JSONDecodeError`` for invalid JSON."""
        if not hasattr(self, "_json"):
            parsed = _parse(remove_byte_order_mark(await self.body()))
            if has_strict_handling(self):
                await STORAGE.run(check_body_names, self, parsed)
            self._json = parsed
        return self._json
