"""Tests of the OpenAPI document: its description and examples of each operation."""

import ast
import inspect
import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from fastapi import APIRouter, FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, iter_route_contexts

from api.app import create_app
from api.auth.requirements import LOGIN, PUBLIC, TraceAccess
from api.openapi.document import find_access, list_api_routes
from api.route_classes import ThreadedRoute
from cli.openapi_document import main
from core.settings import Settings
from devstack.harness.stack import Stack
from tests.support.http.openapi import openapi_document

PROBLEM_TYPE = "application/problem+json"

# Routes whose errors have the format of RFC 6749, except for rate limits and body limits.
RFC_6749_ROUTES = {"/oauth/token", "/oauth/revoke", "/oauth/introspect"}

# Maps each operation that accepts a trace id to the scope that other credentials need.
TRACE_ID_OPERATIONS = {
    "DELETE /subscriptions/{list_id}": "subscription.full",
    "PUT /subscriptions/{list_id}/email": "subscription.full",
    "PUT /subscriptions/{list_id}/engagement": "subscription.full",
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


@pytest.mark.parametrize("accesses", [[], [PUBLIC, LOGIN]])
def test_route_without_exactly_one_access_declaration_prevents_the_start(
    accesses: list[Any],
) -> None:
    router = APIRouter(route_class=ThreadedRoute)
    with pytest.raises(ValueError, match=r"test_openapi\.open_door must declare exactly one"):
        router.get("/door", dependencies=accesses)(open_door)


def test_route_whose_class_enforces_no_access_rule_prevents_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    router = APIRouter()
    router.get("/door", dependencies=[PUBLIC])(open_door)
    monkeypatch.setattr("api.app.ROUTERS", [router])
    with pytest.raises(TypeError, match=r"test_openapi\.open_door must have the route class"):
        create_app(Settings.model_construct())


async def open_door() -> None:
    """Handle the requests of a route that a test declares wrongly."""


def test_every_route_and_dependency_is_a_coroutine(app: FastAPI) -> None:
    """Every route is a coroutine, because FastAPI runs plain functions in shared threads."""
    plain_functions = [
        f"{route.path}: {call}"
        for route in list_api_routes(app)
        for call in _calls(route.dependant)
        if not any(map(inspect.iscoroutinefunction, (call, type(call).__call__)))
    ]
    assert plain_functions == []


def _calls(dependant: Dependant) -> Iterator[object]:
    if dependant.call is not None:
        yield dependant.call
    for dependency in dependant.dependencies:
        yield from _calls(dependency)


def test_application_has_no_undeclared_routes_except_documentation(app: FastAPI) -> None:
    other_routes = [
        route.path
        for route in iter_route_contexts(app.routes)
        if not isinstance(route.original_route, APIRoute)
    ]
    documentation = ["/openapi.json", "/llms.txt", "/docs/{chapter}.md", "/docs", "/redoc", "/docs"]
    assert other_routes == documentation


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
        credentials = operation["security"]
        description = operation["description"]
        for scope in {
            scope_name
            for credential in credentials
            for scopes in credential.values()
            for scope_name in scopes
        }:
            assert f"`{scope}`" in description, name
        assert credentials == [] or "401" in operation["responses"], name


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
    undocumented_paths = {
        route.path
        for route in list_api_routes(app)
        if not route.include_in_schema
        and route.endpoint.__module__.startswith(("api.routes", "api.sign_up.routes"))
    }
    # The composer's operations are also available under the platform's prefix.
    aliases = {f"/auxilia{path}" for path in document["paths"] if path.startswith("/composer/")}
    well_known_paths = {"/health", "/.well-known/security.txt", "/.well-known/change-password"}
    assert undocumented_paths == aliases | well_known_paths


def test_trace_id_is_accepted_only_by_five_documented_operations(
    app: FastAPI, operations: dict[str, dict[str, Any]]
) -> None:
    declared_operations = {
        f"{method} {route.path_format}"
        for route in list_api_routes(app)
        for method in route.methods or ()
        if isinstance(find_access(route), TraceAccess)
    }
    assert declared_operations == set(TRACE_ID_OPERATIONS)
    for name, scope in TRACE_ID_OPERATIONS.items():
        trace_id_access, *other_credentials = operations[name]["security"]
        assert trace_id_access == {}
        assert [list(credential.values()) for credential in other_credentials] == [[[scope]]] * 4


def test_openapi_document_is_valid(document: dict[str, Any]) -> None:
    # Import openapi_spec_validator in this function, because loading the module is slow.
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
                media_types = set(response["content"])
                # Only this operation also accepts forms from browsers, and answers with HTML pages.
                media_types -= {"text/html"} if path == "/subscriptions/{list_id}" else set()
                rfc_types = (
                    {"application/json"}
                    if path in RFC_6749_ROUTES and status in "400 401"
                    else set()
                )
                assert media_types - rfc_types == media_types & {PROBLEM_TYPE}, (
                    method,
                    path,
                    status,
                )
                assert rfc_types <= media_types
                for code, example in (
                    response["content"].get(PROBLEM_TYPE, {}).get("examples", {}).items()
                ):
                    value = resolve_example(document, example)
                    assert value["code"] == code
                    assert value["status"] == int(status)


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
    served_document = reply.json()
    base = stack.settings().public_base
    assert [server["url"] for server in served_document["servers"]] == [base]
    flow = served_document["components"]["securitySchemes"]["oauth2"]["flows"]["authorizationCode"]
    assert flow["authorizationUrl"] == f"{base}/oauth/authorize"
    assert flow["tokenUrl"] == flow["refreshUrl"] == f"{base}/oauth/token"
    assert served_document["paths"] == document["paths"]
    assert served_document["components"]["schemas"] == document["components"]["schemas"]


# The media types of responses that are files.
FILE_TYPES = {"image/webp", "image/png", "image/jpeg", "application/gzip"}


@pytest.fixture(scope="module")
def contents(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Every request body and response in the OpenAPI document, with the name of its operation."""
    return [
        (f"{operation['operationId']} {part} {media_type}", content)
        for operation in iterate_operations(document)
        for part, body in (
            ("body", operation.get("requestBody", {})),
            *operation["responses"].items(),
        )
        for media_type, content in body.get("content", {}).items()
    ]


def iterate_operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for methods in (*document["paths"].values(), *document["webhooks"].values()):
        yield from methods.values()


def collect_examples(document: dict[str, Any], content: dict[str, Any]) -> list[Any]:
    examples = [content["example"]] if "example" in content else []
    return examples + [
        resolve_example(document, each) for each in content.get("examples", {}).values()
    ]


def resolve_example(document: dict[str, Any], example: dict[str, Any]) -> Any:
    """Return the value of an example, after following a reference to a shared example."""
    if "$ref" in example:
        example = document["components"]["examples"][example["$ref"].rpartition("/")[2]]
    return example["value"]


def test_every_documented_json_body_and_response_has_an_example(
    document: dict[str, Any], contents: list[tuple[str, dict[str, Any]]]
) -> None:
    contents_without_example = [
        name
        for name, content in contents
        if not collect_examples(document, content)
        and name.rpartition(" ")[2] not in FILE_TYPES
        and not name.endswith(("multipart/form-data", "octet-stream", "text/html"))
    ]
    assert contents_without_example == []


def test_every_documented_example_matches_its_schema(
    document: dict[str, Any], contents: list[tuple[str, dict[str, Any]]]
) -> None:
    # Import jsonschema in this function, because only this test needs jsonschema. Importing
    # jsonschema at the top of the module would cost each test process more than a second.
    from jsonschema import Draft202012Validator, FormatChecker

    errors = []
    for name, content in contents:
        # References in the schema point to the document's components.
        schema = {**content["schema"], "components": document["components"]}
        validator = Draft202012Validator(schema, format_checker=FormatChecker())
        for example in collect_examples(document, content):
            errors += [f"{name}: {error.message}" for error in validator.iter_errors(example)]
    assert errors == []


def test_every_operation_has_a_described_tag_and_code_samples(
    document: dict[str, Any], operations: dict[str, dict[str, Any]]
) -> None:
    described_tags = {tag["name"] for tag in document["tags"] if tag["description"]}
    for name, operation in operations.items():
        assert set(operation["tags"]) <= described_tags, name
        path = name.split()[1]
        shell, *others = operation["x-codeSamples"]
        words = shlex.split(shell["source"])
        assert words[0] == "curl", name
        assert re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", path), words[-1].partition("?")[0][4:]), (
            name
        )
        for other in others:
            assert re.search(r"\b(client|pressroom)\.\w+\(", other["source"]), name
            if other["lang"] == "Python":
                ast.parse(other["source"])


def test_body_field_with_a_default_is_optional_for_every_generator(
    operations: dict[str, dict[str, Any]], document: dict[str, Any]
) -> None:
    new_list = document["components"]["schemas"]["NewList"]
    assert "default" not in new_list["properties"]["confirm_required"]
    assert "The default is true." in new_list["properties"]["confirm_required"]["description"]
    bodies = [each["requestBody"] for each in operations.values() if "requestBody" in each]
    assert '"default":' not in json.dumps([each["content"] for each in bodies])


def test_each_chapter_has_a_small_markdown_page_in_an_index_with_absolute_links(
    stack: Stack, stranger: httpx2.Client, document: dict[str, Any]
) -> None:
    index = stranger.get("/llms.txt")
    assert index.headers["content-type"] == "text/plain; charset=utf-8"
    links = re.findall(r"\]\(([^)]+)\)", index.text)
    assert all(link.startswith(stack.api_url) for link in links)
    pages = [stranger.get(link) for link in links if link.endswith(".md")]
    assert len(pages) == len(document["tags"])
    assert {page.status_code for page in pages} == {200}
    assert max(len(page.content) for page in pages) < 80_000
    text = "".join(page.text for page in pages)
    for path, methods in document["paths"].items():
        assert all(f"## {method.upper()} {path}\n" in text for method in methods), path
    assert stranger.get("/docs/nothing.md").status_code == 404
