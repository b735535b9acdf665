"""Reads JSON bodies: every route that takes JSON gets it from this module.

JSON is read strictly by RFC 8259: no NaN, only UTF-8, bounded depth. The fractions of money are
read exactly, from the text that was sent. ``Prefer: handling=strict`` (RFC 7240, 4.4) refuses names
that the OpenAPI document does not have. They are ignored otherwise: a caller may send what a later
release knows.
"""

import json
import re
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from inspect import iscoroutinefunction
from itertools import count, islice
from json import JSONDecodeError
from typing import Any, NoReturn, Protocol, TypeVar, runtime_checkable

import orjson
from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from api.errors import body_error, written_place
from api.limits.bulkheads import RECORDS, STORAGE
from core.errors import DomainError, FieldProblem, requests

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_DIGITS_OF_64_BITS = 20
# The maximum count of numbers in a body with amounts of money, which are parsed exactly.
MAX_EXACT_NUMBERS = 10_000

# The largest number of unknown names that an error lists.
MAX_NAMED = 20
# The depth to which a body is searched for unknown names. Routes refuse filters that are nested
# more deeply.
MAX_PLACE_PARTS = 20
_HANDLING = re.compile(r"\s*handling\s*=\s*\"?(\w+)\"?\s*\Z", re.IGNORECASE)
# The operation of the OpenAPI document by which a request is checked.
_OPERATION = "pressroom.operation"

M = TypeVar("M", bound=BaseModel)

Schema = dict[str, Any]


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
    ``body.unsupported_type``, ``body.not_json``, and the errors of ``_check_names``.
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
    _check_names(request, parsed)
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
        """Return the body, read once; raises ``JSONDecodeError`` and what ``_check_names`` raises.

        FastAPI makes its answer of a ``JSONDecodeError``.
        """
        if not hasattr(self, "_json"):
            parsed = _parse(without_byte_order_mark(await self.body()))
            if _OPERATION in self.scope:
                await STORAGE.run(_check_names, self, parsed)
            self._json = parsed
        return self._json


@runtime_checkable
class BeforeBody(Protocol):
    """A dependency that must pass before any of the body is read."""

    async def pass_before_body(self, request: Request) -> None: ...

    async def pass_before_refusal(self, request: Request) -> None:
        """Check the credentials and count the call, so that refused calls are rate-limited too."""


class ThreadedRoute(APIRoute):
    """A route whose handler, if it is a plain function, works in the threads of ``RECORDS``."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        if not iscoroutinefunction(endpoint):
            endpoint = RECORDS.threaded(endpoint)
        super().__init__(path, endpoint, **options)


class JsonRoute(ThreadedRoute):
    """A route whose handler may declare a JSON body, which is refused in another media type.

    FastAPI reads a declared body before the dependencies run. This route lets those pass first that
    check the caller: strangers must not fill the memory for bodies. A handler that declares no body
    may read a form itself.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        calls: list[Any] = [each.call for each in self.dependant.dependencies]
        first = [call for call in calls if isinstance(call, BeforeBody)]

        async def handle_json(request: Request) -> Response:
            if "prefer" in request.headers and is_strict(request):
                await _begin_strict(request, self.path_format, first)
            read = JsonRequest(request.scope, request.receive)
            if self.body_field is not None:
                for dependency in first:
                    await dependency.pass_before_body(read)
                if await read.body():
                    require_json_type(read)
                    if _OPERATION in read.scope:
                        # Here, since FastAPI would hide why the body was refused.
                        with suppress(JSONDecodeError):
                            await read.json()
            return await handle(read)

        return handle_json


def is_strict(request: Request) -> bool:
    """Return whether the first ``handling`` of the request's preferences is ``strict``."""
    for part in ",".join(request.headers.getlist("prefer")).split(","):
        if match := _HANDLING.match(part.partition(";")[0]):
            return match[1].lower() == "strict"
    return False


async def _begin_strict(request: Request, path: str, accesses: Iterable[BeforeBody]) -> None:
    """Refuse unknown names in the query now, and have those in a body refused when it is read.

    Where the document has no such operation, nothing is checked, and the answer does not say that
    the preference was applied. Raises ``request.unknown``, and all errors of ``accesses``.
    """
    document = request.app.openapi_schema or await STORAGE.run(request.app.openapi)
    method = "get" if request.method == "HEAD" else request.method.lower()
    operation = document["paths"].get(path, {}).get(method)
    if operation is None:
        return
    known = _options(operation)
    names = (name for name in request.query_params if name not in known)
    if others := [*islice(names, MAX_NAMED)]:
        for each in accesses:
            await each.pass_before_refusal(request)
        raise unknown(("query", name) for name in others)
    request.scope["pressroom.headers"].append((b"preference-applied", b"handling=strict"))
    request.scope[_OPERATION] = operation


def _options(operation: dict[str, Any]) -> set[str]:
    """Return the parameters of the query; those that operations share are headers."""
    parameters = operation.get("parameters", ())
    return {each["name"] for each in parameters if each.get("in") == "query"}


def _check_names(request: Request, parsed: object) -> None:
    """Refuse the names in a body that its schema does not have, if the caller asked for that.

    Raises ``request.option_in_body``, ``request.unknown``.
    """
    operation = request.scope.get(_OPERATION, {})
    content = operation.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema")
    if schema is None:
        return
    schemas = request.app.openapi_schema["components"]["schemas"]
    places = [*islice(unknown_names(schema, parsed, ("body",), schemas), MAX_NAMED)]
    options = _options(operation)
    for _, *names in places:
        if len(names) == 1 and names[0] in options:
            raise requests.OPTION_IN_BODY(name=names[0])
    if places:
        raise unknown(places)


# The path to a value in a request, for example ``("body", "members", 3, "tags")``.
Place = tuple[str | int, ...]


def unknown_names(
    schema: Schema, value: object, place: Place, schemas: dict[str, Schema]
) -> Iterator[Place]:
    """Yield the path of each property that is in the value but not in its schema."""
    if len(place) > MAX_PLACE_PARTS:
        return
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    if isinstance(value, dict) and "properties" in schema:
        for name, each in value.items():
            if name in schema["properties"]:
                part = schema["properties"][name]
                yield from unknown_names(part, each, (*place, name), schemas)
            elif not schema.get("additionalProperties"):
                yield (*place, name)
    elif isinstance(value, list) and "items" in schema:
        for number, each in enumerate(value):
            yield from unknown_names(schema["items"], each, (*place, number), schemas)
    elif isinstance(value, dict | list) and "anyOf" in schema:
        tried = [
            [*islice(unknown_names(each, value, place, schemas), MAX_NAMED)]
            for each in schema["anyOf"]
        ]
        # The shape that is most like the value: of two, the one in which the fault lies deeper.
        yield from min(tried, key=lambda places: (len(places), -max(map(len, places), default=0)))


def unknown(places: Iterable[Place]) -> DomainError:
    """Return the ``request.unknown`` that names these places."""
    problems = tuple(
        FieldProblem(written_place(place), "unknown", "is not known here") for place in places
    )
    names = ", ".join(problem.field for problem in problems)
    return requests.REQUEST_UNKNOWN(names=names, problems=problems)


def refuse_options(request: Request, names: Iterable[str]) -> None:
    """Refuse the names of a body of which the route has a parameter of its query.

    Passed over, it would make a dry run an act, and a picture that was to be encrypted public.
    Raises ``request.option_in_body``.
    """
    route: APIRoute = request.scope["route"]
    options = {each.alias for each in route.dependant.query_params}
    for name in names:
        if name in options:
            raise requests.OPTION_IN_BODY(name=name)


def refuse_parts(request: Request, names: Iterable[str]) -> None:
    """Refuse what a form has beside its part ``file``: options, and in strict handling all others.

    Raises ``request.option_in_body``, ``request.unknown``.
    """
    others = [name for name in names if name != "file"]
    refuse_options(request, others)
    if others and is_strict(request):
        raise unknown(("body", name) for name in others[:MAX_NAMED])
