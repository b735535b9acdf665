"""The OpenAPI document: FastAPI's, with what it can't know (credentials, scopes, refusals)."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from api.dependencies import Access
from api.schemas.envelope import FieldProblemSchema, Problem

DESCRIPTION = """
The back end of a newsletter and publishing platform.

Every successful answer is `{"data": …, "ts": <Unix seconds>}`; every refusal is
`application/problem+json` with a stable `code`. Send an API key as `Authorization: Bearer prk_…` or
in `X-API-Key`. Slow work is done by workers while your call waits; `Prefer: respond-async` or
`Prefer: wait=N` (seconds, at most 60) says for how long.
"""

_REF = "#/components/schemas/Problem"

Responses = dict[int | str, dict[str, Any]]


def refuses(*refusals: tuple[int, str, str]) -> Responses:
    """The ``responses`` of a route that refuses with these statuses, codes and reasons."""
    responses: Responses = {}
    for status, code, reason in refusals:
        response = responses.setdefault(status, _problem_response(status))
        response["content"]["application/problem+json"]["examples"][code] = {
            "summary": reason,
            "value": _example(status, code, reason),
        }
    for response in responses.values():
        examples = response["content"]["application/problem+json"]["examples"]
        response["description"] = "; ".join(f"`{code}`" for code in examples)
    return responses


def document(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes
        )
        components = schema.setdefault("components", {})
        _add_problem_schemas(components.setdefault("schemas", {}))
        components["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
        for route in app.routes:
            if isinstance(route, APIRoute) and route.include_in_schema:
                _complete(schema["paths"][route.path_format], route)
        app.openapi_schema = schema
    return app.openapi_schema


def access_of(route: APIRoute) -> Access | None:
    """What the route declares of its caller, or ``None`` where somebody forgot."""
    declared = [
        dependency.call
        for dependency in route.dependant.dependencies
        if isinstance(dependency.call, Access)
    ]
    return declared[0] if len(declared) == 1 else None


def _add_problem_schemas(schemas: dict[str, Any]) -> None:
    for model in (Problem, FieldProblemSchema):
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schema.pop("$defs", None)
        schemas[model.__name__] = schema
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)


def _complete(path: dict[str, Any], route: APIRoute) -> None:
    access = access_of(route)
    for method in route.methods or ():
        operation = path[method.lower()]
        _replace_validation_error(operation["responses"])
        if access is None or access.public:
            operation["security"] = []
            continue
        scopes = [access.scope.value] if access.scope else []
        operation["security"] = [{"bearer": scopes}, {"apiKey": scopes}]
        for status, response in refuses(*_access_refusals(access)).items():
            operation["responses"].setdefault(str(status), response)


def _access_refusals(access: Access) -> list[tuple[int, str, str]]:
    refusals = [
        (401, "auth.credentials_missing", "No credentials were sent."),
        (401, "auth.invalid_credentials", "The API key is unknown, mistyped or revoked."),
    ]
    if access.scope:
        refusals.append((403, "auth.insufficient_scope", f"This needs the scope {access.scope}."))
    if access.unrestricted:
        refusals.append((403, "auth.restricted_credential", "This needs an unrestricted API key."))
    return refusals


def _replace_validation_error(responses: dict[str, Any]) -> None:
    """FastAPI announces its own 422; ours are 400 for path and query, 422 for bodies."""
    content = responses.get("422", {}).get("content", {})
    if "application/json" in content:
        del responses["422"]
        for status, response in refuses(
            (400, "request.invalid", "query.limit: Input should be less than or equal to 1000"),
            (422, "body.invalid", "body.name: Input should be a valid string"),
        ).items():
            responses.setdefault(str(status), response)


def _problem_response(status: int) -> dict[str, Any]:
    return {
        "description": str(status),
        "content": {"application/problem+json": {"schema": {"$ref": _REF}, "examples": {}}},
    }


def _example(status: int, code: str, reason: str) -> dict[str, Any]:
    return {"status": status, "code": code, "detail": reason, "message": reason}
