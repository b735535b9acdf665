"""The last word of an operation's path that names a module names the module of the operation."""

import inspect
from pathlib import Path

import pytest

import api
from api.app import create_app
from api.openapi import api_routes
from core.settings import Settings

pytestmark = pytest.mark.check

ROUTES = Path(api.__file__).parent / "routes"
# Words of a path that are no module's name, and paths whose last such word misleads.
EXCEPTIONS = {
    "/lists/{list_id}/subscriptions": "members",
    "/imports/{import_id}/members": "imports",
    "/jobs/{job_id}/events": "jobs",
    "/bulk/": "members",
    "/tags": "fields",
    "/deny-list": "lists",
    "/webhook-endpoints": "webhooks",
    "/apikeys": "users",
    "/grants": "users",
    "/.well-known/oauth-authorization-server": "oauth",
    "/healthz": "operations",
    "/readyz": "operations",
    "/metrics": "operations",
}


def module_of(path: str) -> str:
    for part, module in EXCEPTIONS.items():
        if part in path:
            return module
    modules = {each.stem for each in ROUTES.iterdir()}
    return [word for word in path.split("/") if word in modules][-1]


def test_the_url_of_an_operation_names_its_module() -> None:
    elsewhere = []
    for route in api_routes(create_app(Settings.model_construct())):
        assert route.endpoint
        assert route.path
        if not route.include_in_schema or route.path == "/":
            continue
        file = Path(inspect.getfile(inspect.unwrap(route.endpoint))).relative_to(ROUTES)
        if file.parts[0].removesuffix(".py") != module_of(route.path):
            elsewhere.append((route.path, str(file)))
    assert elsewhere == []


def test_every_transaction_of_a_handler_is_committed_in_a_thread() -> None:
    for route in api_routes(create_app(Settings.model_construct())):
        assert route.endpoint
        if "uow" in inspect.signature(route.endpoint).parameters:
            assert not inspect.iscoroutinefunction(inspect.unwrap(route.endpoint)), route.path
