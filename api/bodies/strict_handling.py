"""``Prefer: handling=strict`` (RFC 7240, 4.4): what the document does not name is refused.

Otherwise it is ignored, so that a caller may send what a later release knows. A caller that asks
for strictness hears of a filter that filters nothing.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import orjson
from fastapi import Request
from starlette.types import Message, Receive

from api.bodies.media_types import is_json, without_byte_order_mark
from api.limits.bulkheads import STORAGE
from core.errors import DomainError, FieldProblem
from core.refusals.requests import OPTION_IN_BODY, REQUEST_UNKNOWN

# A refusal names no more than these.
MAX_NAMED = 20
_HANDLING = re.compile(r"\s*handling\s*=\s*\"?(\w+)\"?\s*\Z", re.IGNORECASE)

Schema = dict[str, Any]


def is_asked(request: Request) -> bool:
    """Whether the first ``handling`` of the request's preferences is ``strict``."""
    for part in ",".join(request.headers.getlist("prefer")).split(","):
        if match := _HANDLING.match(part.partition(";")[0]):
            return match[1].lower() == "strict"
    return False


async def checked(request: Request, path: str) -> Receive:
    """Refuse unknown names in the query now, and those in a JSON body once it is read.

    Where the document has no such operation, nothing is checked, and the answer does not say that
    the preference was applied. Raises ``request.unknown``.
    """
    document = request.app.openapi_schema or await STORAGE.run(request.app.openapi)
    method = "get" if request.method == "HEAD" else request.method.lower()
    operation = document["paths"].get(path, {}).get(method)
    if operation is None:
        return request.receive
    parameters = operation.get("parameters", ())
    # A parameter that the document shares between operations is a header.
    known = {each["name"] for each in parameters if each.get("in") == "query"}
    others = dict.fromkeys(name for name in request.query_params if name not in known)
    if others:
        raise unknown(f"query.{name}" for name in others)
    request.scope["pressroom.headers"].append((b"preference-applied", b"handling=strict"))
    content = operation.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema")
    if schema is None or not is_json(request.headers.get("content-type", "")):
        return request.receive
    return _checked_body(request.receive, schema, document["components"]["schemas"], known)


def _checked_body(
    receive: Receive, schema: Schema, schemas: dict[str, Schema], options: set[str]
) -> Receive:
    """The same body in one piece, after a look at all of it."""
    is_read = False

    async def receive_checked() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        pieces: list[bytes] = []
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return message
            pieces.append(message.get("body", b""))
            more = message.get("more_body", False)
        is_read = True
        body = b"".join(pieces)
        await STORAGE.run(_check_body, body, schema, schemas, options)
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_checked


def _check_body(body: bytes, schema: Schema, schemas: dict[str, Schema], options: set[str]) -> None:
    try:
        parsed = orjson.loads(without_byte_order_mark(body))
    except orjson.JSONDecodeError:
        # The route itself says what is wrong.
        return
    try:
        others = list(islice(unknown_names(schema, parsed, "body", schemas), MAX_NAMED))
    except RecursionError:
        # A filter in a filter, deeper than any that is right: the route itself says so.
        return
    for place in others:
        if (name := place.removeprefix("body.")) in options:
            raise OPTION_IN_BODY(name=name)
    if others:
        raise unknown(others)


def unknown_names(
    schema: Schema, value: object, place: str, schemas: dict[str, Schema]
) -> Iterator[str]:
    """The places in a value, such as ``body.members[3].tags``, of which its schema has no name."""
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    if isinstance(value, dict) and "properties" in schema:
        for name, each in value.items():
            if name in schema["properties"]:
                part = schema["properties"][name]
                yield from unknown_names(part, each, f"{place}.{name}", schemas)
            elif not schema.get("additionalProperties"):
                yield f"{place}.{name}"
    elif isinstance(value, list) and "items" in schema:
        for number, each in enumerate(value):
            yield from unknown_names(schema["items"], each, f"{place}[{number}]", schemas)
    elif isinstance(value, dict | list) and "anyOf" in schema:
        tried = [list(unknown_names(each, value, place, schemas)) for each in schema["anyOf"]]
        # The shape that is most like the value: of two, the one in which the fault lies deeper.
        yield from min(tried, key=lambda found: (len(found), -max(map(len, found), default=0)))


def unknown(places: Iterable[str]) -> DomainError:
    """``request.unknown``, of these places."""
    problems = tuple(FieldProblem(place, "unknown", "is not known here") for place in places)
    names = ", ".join(problem.field for problem in problems)
    return REQUEST_UNKNOWN(names=names, problems=problems)
