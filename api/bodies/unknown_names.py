"""Finds the unknown query parameters and body fields of a request.

A client requests strict handling with the header ``Prefer: handling=strict``, which refuses unknown
names. Otherwise, unknown names are ignored, because the client may be newer than the server. The
response header ``Pressroom-Ignored`` then contains these names.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

from api.errors import format_place
from api.preferences import preference_of
from api.schemas.segments import FILTER_SCHEMAS
from api.schemas.subscriptions import NewSubscription
from core.errors import DomainError, FieldProblem, requests

# The maximum number of unknown names that one error lists.
MAX_LISTED_NAMES = 20
# Unknown names in a request are reported only down to this nesting depth. A higher
# ``MAX_PLACE_PARTS`` isn't needed, because routes reject filters with deeper nesting.
MAX_PLACE_PARTS = 20

IGNORED_HEADER = "Pressroom-Ignored"
# The maximum size of the header ``Pressroom-Ignored``. Proxies reject long headers. The longest
# name fits.
MAX_HEADER_BYTES = 1_500
MAX_NAME_CHARACTERS = 100
# Without strict handling, the unknown names are searched only in the first items of a list, so that
# the search takes little time. The items of a list usually have the same properties.
MAX_SEARCHED_ITEMS = 100
_MAX_SEARCHED_NAMES = 1_000

# The keys of the ``KnownNames``, of the strict handling and of the ignored names in the ASGI scope
# of a request.
_NAMES_KEY = "pressroom.known_names"
_STRICT_KEY = "pressroom.is_strict"
_IGNORED_KEY = "pressroom.ignored_names"
_HEADER_NAME = IGNORED_HEADER.lower().encode()

Schema = dict[str, Any]
# The path to a value in a request, for example ``("body", "members", 3, "tags")``.
Place = tuple[str | int, ...]

# Maps names to JSON Schemas. The schemas of request bodies refer to these JSON Schemas by name.
_SHARED_SCHEMAS: dict[str, Schema] = {
    **FILTER_SCHEMAS,
    NewSubscription.__name__: NewSubscription.model_json_schema(),
}


@dataclass(frozen=True)
class KnownNames:
    """The names of the query parameters and body fields that a route accepts.

    Attributes:
        body: the JSON Schema of the request body, or ``None`` for a route without a JSON body.
        schemas: the JSON Schemas to which ``body`` refers by name.
    """

    query: frozenset[str]
    body: Schema | None
    schemas: dict[str, Schema]


def find_known_names(route: APIRoute) -> KnownNames:
    query = frozenset(_list_query_names(route.dependant))
    if route.body_field is not None:
        body_type: Any = route.body_field.field_info.annotation
        schema = TypeAdapter(body_type).json_schema()
        return KnownNames(query, schema, {**_SHARED_SCHEMAS, **schema.pop("$defs", {})})
    # If a handler reads the request body itself, its route declares the body's schema in
    # ``openapi_extra``.
    content = (route.openapi_extra or {}).get("requestBody", {}).get("content", {})
    return KnownNames(query, content.get("application/json", {}).get("schema"), _SHARED_SCHEMAS)


def _list_query_names(dependant: Dependant) -> Iterator[str]:
    yield from (parameter.alias for parameter in dependant.query_params)
    for dependency in dependant.dependencies:
        yield from _list_query_names(dependency)


def find_unknown_query_names(request: Request, names: KnownNames) -> list[Place]:
    if not request.scope["query_string"]:
        return []
    unknown_names = (name for name in request.query_params if name not in names.query)
    return [("query", name) for name in islice(unknown_names, MAX_LISTED_NAMES)]


def begin_strict_handling(request: Request, names: KnownNames) -> None:
    request.scope["pressroom.headers"].append((b"preference-applied", b"handling=strict"))
    request.scope[_NAMES_KEY] = names
    request.scope[_STRICT_KEY] = True


def begin_lenient_handling(request: Request, names: KnownNames) -> None:
    request.scope[_NAMES_KEY] = names


def has_strict_handling(request: Request) -> bool:
    return _STRICT_KEY in request.scope


def report_ignored_names(request: Request, places: Iterable[Place]) -> None:
    """A name in an item of a list is reported once for all items."""
    names: dict[str, None] = request.scope.setdefault(_IGNORED_KEY, {})
    size = sum(len(name) + len(", ") for name in names)
    for place in places:
        name = _encode_place(place)
        if name not in names and len(names) < MAX_LISTED_NAMES:
            size += len(name) + len(", ")
            if size <= MAX_HEADER_BYTES:
                names[name] = None
    if names:
        headers = request.scope["pressroom.headers"]
        headers[:] = [header for header in headers if header[0] != _HEADER_NAME]
        headers.append((_HEADER_NAME, ", ".join(names).encode()))


def _encode_place(place: Place) -> str:
    """Return a place such as ``body.members[].age``, which is percent-encoded."""
    steps = ("[]" if isinstance(step, int) else f".{step}" for step in place)
    text = "".join(steps).removeprefix(".")[:MAX_NAME_CHARACTERS]
    return quote(text, safe="[]", errors="replace")


def check_body_names(request: Request, parsed: object) -> None:
    """Reject unknown fields in the body if the request asks for strict handling, or report them."""
    known: KnownNames | None = request.scope.get(_NAMES_KEY)
    if known is None or known.body is None:
        return
    is_strict = has_strict_handling(request)
    unknown_names = find_unknown_names(
        known.body,
        parsed,
        ("body",),
        known.schemas,
        max_items=None if is_strict else MAX_SEARCHED_ITEMS,
    )
    if not is_strict:
        report_ignored_names(request, islice(unknown_names, _MAX_SEARCHED_NAMES))
        return
    places = [*islice(unknown_names, MAX_LISTED_NAMES)]
    for _, *names in places:
        if len(names) == 1 and names[0] in known.query:
            raise requests.OPTION_IN_BODY(name=names[0])
    if places:
        raise build_unknown_names_error(places)


def find_unknown_names(
    schema: Schema,
    value: object,
    place: Place,
    schemas: dict[str, Schema],
    *,
    max_items: int | None = None,
) -> Iterator[Place]:
    """Yield the path to each unknown property of a JSON value.

    Pydantic's option ``extra="forbid"`` isn't used. With it, validating a 2 MB body with 180,000
    unknown names took up to 294 MB and 2.5 seconds.

    Args:
        max_items: how many items of each list to search, or ``None`` for all items.
    """
    if len(place) > MAX_PLACE_PARTS or not isinstance(value, dict | list):
        return
    schema = _resolve(schema, schemas)
    find = partial(find_unknown_names, schemas=schemas, max_items=max_items)
    if isinstance(value, dict) and "properties" in schema:
        for name, member in value.items():
            if name in schema["properties"]:
                yield from find(schema["properties"][name], member, (*place, name))
            elif not schema.get("additionalProperties"):
                yield (*place, name)
    elif isinstance(value, list) and "items" in schema:
        # The route rejects a list with more than ``maxItems`` items.
        for index, item in enumerate(value[: schema.get("maxItems")][:max_items]):
            yield from find(schema["items"], item, (*place, index))
    elif "anyOf" in schema:
        alternatives = [
            [*islice(find(alternative, value, place), MAX_LISTED_NAMES)]
            for alternative in schema["anyOf"]
        ]
        # If the schema has alternatives, report only the alternative with the fewest unknown names.
        # Among alternatives with the same number of unknown names, choose the alternative whose
        # unknown name is nested most deeply.
        yield from min(
            alternatives, key=lambda places: (len(places), -max(map(len, places), default=0))
        )


def _resolve(schema: Schema, schemas: dict[str, Schema]) -> Schema:
    """Follow a ``$ref``, or the title of a filter's schema."""
    name = schema["$ref"].rpartition("/")[2] if "$ref" in schema else schema.get("title", "")
    return schema if "properties" in schema else schemas.get(name, schema)


def build_unknown_names_error(places: Iterable[Place]) -> DomainError:
    problems = tuple(FieldProblem(format_place(place), "unknown", "is unknown") for place in places)
    names = ", ".join(problem.field for problem in problems)
    return requests.REQUEST_UNKNOWN(names=names, problems=problems)


def refuse_options(request: Request, names: Iterable[str]) -> None:
    """Raise ``request.option_in_body`` if a body field has the name of a query parameter.

    If the API ignored ``dry_run`` in the body, for example, the request would change data.
    """
    route: APIRoute = request.scope["route"]
    options = {parameter.alias for parameter in route.dependant.query_params}
    for name in names:
        if name in options:
            raise requests.OPTION_IN_BODY(name=name)


def refuse_parts(request: Request, names: Iterable[str]) -> None:
    """Refuse the names of query parameters, and in strict handling all fields except the file."""
    field_names = [name for name in names if name != "file"]
    refuse_options(request, field_names)
    places: list[Place] = [("body", name) for name in field_names[:MAX_LISTED_NAMES]]
    if places and preference_of(request).is_strict:
        raise build_unknown_names_error(places)
    report_ignored_names(request, places)
