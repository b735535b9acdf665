"""Reads JSON bodies of requests.

The parser follows RFC 8259 strictly: NaN, other encodings than UTF-8 and deep nesting are errors.
Amounts of money are parsed without rounding.
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
# The maximum number of numbers in a body with amounts of money.
MAX_EXACT_NUMBERS = 10_000

M = TypeVar("M", bound=BaseModel)


def parse_media_type(content_type: str) -> str:
    """Return the media type in lower case, without parameters such as ``charset``."""
    return content_type.partition(";")[0].strip().lower()


def is_json(content_type: str) -> bool:
    """Return whether the type is ``application/json`` or ``application/…+json`` (RFC 6839)."""
    kind = parse_media_type(content_type)
    return kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )


def require_json_type(request: Request) -> None:
    """Raise ``body.unsupported_type`` unless the body is JSON."""
    if not is_json(request.headers.get("content-type", "")):
        raise requests.BODY_NO_JSON_TYPE()


def remove_byte_order_mark(body: bytes) -> bytes:
    """Remove the byte order mark that some editors write, as RFC 8259 allows."""
    return body.removeprefix(_BYTE_ORDER_MARK)


def read_json(request: Request, body: bytes) -> Any:
    """Return the parsed body of a request.

    Call this function in a thread for bodies of megabytes, because parsing them is slow. Raises
    ``body.unsupported_type``, ``body.not_json``, and the errors of ``check_body_names``.
    """
    return _read_body(request, body, _parse)


def read_exact_json(request: Request, body: bytes, schema: type[M]) -> M:
    """Return the validated body of a request about money, with fractions as ``Decimal``.

    Raises ``body.invalid``, and the errors of ``read_json``.
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
    """Parse JSON with each fraction as a ``Decimal``.

    The number of numbers is limited, because a ``Decimal`` needs thirty times the memory of its
    digits. Raises ``ValueError``, ``RecursionError`` and ``body.invalid``.
    """
    counter = count(1)

    def parse_number(text: str) -> int | Decimal:
        if next(counter) > MAX_EXACT_NUMBERS:
            raise requests.invalid_field("body", f"has more than {MAX_EXACT_NUMBERS} numbers")
        # JSON allows integers of thousands of digits, but Python's ``int`` refuses them.
        if len(text) <= _DIGITS_OF_64_BITS and text.removeprefix("-").isdecimal():
            return int(text)
        try:
            return Decimal(text)
        except InvalidOperation:
            # JSON allows an exponent that is too large for a ``Decimal``.
            return Decimal("Infinity")

    return json.loads(
        body.decode(),
        parse_float=parse_number,
        parse_int=parse_number,
        parse_constant=_refuse_constant,
    )


def _refuse_constant(name: str) -> NoReturn:
    # Python's parser accepts NaN and Infinity, but the JSON standard doesn't.
    raise ValueError(name)


class JsonRequest(Request):
    """A request whose JSON body is parsed strictly."""

    async def json(self) -> Any:
        """Return the parsed body.

        Raises ``JSONDecodeError``, which FastAPI turns into a response, and the errors of
        ``check_body_names``.
        """
        if not hasattr(self, "_json"):
            parsed = _parse(remove_byte_order_mark(await self.body()))
            if has_strict_handling(self):
                await STORAGE.run(check_body_names, self, parsed)
            self._json = parsed
        return self._json
