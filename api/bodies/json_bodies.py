"""Reads the JSON bodies of requests.

The JSON parser refuses NaN, encodings other than UTF-8 (RFC 8259) and deep nesting. Amounts of
money are parsed without rounding.
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from decimal import Decimal, InvalidOperation
from functools import partial
from itertools import count
from typing import Any, NoReturn, TypeVar

import orjson
from fastapi import Request
from pydantic import BaseModel, ValidationError

from api.bodies.unknown_names import check_body_names, has_strict_handling
from api.errors import body_error
from api.limits.bulkheads import BODIES
from api.limits.keyed_bulkheads import BODIES_BY_CALLER
from api.middleware.body_limits import body_of
from core.errors import requests
from core.json_parsing import JsonTooComplex, parse_json
from core.process.garbage_collection import pause_collection

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_DIGITS_OF_64_BITS = 20
# The maximum number of numeric values in a JSON body that contains amounts of money.
MAX_EXACT_NUMBERS = 10_000
# The maximum size of a JSON body that is parsed on the event loop. Larger bodies of the same caller
# are parsed one after the other.
MAX_UNQUEUED_BYTES = 256 * 1024
# The maximum number of arrays and objects in a JSON body that is parsed on the event loop. Each of
# them is searched for unknown names.
MAX_UNQUEUED_VALUES = 1_000

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")


def parse_media_type(content_type: str) -> str:
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


async def read_json(request: Request, body: bytes) -> Any:
    return await read_converted_json(request, body, lambda parsed: parsed)


async def read_exact_json(request: Request, body: bytes, schema: type[M]) -> M:
    """Parse and validate a body that contains amounts of money."""
    return await read_converted_json(
        request, body, partial(validate_body, schema), parse=_parse_exactly
    )


def validate_body(schema: type[M], parsed: Any) -> M:
    try:
        return schema.model_validate(parsed)
    except ValidationError as error:
        raise body_error(error) from None


async def read_converted_json(
    request: Request,
    body: bytes,
    convert: Callable[[Any], T],
    *,
    parse: Callable[[bytes], Any] = orjson.loads,
) -> T:
    """Parse the JSON body of a request, and return the result of ``convert``.

    A large body is parsed and converted in a thread, but only one body of the same caller at a
    time.
    """
    require_json_type(request)

    def read() -> T:
        try:
            parsed = _parse_body(request, body, parse)
        except (ValueError, RecursionError):
            raise requests.BODY_NOT_JSON() from None
        check_body_names(request, parsed)
        return convert(parsed)

    return await _run_in_turn(request, body, read)


async def _run_in_turn(request: Request, body: bytes, read: Callable[[], T]) -> T:
    if len(body) > MAX_UNQUEUED_BYTES:
        read_uncollected = pause_collection()(read)
        return await BODIES_BY_CALLER.run(body_of(request.scope).sender, read_uncollected)
    has_many_values = body.count(b"{") + body.count(b"[") > MAX_UNQUEUED_VALUES
    if has_many_values or has_strict_handling(request):
        return await BODIES.run(read)
    return read()


def _parse_body(request: Request, body: bytes, parse: Callable[[bytes], Any]) -> Any:
    limits = body_of(request.scope).json_limits
    try:
        return parse_json(remove_byte_order_mark(body), limits, parse=parse)
    except JsonTooComplex:
        raise requests.BODY_TOO_COMPLEX(**asdict(limits)) from None


def _parse_exactly(body: bytes) -> Any:
    """Convert each number with decimal places to a ``Decimal``.

    A body may contain only ``MAX_EXACT_NUMBERS`` numbers, because a ``Decimal`` needs thirty times
    the memory of its digits.
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
    async def json(self) -> Any:
        """Raise ``JSONDecodeError`` for invalid JSON."""
        if not hasattr(self, "_json"):
            body = await self.body()

            def read() -> Any:
                parsed = _parse_body(self, body, orjson.loads)
                check_body_names(self, parsed)
                return parsed

            self._json = await _run_in_turn(self, body, read)
        return self._json
