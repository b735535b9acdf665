"""JSON bodies of requests: how they are read.

JSON is read strictly by RFC 8259: no NaN, only UTF-8, bounded depth. The fractions of money are
read exactly, from the text that was sent.
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
# The maximum count of numbers in a body with amounts of money, which are parsed exactly.
MAX_EXACT_NUMBERS = 10_000

M = TypeVar("M", bound=BaseModel)


def media_type(content_type: str) -> str:
    """Return ``application/json`` for ``Application/JSON; charset=utf-8``."""
    return content_type.partition(";")[0].strip().lower()


def is_json(content_type: str) -> bool:
    """Accept ``application/json`` and ``application/…+json`` (RFC 6839), with any parameters."""
    kind = media_type(content_type)
    return kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )


def require_json_type(request: Request) -> None:
    """Raise ``body.unsupported_type`` for a body of another media type."""
    if not is_json(request.headers.get("content-type", "")):
        raise requests.BODY_NO_JSON_TYPE()


def without_byte_order_mark(body: bytes) -> bytes:
    """Remove the mark that some editors write; RFC 8259 allows a reader to ignore it."""
    return body.removeprefix(_BYTE_ORDER_MARK)


def read_json(request: Request, body: bytes) -> Any:
    """Return the parsed body of a request.

    Call this in a thread for bodies of megabytes, because parsing them takes a while. Raises
    ``body.unsupported_type``, ``body.not_json``, and the errors of ``check_body_names``.
    """
    return _read(request, body, _parse)


def read_exact_json(request: Request, body: bytes, schema: type[M]) -> M:
    """Return the validated body of a request about money, whose fractions are read exactly.

    Raises ``body.invalid``, and the errors of ``read_json``.
    """
    parsed = _read(request, body, _parse_exactly)
    try:
        return schema.model_validate(parsed)
    except ValidationError as error:
        raise body_error(error) from None


def _read(request: Request, body: bytes, parse: Callable[[bytes], Any]) -> Any:
    require_json_type(request)
    try:
        parsed = parse(without_byte_order_mark(body))
    except (ValueError, RecursionError):
        raise requests.BODY_NOT_JSON() from None
    check_body_names(request, parsed)
    return parsed


def _parse(body: bytes) -> Any:
    return orjson.loads(body)


def _parse_exactly(body: bytes) -> Any:
    """Parse JSON, with each fraction as a ``Decimal``.

    The count of numbers is limited, because a ``Decimal`` takes thirty times the memory of its
    digits. Raises ``ValueError``, ``RecursionError`` and ``body.invalid``.
    """
    counts = count(1)

    def parse_number(text: str) -> int | Decimal:
        if next(counts) > MAX_EXACT_NUMBERS:
            raise requests.invalid_field("body", f"has more than {MAX_EXACT_NUMBERS} numbers")
        # JSON allows integers of thousands of digits, but Python's ``int`` refuses them.
        if len(text) <= _DIGITS_OF_64_BITS and text.removeprefix("-").isdecimal():
            return int(text)
        try:
            return Decimal(text)
        except InvalidOperation:
            # This is valid JSON, but its exponent is too large for a ``Decimal``.
            return Decimal("Infinity")

    return json.loads(
        body.decode(),
        parse_float=parse_number,
        parse_int=parse_number,
        parse_constant=_refuse_constant,
    )


def _refuse_constant(name: str) -> NoReturn:
    # Python's parser reads NaN and Infinity, but the JSON standard has no such numbers.
    raise ValueError(name)


class JsonRequest(Request):
    async def json(self) -> Any:
        """Return the parsed body.

        Raises ``JSONDecodeError``, which FastAPI answers, and the errors of ``check_body_names``.
        """
        if not hasattr(self, "_json"):
            parsed = _parse(without_byte_order_mark(await self.body()))
            if has_strict_handling(self):
                await STORAGE.run(check_body_names, self, parsed)
            self._json = parsed
        return self._json
