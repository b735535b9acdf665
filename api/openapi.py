"""The OpenAPI document: FastAPI's, with what it can't know (credentials, scopes, refusals)."""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, TypeVar

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, RouteContext, iter_route_contexts

from api.access.requirements import Access
from api.bodies.json_route import JsonRoute
from api.bodies.media_types import FORM
from api.contract import head, samples, shapes
from api.contract.deprecations import Deprecation
from api.contract.event_calls import event_calls
from api.errors import STATUS_OF
from api.middleware.body_limits import body_limit_of
from api.middleware.versions import VERSION_HEADER
from api.schemas.envelope import InvalidField, Problem
from api.schemas.filters import FILTER_SCHEMAS
from api.schemas.subscriptions import NewSubscription, SignUpForm
from core.refusals.refusal import Refusal
from core.refusals.requests import (
    BODY_NOT_JSON,
    BODY_TOO_MANY_UNFINISHED,
    CURSOR_INVALID,
    RATE_LIMITED,
    REQUEST_UNKNOWN,
    VERSION_UNKNOWN,
)
from core.settings import Settings
from services.feed.catalogue import CATALOGUE

T = TypeVar("T")

_REF = "#/components/schemas/Problem"


def _prefer(description: str, example: str) -> dict[str, Any]:
    schema = {"type": "string"}
    shown = {"description": description, "schema": schema, "example": example}
    return {"name": "Prefer", "in": "header", **shown}


# Dependencies read these headers from the whole request, so FastAPI can't know of them.
PREFER_PARAMETER = _prefer(
    "wait=N: seconds to wait, at most 60. respond-async: answer 202 at once.", "wait=30"
)
WAIT_PARAMETER = _prefer(
    "wait=N: seconds to wait at most. Work that takes longer is 504, and not done.", "wait=10"
)
IDEMPOTENCY_KEY_PARAMETER = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The same key and request within 24 hours have one effect and one answer.",
    "schema": {"type": "string", "minLength": 16, "maxLength": 255},
}

# Of a list whose answer is a bare array.
LINK_HEADER: dict[str, Any] = {
    "description": 'With rel="next": the next page; not there at the end',
    "schema": {"type": "string"},
}

Responses = dict[int | str, dict[str, Any]]


def json_request_body(
    properties: dict[str, Any], *, required: list[str], parameters: list[dict[str, Any]]
) -> dict[str, Any]:
    """``openapi_extra`` of a route that reads its JSON body itself."""
    schema = {"type": "object", "required": required, "properties": properties}
    return {
        "parameters": parameters,
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
    }


def file_of(*media_types: str) -> dict[str, Any]:
    """The ``content`` of an answer that is a file."""
    return {each: {"schema": {"type": "string", "format": "binary"}} for each in media_types}


def text_of(media_type: str, sample: str) -> dict[str, Any]:
    """The ``content`` of an answer that is a text, such as ``sample``."""
    return {media_type: {"schema": {"type": "string"}, "example": sample}}


def array_pages(*refusals: Refusal) -> Responses:
    """The ``responses`` of a route whose answer is a page of a bare array."""
    page = {"description": "Successful Response", "headers": {"Link": LINK_HEADER}}
    return {200: page, **refuses(CURSOR_INVALID, *refusals)}


def refuses(*refusals: Refusal) -> Responses:
    """The ``responses`` of a route that can answer with these refusals."""
    responses: Responses = {}
    _add_refusals(responses, *refusals)
    return responses


def _add_refusals(responses: Responses, *refusals: Refusal) -> None:
    """Document these refusals beside those that are there already for the same status."""
    for refusal in refusals:
        status = STATUS_OF[refusal.kind]
        problem = {"schema": {"$ref": _REF}, "examples": {}}
        response = responses.setdefault(str(status), {"description": ""})
        content = response.setdefault("content", {})
        # The operations of OAuth have an answer of their own for the same status.
        examples = content.setdefault("application/problem+json", problem)["examples"]
        sample = samples.problem_sample(refusal, status)
        examples[refusal.code] = {"summary": refusal.documented, "value": sample}
        if len(content) == 1:
            response["description"] = "; ".join(f"`{code}`" for code in examples)


def document(app: FastAPI, settings: Settings) -> dict[str, Any]:
    """The document of the deployment with these settings."""
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, routes=app.routes)
        components = made["components"]
        for model in (Problem, InvalidField, NewSubscription, SignUpForm):
            defined = model.model_json_schema(ref_template="#/components/schemas/{model}")
            defined.pop("$defs", None)
            components["schemas"][model.__name__] = defined
        made["webhooks"] = event_calls(CATALOGUE, components["schemas"])
        shapes.named_by_title(made)
        shapes.refer(made, FILTER_SCHEMAS)
        shapes.tidied(made)
        components["parameters"] = {"Version": head.VERSION_PARAMETER}
        components["headers"] = {"Version": head.VERSION_RESPONSE_HEADER}
        components["securitySchemes"] = head.security_schemes(settings)
        for route in api_routes(app):
            if route.include_in_schema:
                _complete(made, route)
        for unused in ("HTTPValidationError", "ValidationError"):
            components["schemas"].pop(unused, None)
        shapes.share_samples(made)
        first = {"openapi": made["openapi"], **head.head(settings)}
        app.openapi_schema = {**first, **made, **first}
    return app.openapi_schema


def api_routes(app: FastAPI) -> Iterator[RouteContext]:
    """Every operation of the application, with those of included routers."""
    for route in iter_route_contexts(app.routes):
        if isinstance(route.original_route, APIRoute):
            yield route


def access_of(route: RouteContext) -> Access | None:
    """The access that the route declares; ``None`` if it declares none, or several."""
    declared = _dependencies(route, Access)
    return declared[0] if len(declared) == 1 else None


def _dependencies(route: RouteContext, kind: type[T]) -> list[T]:
    calls = [each.call for each in route.dependant.dependencies]
    return [call for call in calls if isinstance(call, kind)]


def _complete(made: dict[str, Any], route: RouteContext) -> None:
    known = made["components"]["schemas"]
    for method in route.methods or ():
        operation = made["paths"][route.path_format][method.lower()]
        operation["summary"] = operation["operationId"].replace("_", " ").capitalize()
        _add_common_refusals(operation, route, known)
        _add_access(operation, access_of(route))
        for deprecation in _dependencies(route, Deprecation):
            operation["deprecated"] = True
            operation["description"] += f"\n\n{deprecation.sentence}"
        operation["parameters"] = [
            *_in_order_of_path(operation.get("parameters", []), route.path_format or ""),
            {"$ref": "#/components/parameters/Version"},
        ]
        operation["responses"] = dict(sorted(operation["responses"].items()))
        _add_pages_for_forms(operation)
        for status, response in operation["responses"].items():
            if int(status) < HTTPStatus.BAD_REQUEST:
                reference = {"$ref": "#/components/headers/Version"}
                response.setdefault("headers", {})[VERSION_HEADER] = reference
        samples.add_samples(operation, known)


def _add_pages_for_forms(operation: dict[str, Any]) -> None:
    """An operation that leads on from forms of browsers answers their mistakes by pages."""
    is_for_forms = FORM in operation.get("requestBody", {}).get("content", {})
    if is_for_forms and str(HTTPStatus.SEE_OTHER.value) in operation["responses"]:
        for status, response in operation["responses"].items():
            if int(status) >= HTTPStatus.BAD_REQUEST:
                response["content"]["text/html"] = {"schema": {"type": "string"}}


def _in_order_of_path(parameters: list[dict[str, Any]], path: str) -> list[dict[str, Any]]:
    """Those of the path first, as it has them: generated clients take them in this order."""

    def place(parameter: dict[str, Any]) -> int:
        found = path.find(f"{{{parameter.get('name')}}}")
        return found if found >= 0 else len(path)

    return sorted(parameters, key=place)


def _add_common_refusals(
    operation: dict[str, Any], route: RouteContext, known: dict[str, Any]
) -> None:
    responses = operation["responses"]
    # FastAPI's own 422: ours are 400 for path and query, and 422 for JSON bodies.
    if "application/json" in responses.get("422", {}).get("content", {}):
        del responses["422"]
    invalid = samples.invalid_parameter(operation.get("parameters", []), known)
    _add_refusals(responses, *([invalid] if invalid else []), VERSION_UNKNOWN)
    if isinstance(route.original_route, JsonRoute):
        _add_refusals(responses, REQUEST_UNKNOWN)
    body = operation.get("requestBody", {}).get("content", {})
    invalid = samples.invalid_body(body.get("application/json", {}).get("schema", {}), known)
    if invalid:
        _add_refusals(responses, BODY_NOT_JSON)
        named = responses.get("422", {}).get("content", {}).get("application/problem+json", {})
        # The route may say itself which field.
        if invalid.code not in named.get("examples", {}):
            _add_refusals(responses, invalid)
    if body:
        limit = body_limit_of(route.path_format or "")
        _add_refusals(responses, limit.refusal, BODY_TOO_MANY_UNFINISHED)


def _add_access(operation: dict[str, Any], access: Access | None) -> None:
    if access and access.stranger:
        _add_refusals(operation["responses"], RATE_LIMITED)
    operation["security"] = access.security if access else []
    if access and not access.public:
        operation["description"] += f"\n\n{access.credential}"
        _add_refusals(operation["responses"], *access.refusals)
