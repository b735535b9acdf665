import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts
from openapi_spec_validator import validate

from api.app import create_app
from api.dependencies import needs
from api.openapi import access_of, api_routes
from core.scopes import Scope
from core.settings import Settings

ROOT = Path(__file__).parents[2]
OPERATIONS = {
    "POST /attachments": "attachment",
    "GET /attachments": "attachment",
    "GET /attachments/{hash_id}": "attachment",
    "DELETE /attachments/{hash_id}": "attachment",
    "GET /media/{filename}": None,
    "GET /jobs": "of the job's kind",
    "GET /jobs/{job_id}": "of the job's kind",
    "DELETE /jobs/{job_id}": "of the job's kind",
    "POST /jobs/{job_id}/retry": "of the job's kind",
    "GET /jobs/{job_id}/events": "of the job's kind",
    "GET /users/me": "any credential",
    "GET /apikeys": "without restriction",
    "POST /apikeys": "without restriction",
    "DELETE /apikeys/{key_id}": "without restriction",
    "GET /healthz": None,
    "GET /readyz": None,
    "GET /metrics": None,
}


@pytest.fixture(scope="module")
def app() -> FastAPI:
    return create_app(Settings.model_construct())


@pytest.fixture(scope="module")
def document(app: FastAPI) -> dict[str, Any]:
    return app.openapi()


def undeclared(app: FastAPI) -> list[str]:
    return [f"{route.methods} {route.path}" for route in api_routes(app) if not access_of(route)]


def test_every_route_declares_what_it_asks_of_its_caller(app: FastAPI) -> None:
    assert undeclared(app) == []


def test_a_route_that_declares_nothing_or_two_things_would_be_found() -> None:
    app = create_app(Settings.model_construct())

    @app.get("/forgotten")
    async def forgotten() -> None: ...

    @app.get("/torn", dependencies=[needs(Scope.COMPOSER), needs(Scope.ATTACHMENT)])
    async def torn() -> None: ...

    assert undeclared(app) == ["{'GET'} /forgotten", "{'GET'} /torn"]


def test_no_door_is_open_beside_the_declared_ones(app: FastAPI) -> None:
    others = [
        route.path
        for route in iter_route_contexts(app.routes)
        if not isinstance(route.original_route, APIRoute)
    ]
    documentation = ["/openapi.json", "/docs", "/docs/oauth2-redirect", "/docs/fastapi", "/docs"]
    assert others == documentation


def test_document_has_every_operation_and_says_its_scope(document: dict[str, Any]) -> None:
    operations = {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert set(OPERATIONS) <= set(operations)
    for name, scope in OPERATIONS.items():
        operation = operations[name]
        if scope is None:
            assert operation["security"] == [], name
            continue
        assert scope in operation["description"].splitlines()[-1], name
        granted = [scope] if scope in set(Scope) else []
        assert operation["security"] == [{"bearer": granted}, {"apiKey": granted}]
        assert "401" in operation["responses"]


def test_every_route_with_access_says_so(app: FastAPI, document: dict[str, Any]) -> None:
    for route in api_routes(app):
        access = access_of(route)
        assert access
        if not route.include_in_schema:
            assert access.public
            continue
        for method in route.methods or ():
            operation = document["paths"][route.path_format][method.lower()]
            assert operation["security"] == [] if access.public else operation["security"]


def test_only_pages_for_people_are_not_in_the_document(app: FastAPI) -> None:
    left_out = {route.path for route in api_routes(app) if not route.include_in_schema}
    assert left_out == {"/unsubscribe", "/confirm"}


def test_document_is_valid(document: dict[str, Any]) -> None:
    validate(document)


def test_refusals_are_problems_with_examples(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for status, response in operation["responses"].items():
                if status < "400" or path == "/readyz":
                    continue
                [kind] = response["content"]
                assert kind == "application/problem+json", (method, path, status)
                for code, example in response["content"][kind]["examples"].items():
                    assert example["value"]["code"] == code
                    assert example["value"]["status"] == int(status)


def test_document_names_the_headers_of_an_upload(document: dict[str, Any]) -> None:
    parameters = document["paths"]["/attachments"]["post"]["parameters"]
    named = {(each["in"], each["name"]) for each in parameters}
    assert named == {("query", "encrypted"), ("header", "Prefer"), ("header", "Idempotency-Key")}


def test_no_operation_announces_the_frameworks_errors(document: dict[str, Any]) -> None:
    assert "HTTPValidationError" not in json.dumps(document)
    without_body = document["paths"]["/jobs"]["get"]["responses"]
    assert "422" not in without_body
    assert "400" in without_body


def test_committed_document_is_the_applications(document: dict[str, Any]) -> None:
    committed = json.loads((ROOT / "docs" / "openapi.json").read_text())
    assert committed == json.loads(json.dumps(document)), (
        "Write it anew: python -m api.openapi > docs/openapi.json"
    )


def test_document_is_written_without_any_setting() -> None:
    written = subprocess.run(
        [sys.executable, "-m", "api.openapi"],
        cwd=ROOT,
        env={"PRESSROOM_API_KEY_HEADER": "X-Other"},
        capture_output=True,
        check=True,
        text=True,
    )
    assert written.stdout == (ROOT / "docs" / "openapi.json").read_text()


def test_api_serves_the_document(stranger: httpx.Client, document: dict[str, Any]) -> None:
    reply = stranger.get("/openapi.json")
    assert reply.status_code == 200
    assert reply.json() == json.loads(json.dumps(document))
