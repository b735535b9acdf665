import inspect
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, iter_route_contexts

from api.app import create_app
from api.openapi import access_of, api_routes
from cli.openapi_document import main
from core.scopes import Scope
from core.settings import Settings
from tests.openapi import openapi_document
from tests.stack import Stack

OPERATIONS = {
    "POST /attachments": "attachment",
    "GET /attachments": "attachment",
    "GET /attachments/{hash_id}": "attachment",
    "PATCH /attachments/{hash_id}": "attachment",
    "DELETE /attachments/{hash_id}": "attachment",
    "GET /media/{filename}": None,
    "POST /lists": "subscription.full",
    "GET /lists": "subscription.read",
    "GET /lists/{list_id}": "subscription.read",
    "PATCH /lists/{list_id}": "subscription.full",
    "DELETE /lists/{list_id}": "subscription.full",
    "GET /lists/{list_id}/stats": "subscription.read",
    "GET /lists/{list_id}/embed": "subscription.read",
    "GET /lists/{list_id}/previews/{part}": "subscription.read",
    "POST /lists/{list_id}/previews/{part}": "subscription.full",
    "GET /lists/{list_id}/subscriptions": "subscription.read",
    "POST /lists/{list_id}/members/search": "subscription.read",
    "GET /lists/{list_id}/members/{user_id}": "subscription.read",
    "PATCH /lists/{list_id}/members/{user_id}": "subscription.full",
    "PUT /lists/{list_id}/members/{user_id}": "subscription.full",
    "GET /lists/{list_id}/members/{user_id}/history": "subscription.read",
    "GET /lists/{list_id}/tags": "subscription.read",
    "PATCH /lists/{list_id}/tags/{tag_id}": "subscription.full",
    "DELETE /lists/{list_id}/tags/{tag_id}": "subscription.full",
    "POST /fields": "subscription.full",
    "GET /fields": "subscription.read",
    "PATCH /fields/{field_id}": "subscription.full",
    "DELETE /fields/{field_id}": "subscription.full",
    "GET /lists/{list_id}/members/{user_id}/consent": "subscription.read",
    "POST /subscriptions/{list_id}": None,
    "POST /subscriptions/{list_id}/no-challenge": "subscription.full",
    "GET /subscriptions/{list_id}/rel": "subscription.read",
    "GET /subscriptions": "subscription.read",
    "POST /subscriptions/{list_id}/members/{user_id}/transfer": "subscription.full",
    "DELETE /subscriptions/{list_id}/members/{user_id}": "subscription.full",
    "PUT /subscriptions/{list_id}/members/{user_id}/email": "subscription.full",
    "GET /subscriptions/{list_id}/members/{user_id}/subs": "subscription.read",
    "POST /auxilia/subscriptions/{list_id}/members/add": "subscription.full",
    "POST /lists/{list_id}/imports": "subscription.full",
    "GET /deny-list": "subscription.read",
    "PUT /deny-list": "subscription.full",
    "PATCH /deny-list": "subscription.full",
    "GET /imports": "subscription.read",
    "GET /imports/{import_id}": "subscription.read",
    "GET /imports/{import_id}/errors.csv": None,
    "DELETE /imports/{import_id}/members": "subscription.full",
    "POST /lists/{list_id}/exports": "`subscription.read` for members, `delivery` for the roster",
    "GET /exports/{export_id}/file.csv.gz": None,
    "GET /exports/{export_id}/file.jsonl.gz": None,
    "POST /lists/{list_id}/segments": "subscription.full",
    "GET /lists/{list_id}/segments": "subscription.read",
    "GET /lists/{list_id}/segments/{segment_id}": "subscription.read",
    "PATCH /lists/{list_id}/segments/{segment_id}": "subscription.full",
    "DELETE /lists/{list_id}/segments/{segment_id}": "subscription.full",
    "POST /lists/{list_id}/members/bulk": "subscription.full",
    "DELETE /bulk/{bulk_id}": "subscription.full",
    "GET /jobs": "of the job's kind",
    "GET /jobs/{job_id}": "of the job's kind",
    "DELETE /jobs/{job_id}": "of the job's kind",
    "POST /jobs/{job_id}/retry": "of the job's kind",
    "GET /jobs/{job_id}/events": "of the job's kind",
    "GET /events": "those of the events' types",
    "GET /users/me": "any credential",
    "GET /users/me/security-events": "without restriction",
    "GET /apikeys": "without restriction",
    "POST /apikeys": "without restriction",
    "DELETE /apikeys/{key_id}": "without restriction",
    "GET /grants": "without restriction",
    "DELETE /grants/{grant_id}": "without restriction",
    "POST /oauth/token": None,
    "POST /oauth/revoke": None,
    "POST /oauth/introspect": None,
    "GET /oauth/userinfo": "any credential",
    "GET /.well-known/oauth-authorization-server": None,
    "GET /auxilia/credits/balance": "credit.read",
    "GET /auxilia/credits/ledger": "credit.read",
    "POST /auxilia/credits/consume": "credit.full",
    "GET /auxilia/credits/low-balance": "credit.read",
    "PUT /auxilia/credits/low-balance": "credit.full",
    "POST /auxilia/credits/orders/claim": "credit.full",
    "POST /auxilia/credits/orders/status": None,
    "GET /auxilia/credits/orders": "credit.read",
    "GET /auxilia/credits/prices": None,
    "GET /auxilia/credits/orders/{order_id}": "credit.read",
    "POST /webhooks/stripe": None,
    "POST /webhook-endpoints": "webhook",
    "GET /webhook-endpoints": "webhook",
    "GET /webhook-endpoints/{endpoint_id}": "webhook",
    "PATCH /webhook-endpoints/{endpoint_id}": "webhook",
    "DELETE /webhook-endpoints/{endpoint_id}": "webhook",
    "POST /webhook-endpoints/{endpoint_id}/rotate": "webhook",
    "POST /webhook-endpoints/{endpoint_id}/test": "webhook",
    "POST /webhook-endpoints/{endpoint_id}/replay": "webhook",
    "GET /webhook-endpoints/{endpoint_id}/deliveries": "webhook",
    "POST /webhook-endpoints/{endpoint_id}/deliveries/{delivery_id}/resend": "webhook",
    "POST /composer/metadata": "composer",
    "POST /composer/generate-tweets": "composer",
    "GET /composer/{provider}/photos/search": "composer",
    "GET /composer/{provider}/photos/download_url": "composer",
    "GET /": None,
    "GET /healthz": None,
    "GET /readyz": None,
    "GET /metrics": None,
}

# The same operations under the platform's prefix, which the document leaves out.
ALIASES = {
    "/auxilia" + name.split(" ")[1]
    for name in OPERATIONS
    if name.split(" ")[1].startswith("/composer/")
}

KIND = "application/problem+json"

# Those that refuse as RFC 6749 says, but for limits on rates and bodies, which are everybody's.
BY_RFC = {"/oauth/token", "/oauth/revoke", "/oauth/introspect"}

# Those that a trace id opens too, and the scope of a login that does.
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


def undeclared(app: FastAPI) -> list[str]:
    return [f"{route.methods} {route.path}" for route in api_routes(app) if not access_of(route)]


def test_every_route_declares_what_it_asks_of_its_caller(app: FastAPI) -> None:
    assert undeclared(app) == []


def test_every_route_works_in_a_bulkhead_or_blocks_for_nothing(app: FastAPI) -> None:
    """FastAPI runs plain functions in threads that all routes share."""
    shared = [
        f"{route.path}: {call}"
        for route in api_routes(app)
        for call in _calls(route.dependant)
        if not any(map(inspect.iscoroutinefunction, (call, type(call).__call__)))
    ]
    assert shared == []


def _calls(dependant: Dependant) -> Iterator[object]:
    if dependant.call is not None:
        yield dependant.call
    for each in dependant.dependencies:
        yield from _calls(each)


def test_no_door_is_open_beside_the_declared_ones(app: FastAPI) -> None:
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


def test_document_has_every_operation_and_says_its_scope(
    operations: dict[str, dict[str, Any]],
) -> None:
    assert set(OPERATIONS) <= set(operations)
    for name, scope in OPERATIONS.items():
        operation = operations[name]
        if scope is None:
            assert operation["security"] == [], name
            continue
        assert scope in operation["description"].splitlines()[-1], name
        granted = [scope] if scope in set(Scope) else []
        by_key = [{way: granted} for way in ("bearer", "apiKey", "session")]
        # Nobody makes credentials with a token.
        by_token = [] if scope in {"without restriction", "webhook"} else [{"oauth2": granted}]
        assert operation["security"] == by_key + by_token, name
        assert "401" in operation["responses"]


def test_a_trace_id_opens_the_operations_of_a_mails_reader_and_no_other(
    app: FastAPI, operations: dict[str, dict[str, Any]]
) -> None:
    declared = {
        f"{method} {route.path_format}"
        for route in api_routes(app)
        for method in route.methods or ()
        if (access := access_of(route)) and access.or_trace
    }
    assert declared == set(BY_TRACE)
    for name, scope in BY_TRACE.items():
        operation = operations[name]
        # Nothing, or one of the credentials.
        assert operation["security"] == [
            {},
            {"bearer": [scope]},
            {"apiKey": [scope]},
            {"session": [scope]},
            {"oauth2": [scope]},
        ]
        said = operation["description"].splitlines()[-1]
        assert said == f"Credential: a trace id, or a login. Scope: `{scope}`."
        assert "trace_id" in {each.get("name") for each in operation["parameters"]}
        refused = operation["responses"]["403"]["content"]["application/problem+json"]["examples"]
        assert {"trace.invalid", "auth.insufficient_scope"} <= set(refused)
        assert "401" in operation["responses"]


def test_only_pages_for_people_are_not_in_the_document(app: FastAPI) -> None:
    left_out = {route.path for route in api_routes(app) if not route.include_in_schema}
    # tests/security/console_calls.py has the pages of the console.
    assert {path for path in left_out if path and not path.startswith("/console")} == {
        *("/unsubscribe", "/confirm", "/report", "/subscribed", "/topups/return"),
        *("/s/{slug}", "/s/{slug}/report", "/preferences", "/preferences/ask", "/preferences/open"),
        *("/preferences/end", "/preferences/answers", "/preferences/data"),
        *("/preferences/data.json", "/preferences/erase"),
        *("/login", "/logout", "/register", "/register/confirm"),
        *("/password/forgotten", "/password/new"),
        *("/account", "/account/password", "/account/email", "/account/email/confirm"),
        "/account/email/undo",
        *("/account/keys", "/account/keys/new"),
        *("/account/sessions", "/account/events", "/account/grants", "/oauth/authorize"),
        "/account/imports",
        *("/login/factor", "/login/passkey", "/account/factors", "/account/factors/app"),
        *("/account/factors/passkey", "/account/factors/codes"),
        # And what programs find by its fixed address alone.
        *("/.well-known/security.txt", "/.well-known/change-password"),
        *ALIASES,
    }


def test_an_operation_is_called_as_the_function_of_its_route(
    app: FastAPI, operations: dict[str, dict[str, Any]]
) -> None:
    names = [
        operations[f"{method} {route.path_format}"]["operationId"]
        for route in api_routes(app)
        if route.include_in_schema
        for method in route.methods or ()
    ]
    assert sorted(names) == sorted(each["operationId"] for each in operations.values())
    assert len(set(names)) == len(names)
    for name in names:
        # A verb and what it is done to, such as `upload_attachment`.
        assert re.fullmatch(r"(un)?subscribe|[a-z]+(_[a-z]+)+", name), name


def test_document_is_valid(document: dict[str, Any]) -> None:
    # It reads its own schemas when it is imported, for as long as the whole application takes.
    from openapi_spec_validator import validate

    validate(document)


def test_refusals_are_problems_with_examples(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for status, response in operation["responses"].items():
                if status < "400" or path == "/readyz":
                    continue
                kinds = set(response["content"])
                # The one operation that forms of browsers reach too answers them by pages.
                kinds -= {"text/html"} if path == "/subscriptions/{list_id}" else set()
                by_rfc = {"application/json"} if path in BY_RFC and status in "400 401" else set()
                assert kinds - by_rfc == kinds & {KIND}, (method, path, status)
                assert by_rfc <= kinds
                for code, example in response["content"].get(KIND, {}).get("examples", {}).items():
                    sample = shown(document, example)
                    assert sample["code"] == code
                    assert sample["status"] == int(status)


def test_no_operation_announces_the_frameworks_errors(document: dict[str, Any]) -> None:
    assert "HTTPValidationError" not in json.dumps(document)
    without_body = document["paths"]["/jobs"]["get"]["responses"]
    assert "422" not in without_body
    assert "400" in without_body


def shown(document: dict[str, Any], example: dict[str, Any]) -> dict[str, Any]:
    """The problem of an example, or of the one to which it refers."""
    if "$ref" in example:
        example = document["components"]["examples"][example["$ref"].rpartition("/")[2]]
    return dict(example["value"])


def test_no_setting_changes_the_document_that_the_command_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], document: dict[str, Any]
) -> None:
    monkeypatch.setenv("PRESSROOM_API_KEY_HEADER", "X-Other")
    main([])
    assert json.loads(capsys.readouterr().out) == document


def test_api_serves_the_document_with_its_own_address(
    stack: Stack, stranger: httpx.Client, document: dict[str, Any]
) -> None:
    reply = stranger.get("/openapi.json")
    assert reply.status_code == 200
    served, base = reply.json(), stack.settings().public_base
    assert [each["url"] for each in served["servers"]] == [base]
    flow = served["components"]["securitySchemes"]["oauth2"]["flows"]["authorizationCode"]
    assert flow["authorizationUrl"] == f"{base}/oauth/authorize"
    assert flow["tokenUrl"] == flow["refreshUrl"] == f"{base}/oauth/token"
    assert served["paths"] == document["paths"]
    assert served["components"]["schemas"] == document["components"]["schemas"]
