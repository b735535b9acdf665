"""Tests of the OpenAPI document: its description and examples of each operation."""

import inspect
import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from fastapi import APIRouter, FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, iter_route_contexts

from api.app import create_app
from api.auth.requirements import LOGIN, PUBLIC, TraceAccess
from api.openapi import find_access, list_api_routes
from api.route_classes import ThreadedRoute
from cli.openapi_document import main
from core.settings import Settings
from devstack.harness.stack import Stack
from tests.support.http.openapi import openapi_document

KIND = "application/problem+json"

# Routes whose errors have the format of RFC 6749, except for rate limits and body limits.
BY_RFC = {"/oauth/token", "/oauth/revoke", "/oauth/introspect"}

# Maps each operation that accepts a trace id to the scope that other credentials need.
BY_TRACE = {
    "DELETE /subscriptions/{list_id}": "subscription.full",
    "PUT /subscriptions/{list_id}/email": "subscription.full",
    "POST /subscriptions/{list_id}/delete": "subscription.full",
    "GET /subscriptions/opponent": "subscription.read",
}


@pytest.fixture(scope="module")
def app() -> FastAPI:
    return create_app(Settings.model_construct())


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return openapi_document()


def test_every_api_route_declares_its_required_access(app: FastAPI) -> None:
    assert [route.path for route in list_api_routes(app) if not find_access(route)] == []
    # Only these classes of routes authorise a request.
    assert all(isinstance(route.original_route, ThreadedRoute) for route in list_api_routes(app))


@pytest.mark.parametrize("accesses", [[], [PUBLIC, LOGIN]])
def test_route_without_exactly_one_access_declaration_prevents_the_start(
    accesses: list[Any],
) -> None:
    router = APIRouter(route_class=ThreadedRoute)
    with pytest.raises(ValueError, match="values to unpack"):
        router.get("/door", dependencies=accesses)(lambda: None)


def test_every_route_and_dependency_is_a_coroutine(app: FastAPI) -> None:
    """Every route is a coroutine, because FastAPI runs plain functions in shared threads."""
    shared = [
        f"{route.path}: {call}"
        for route in list_api_routes(app)
        for call in _calls(route.dependant)
        if not any(map(inspect.iscoroutinefunction, (call, type(call).__call__)))
    ]
    assert shared == []


def _calls(dependant: Dependant) -> Iterator[object]:
    if dependant.call is not None:
        yield dependant.call
    for each in dependant.dependencies:
        yield from _calls(each)


def test_application_has_no_undeclared_routes_except_documentation(app: FastAPI) -> None:
    others = [
        route.path
        for route in iter_route_contexts(app.routes)
        if not isinstance(route.original_route, APIRoute)
    ]
    documentation = ["/openapi.json", "/docs", "/redoc", "/docs"]
    assert others == documentation


@pytest.fixture(scope="module")
def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def test_every_operation_documents_its_credentials_and_scopes(
    operations: dict[str, dict[str, Any]],
) -> None:
    for name, operation in operations.items():
        ways = operation["security"]
        said = operation["description"]
        for scope in {each for way in ways for scopes in way.values() for each in scopes}:
            assert f"`{scope}`" in said, name
        assert ways == [] or "401" in operation["responses"], name


def test_every_operation_has_its_own_summary_instead_of_the_default_of_fastapi(
    operations: dict[str, dict[str, Any]],
) -> None:
    summaries = [operation["summary"] for operation in operations.values()]
    assert len(set(summaries)) == len(summaries)
    for name, operation in operations.items():
        default_summary = operation["operationId"].replace("_", " ").title()
        assert operation["summary"] != default_summary, name


def test_every_api_route_is_documented_except_aliases_and_well_known_paths(
    app: FastAPI, document: dict[str, Any]
) -> None:
    left_out = {
        route.path
        for route in list_api_routes(app)
        if not route.include_in_schema
        and route.endpoint.__module__.startswith(("api.routes", "api.sign_up.routes"))
    }
    # The composer's operations are also available under the platform's prefix.
    aliases = {f"/auxilia{path}" for path in document["paths"] if path.startswith("/composer/")}
    by_fixed_address = {"/health", "/.well-known/security.txt", "/.well-known/change-password"}
    assert left_out == aliases | by_fixed_address


def test_trace_id_is_accepted_only_by_four_documented_operations(
    app: FastAPI, operations: dict[str, dict[str, Any]]
) -> None:
    declared = {
        f"{method} {route.path_format}"
        for route in list_api_routes(app)
        for method in route.methods or ()
        if isinstance(find_access(route), TraceAccess)
    }
    assert declared == set(BY_TRACE)
    for name, scope in BY_TRACE.items():
        nothing, *logins = operations[name]["security"]
        assert nothing == {}
        assert [list(each.values()) for each in logins] == [[[scope]]] * 4


def test_openapi_document_is_valid(document: dict[str, Any]) -> None:
    # Imported here because the import of the validator is slow.
    from openapi_spec_validator import validate

    validate(document)


def test_documented_errors_are_problem_responses_with_matching_examples(
    document: dict[str, Any],
) -> None:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for status, response in operation["responses"].items():
                if status < "400" or path == "/readyz":
                    continue
                kinds = set(response["content"])
                # Only this operation also accepts forms from browsers, and answers with HTML pages.
                kinds -= {"text/html"} if path == "/subscriptions/{list_id}" else set()
                by_rfc = {"application/json"} if path in BY_RFC and status in "400 401" else set()
                assert kinds - by_rfc == kinds & {KIND}, (method, path, status)
                assert by_rfc <= kinds
                for code, example in response["content"].get(KIND, {}).get("examples", {}).items():
                    sample = value_of(document, example)
                    assert sample["code"] == code
                    assert sample["status"] == int(status)


def test_printed_openapi_document_does_not_depend_on_settings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], document: dict[str, Any]
) -> None:
    monkeypatch.setenv("PRESSROOM_API_KEY_HEADER", "X-Other")
    main([])
    assert json.loads(capsys.readouterr().out) == document


def test_served_openapi_document_contains_the_url_of_the_installation(
    stack: Stack, stranger: httpx2.Client, document: dict[str, Any]
) -> None:
    reply = stranger.get("/openapi.json")
    assert reply.status_code == 200
    served = reply.json()
    base = stack.settings().public_base
    assert [each["url"] for each in served["servers"]] == [base]
    flow = served["components"]["securitySchemes"]["oauth2"]["flows"]["authorizationCode"]
    assert flow["authorizationUrl"] == f"{base}/oauth/authorize"
    assert flow["tokenUrl"] == flow["refreshUrl"] == f"{base}/oauth/token"
    assert served["paths"] == document["paths"]
    assert served["components"]["schemas"] == document["components"]["schemas"]


# The media types of responses that are files.
FILES = {"image/webp", "image/png", "image/jpeg", "application/gzip"}


@pytest.fixture(scope="module")
def contents(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Every request body and response in the OpenAPI document, with the name of its operation."""
    return [
        (f"{operation['operationId']} {place} {kind}", content)
        for operation in operations_of(document)
        for place, has in (
            ("body", operation.get("requestBody", {})),
            *operation["responses"].items(),
        )
        for kind, content in has.get("content", {}).items()
    ]


def operations_of(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for methods in (*document["paths"].values(), *document["webhooks"].values()):
        yield from methods.values()


def samples_of(document: dict[str, Any], content: dict[str, Any]) -> list[Any]:
    single = [content["example"]] if "example" in content else []
    return single + [value_of(document, each) for each in content.get("examples", {}).values()]


def value_of(document: dict[str, Any], example: dict[str, Any]) -> Any:
    """Return the value of an example, after following a reference to a shared example."""
    if "$ref" in example:
        example = document["components"]["examples"][example["$ref"].rpartition("/")[2]]
    return example["value"]


def test_every_documented_json_body_and_response_has_an_example(
    document: dict[str, Any], contents: list[tuple[str, dict[str, Any]]]
) -> None:
    without = [
        place
        for place, content in contents
        if not samples_of(document, content)
        and place.rpartition(" ")[2] not in FILES
        and not place.endswith(("multipart/form-data", "octet-stream", "text/html"))
    ]
    assert without == []


def test_every_documented_example_matches_its_schema(
    document: dict[str, Any], contents: list[tuple[str, dict[str, Any]]]
) -> None:
    # Import jsonschema here, because all test processes import this module. Importing jsonschema
    # takes more than a second, and only this test needs it.
    from jsonschema import Draft202012Validator, FormatChecker

    misfits = []
    for place, content in contents:
        # References in the schema point to the document's components.
        schema = {**content["schema"], "components": document["components"]}
        validator = Draft202012Validator(schema, format_checker=FormatChecker())
        for sample in samples_of(document, content):
            misfits += [f"{place}: {error.message}" for error in validator.iter_errors(sample)]
    assert misfits == []
