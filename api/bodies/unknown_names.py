"""Strict handling: names in a request that its route doesn't know.

``Prefer: handling=strict`` refuses unknown names. Otherwise they are ignored, because a caller may
send a name that only a later release knows.
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

# The largest number of unknown names that an error lists.
MAX_NAMED = 20
# The depth to which a body is searched for unknown names. Routes refuse filters that are nested
# more deeply.
MAX_PLACE_PARTS = 20

# The key under which the scope of a request holds the names that its body may have.
_NAMES = "pressroom.known_names"

Schema = dict[str, Any]
# The path to a value in a request, for example ``("body", "members", 3, "tags")``.
Place = tuple[str | int, ...]

# The schemas to which the schemas of bodies refer by name.
_SHARED_SCHEMAS: dict[str, Schema] = {
    **FILTER_SCHEMAS,
    NewSubscription.__name__: NewSubscription.model_json_schema(),
}


@dataclass(frozen=True)
class KnownNames:
    """The names that a route knows.

    Attributes:
        query: the parameters of the query.
        body: the schema of the JSON body; ``None`` for a route without one.
        schemas: the schemas to which ``body`` refers by name.
    """

    query: frozenset[str]
    body: Schema | None
    schemas: dict[str, Schema]


def known_names_of(route: APIRoute) -> KnownNames:
    query = frozenset(_query_names(route.dependant))
    if route.body_field is not None:
        body_type: Any = route.body_field.field_info.annotation
        schema = TypeAdapter(body_type).json_schema()
        return KnownNames(query, schema, {**_SHARED_SCHEMAS, **schema.pop("$defs", {})})
    # The route reads its body itself.
    content = (route.openapi_extra or {}).get("requestBody", {}).get("content", {})
    return KnownNames(query, content.get("application/json", {}).get("schema"), _SHARED_SCHEMAS)


def _query_names(dependant: Dependant) -> Iterator[str]:
    yield from (each.alias for each in dependant.query_params)
    for dependency in dependant.dependencies:
        yield from _query_names(dependency)


def unknown_query_names(request: Request, names: KnownNames) -> list[str]:
    """Return the first names in the query that the route doesn't know."""
    return [*islice((name for name in request.query_params if name not in names.query), MAX_NAMED)]


def begin_strict_handling(request: Request, names: KnownNames) -> None:
    """Make ``check_body_names`` check the body of this request."""
    request.scope["pressroom.headers"].append((b"preference-applied", b"handling=strict"))
    request.scope[_NAMES] = names


def has_strict_handling(request: Request) -> bool:
    return _NAMES in request.scope


def check_body_names(request: Request, parsed: object) -> None:
    """Refuse unknown names in a body, if strict handling has begun.

    Raises ``request.option_in_body``, ``request.unknown``.
    """
    known: KnownNames | None = request.scope.get(_NAMES)
    if known is None or known.body is None:
        return
    places = [*islice(unknown_names(known.body, parsed, ("body",), known.schemas), MAX_NAMED)]
    for _, *names in places:
        if len(names) == 1 and names[0] in known.query:
            raise requests.OPTION_IN_BODY(name=names[0])
    if places:
        raise unknown_names_error(places)


def unknown_names(
    schema: Schema, value: object, place: Place, schemas: dict[str, Schema]
) -> Iterator[Place]:
    """Yield the path of each property that is in the value but not in its schema.

    Pydantic's ``extra="forbid"`` isn't used, because it creates an error for each unknown name. A
    body of 2 MB can have 180,000 of them, which took up to 294 MB and 2.5 seconds.
    """
    if len(place) > MAX_PLACE_PARTS:
        return
    schema = _resolve(schema, schemas)
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
        alternatives = [
            [*islice(unknown_names(each, value, place, schemas), MAX_NAMED)]
            for each in schema["anyOf"]
        ]
        # The schema that fits the value best: of two, the one whose unknown names are deeper.
        yield from min(
            alternatives, key=lambda places: (len(places), -max(map(len, places), default=0))
        )


def _resolve(schema: Schema, schemas: dict[str, Schema]) -> Schema:
    """Return the schema to which a schema refers. A filter in a body has only the title of it."""
    name = schema["$ref"].rpartition("/")[2] if "$ref" in schema else schema.get("title", "")
    return schema if "properties" in schema else schemas.get(name, schema)


def unknown_names_error(places: Iterable[Place]) -> DomainError:
    """Return the ``request.unknown`` that names these places."""
    problems = tuple(
        FieldProblem(format_place(place), "unknown", "is not known here") for place in places
    )
    names = ", ".join(problem.field for problem in problems)
    return requests.REQUEST_UNKNOWN(names=names, problems=problems)


def refuse_options(request: Request, names: Iterable[str]) -> None:
    """Refuse names in a body that are parameters of the route's query.

    If such a name were ignored, a dry run would change data, and an image would be stored without
    the encryption that its owner asked for. Raises ``request.option_in_body``.
    """
    route: APIRoute = request.scope["route"]
    options = {each.alias for each in route.dependant.query_params}
    for name in names:
        if name in options:
            raise requests.OPTION_IN_BODY(name=name)


def refuse_parts(request: Request, names: Iterable[str]) -> None:
    """Refuse the parts of a form, except its file: options, and in strict handling all others.

    Raises ``request.option_in_body``, ``request.unknown``.
    """
    others = [name for name in names if name != "file"]
    refuse_options(request, others)
    if others and preference_of(request).is_strict:
        raise unknown_names_error(("body", name) for name in others[:MAX_NAMED])
