"""The OpenAPI document: FastAPI's, with what it can't know (credentials, scopes, refusals)."""

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, RouteContext, iter_route_contexts

from api.access.requirements import Access
from api.bodies.json_route import JsonRoute
from api.errors import STATUS_OF
from api.middleware.body_limits import body_limit_of
from api.schemas.envelope import FieldProblemSchema, Problem
from api.schemas.subscriptions import NewSubscription, SignUpForm
from core.refusals.refusal import Refusal
from core.refusals.requests import (
    BODY_INVALID,
    BODY_NOT_JSON,
    BODY_TOO_MANY_UNFINISHED,
    CURSOR_INVALID,
    RATE_LIMITED,
    REQUEST_INVALID,
    REQUEST_UNKNOWN,
)
from core.scopes import EXPLANATIONS
from services.oauth.endpoints import AUTHORIZE_PATH, TOKEN_PATH

DESCRIPTION = """
The back end of a newsletter and publishing platform.

Every successful answer is `{"data": …, "ts": <Unix seconds>}`; every refusal is
`application/problem+json` with a stable `code`; `/oauth/*` answers as the RFCs of OAuth say. Send
an API key or an access token as `Authorization: Bearer …`, or the key in `X-API-Key`; a browser
with a session needs neither. Workers do slow work while your call waits; `Prefer: respond-async`
or `Prefer: wait=N` (seconds, at most 60) says for how long.
"""

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
SESSION_SCHEME = {
    "type": "apiKey",
    "in": "cookie",
    "name": "__Host-pressroom_session",
    "description": "Of a user who logged in on the page /login; it may do what its user may. "
    "Writes need our own Origin or the header X-CSRF-Token too. Where the API is reached over http "
    "on its own machine, the name has no __Host-.",
}
OAUTH2_SCHEME = {
    "type": "oauth2",
    "description": "Authorization code with PKCE (S256), always.",
    "flows": {
        "authorizationCode": {
            # Relative to the API's own address.
            "authorizationUrl": AUTHORIZE_PATH,
            "tokenUrl": TOKEN_PATH,
            "refreshUrl": TOKEN_PATH,
            "scopes": {str(scope): explanation for scope, explanation in EXPLANATIONS.items()},
        }
    },
}
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
        status, sentence = STATUS_OF[refusal.kind], refusal.documented
        problem = {"schema": {"$ref": _REF}, "examples": {}}
        new = {"description": "", "content": {"application/problem+json": problem}}
        response = responses.setdefault(str(status), new)
        examples = response["content"]["application/problem+json"]["examples"]
        examples[refusal.code] = {
            "summary": sentence,
            "value": {
                "status": status,
                "code": refusal.code,
                "detail": sentence,
                "message": sentence,
            },
        }
        response["description"] = "; ".join(f"`{code}`" for code in examples)


def document(app: FastAPI, *, api_key_header: str) -> dict[str, Any]:
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title,
            version=app.version,
            description=DESCRIPTION.replace("X-API-Key", api_key_header),
            routes=app.routes,
        )
        components = schema["components"]
        for unused in ("HTTPValidationError", "ValidationError"):
            components["schemas"].pop(unused, None)
        for model in (Problem, FieldProblemSchema, NewSubscription, SignUpForm):
            defined = model.model_json_schema(ref_template="#/components/schemas/{model}")
            defined.pop("$defs", None)
            components["schemas"][model.__name__] = defined
        components["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "apiKey": {"type": "apiKey", "in": "header", "name": api_key_header},
            "session": SESSION_SCHEME,
            "oauth2": OAUTH2_SCHEME,
        }
        for route in api_routes(app):
            if route.include_in_schema:
                _complete(schema["paths"][route.path_format], route)
        app.openapi_schema = schema
    return app.openapi_schema


def api_routes(app: FastAPI) -> Iterator[RouteContext]:
    """Every operation of the application, with those of included routers."""
    for route in iter_route_contexts(app.routes):
        if isinstance(route.original_route, APIRoute):
            yield route


def access_of(route: RouteContext) -> Access | None:
    """The access that the route declares; ``None`` if it declares none, or several."""
    declared = [
        dependency.call
        for dependency in route.dependant.dependencies
        if isinstance(dependency.call, Access)
    ]
    return declared[0] if len(declared) == 1 else None


def _complete(path: dict[str, Any], route: RouteContext) -> None:
    access = access_of(route)
    for method in route.methods or ():
        operation = path[method.lower()]
        responses = operation["responses"]
        # FastAPI's own 422: ours are 400 for path and query, and 422 for JSON bodies.
        if "application/json" in responses.get("422", {}).get("content", {}):
            del responses["422"]
        if "parameters" in operation:
            _add_refusals(responses, REQUEST_INVALID)
        if "application/json" in operation.get("requestBody", {}).get("content", {}):
            _add_refusals(responses, BODY_NOT_JSON, BODY_INVALID)
        if isinstance(route.original_route, JsonRoute):
            _add_refusals(responses, REQUEST_UNKNOWN)
        if "requestBody" in operation:
            limit = body_limit_of(route.path_format or "")
            _add_refusals(responses, limit.refusal, BODY_TOO_MANY_UNFINISHED)
        if access and access.stranger:
            _add_refusals(responses, RATE_LIMITED)
        operation["security"] = access.security if access else []
        if access and not access.public:
            operation["description"] += f"\n\n{access.credential}"
            _add_refusals(responses, *access.refusals)
