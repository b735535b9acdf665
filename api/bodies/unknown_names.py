"""Refuses unknown query parameters and body fields if a request asks for strict handling.

A client requests strict handling with the header ``Prefer: handling=strict``. Without strict
handling, unknown names are ignored, because the client may be newer than the server.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

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

# The key of the ``KnownNames`` in the ASGI scope of a request.
_NAMES_KEY = "pressroom.known_names"

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
        query: the names of the query parameters that the route accepts.
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


def find_unknown_query_names(request: Request, names: KnownNames) -> list[str]:
    """Return the names of at most ``MAX_LISTED_NAMES`` unknown query parameters."""
    return [
        *islice(
            (name for name in request.query_params if name not in names.query), MAX_LISTED_NAMES
        )
    ]


def begin_strict_handling(request: Request, names: KnownNames) -> None:
    """Make ``check_body_names`` reject unknown fields in the body of the request."""
    request.scope["pressroom.headers"].append((b"preference-applied", b"handling=strict"))
    request.scope[_NAMES_KEY] = names


def has_strict_handling(request: Request) -> bool:
    return _NAMES_KEY in request.scope


def check_body_names(request: Request, parsed: object) -> None:
    """Reject unknown fields in the body if the request asks for strict handling.

    Raises ``request.option_in_body`` if the body contains the name of a query parameter. Raises
    ``request.unknown`` for a name that the route accepts neither in the body nor in the query.
    """
    known: KnownNames | None = request.scope.get(_NAMES_KEY)
    if known is None or known.body is None:
        return
    places = [
        *islice(find_unknown_names(known.body, parsed, ("body",), known.schemas), MAX_LISTED_NAMES)
    ]
    for _, *names in places:
        if len(names) == 1 and names[0] in known.query:
            raise requests.OPTION_IN_BODY(name=names[0])
    if places:
        raise build_unknown_names_error(places)


def find_unknown_names(
    schema: Schema, value: object, place: Place, schemas: dict[str, Schema]
) -> Iterator[Place]:
    """Yield the path to each unknown property of a JSON value.

    Pydantic's option ``extra="forbid"`` isn't used, because it is slow and needs much memory. With
    ``extra="forbid"``, validating a 2 MB body with 180,000 unknown names took up to 294 MB and 2.5
    seconds.
    """
    if len(place) > MAX_PLACE_PARTS:
        return
    schema = _resolve(schema, schemas)
    if isinstance(value, dict) and "properties" in schema:
        for name, member in value.items():
            if name in schema["properties"]:
                member_schema = schema["properties"][name]
                yield from find_unknown_names(member_schema, member, (*place, name), schemas)
            elif not schema.get("additionalProperties"):
                yield (*place, name)
    elif isinstance(value, list) and "items" in schema:
        # The route rejects a list with more than ``maxItems`` items.
        for index, item in enumerate(value[: schema.get("maxItems")]):
            if isinstance(item, dict | list):
                yield from find_unknown_names(schema["items"], item, (*place, index), schemas)
    elif isinstance(value, dict | list) and "anyOf" in schema:
        alternatives = [
            [*islice(find_unknown_names(alternative, value, place, schemas), MAX_LISTED_NAMES)]
            for alternative in schema["anyOf"]
        ]
        # If the schema has alternatives, report only the alternative with the fewest unknown names.
        # Among alternatives with the same number of unknown names, choose the alternative whose
        # unknown name is nested most deeply.
        yield from min(
            alternatives, key=lambda places: (len(places), -max(map(len, places), default=0))
        )


def _resolve(schema: Schema, schemas: dict[str, Schema]) -> Schema:
    """Return the JSON Schema to which ``schema`` refers, or ``schema`` itself.

    ``schema`` refers to a JSON Schema by a ``$ref``, or by the title of a filter's schema.
    """
    name = schema["$ref"].rpartition("/")[2] if "$ref" in schema else schema.get("title", "")
    return schema if "properties" in schema else schemas.get(name, schema)


def build_unknown_names_error(places: Iterable[Place]) -> DomainError:
    problems = tuple(FieldProblem(format_place(place), "unknown", "is unknown") for place in places)
    names = ", ".join(problem.field for problem in problems)
    return requests.REQUEST_UNKNOWN(names=names, problems=problems)


def refuse_options(request: Request, names: Iterable[str]) -> None:
    """Raise ``request.option_in_body`` if a body field has the name of a query parameter.

    Ignoring an unknown field could do harm. For example, ``dry_run`` is a query parameter. If a
    caller sent ``dry_run`` in the body and the API ignored this field, the request would change
    data.
    """
    route: APIRoute = request.scope["route"]
    options = {parameter.alias for parameter in route.dependant.query_params}
    for name in names:
        if name in options:
            raise requests.OPTION_IN_BODY(name=name)


def refuse_parts(request: Request, names: Iterable[str]) -> None:
    """Raise ``request.option_in_body`` if a form field has the name of a query parameter.

    If the request asks for strict handling, raise ``request.unknown`` for form fields other than
    the file.
    """
    field_names = [name for name in names if name != "file"]
    refuse_options(request, field_names)
    if field_names and preference_of(request).is_strict:
        raise build_unknown_names_error(("body", name) for name in field_names[:MAX_LISTED_NAMES])
