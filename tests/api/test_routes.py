"""The last word of an operation's path that names a module names the module of the operation."""

import inspect
from pathlib import Path

import pytest

import api
from api.app import create_app
from api.openapi import list_api_routes
from core.settings import Settings

pytestmark = pytest.mark.tier("check")

API = Path(api.__file__).parent
ROUTES = API / "routes"
# The one operation outside of api/routes: api/sign_up has everything about a sign-up.
SIGN_UP = "POST /subscriptions/{list_id}"
# Words of a path that are no module's name, and paths whose last such word misleads.
EXCEPTIONS = {
    "/lists/{list_id}/subscriptions": "members",
    "/imports/{import_id}/members": "imports",
    "/jobs/{job_id}/events": "jobs",
    "/senders/{sender_id}/events": "senders",
    "/bulk/": "members",
    "/tags": "fields",
    "/deny-list": "lists",
    "/webhook-endpoints": "webhook_endpoints",
    "/apikeys": "users",
    "/grants": "users",
    "/.well-known/oauth-authorization-server": "oauth",
    "/healthz": "operations",
    "/readyz": "operations",
    "/metrics": "operations",
}


def module_of(method: str, path: str) -> str:
    if f"{method} {path}" == SIGN_UP:
        return "sign_up"
    for part, module in EXCEPTIONS.items():
        if part in path:
            return module
    modules = {each.stem for each in ROUTES.iterdir()}
    return [word for word in path.split("/") if word in modules][-1]


def test_last_word_of_each_route_path_names_the_module_of_its_handler() -> None:
    elsewhere = []
    for route in list_api_routes(create_app(Settings.model_construct())):
        assert route.endpoint
        assert route.path
        if not route.include_in_schema or route.path == "/":
            continue
        file = Path(inspect.getfile(inspect.unwrap(route.endpoint)))
        module = file.relative_to(ROUTES if file.is_relative_to(ROUTES) else API).parts[0]
        elsewhere += [
            (method, route.path, str(file))
            for method in route.methods or ()
            if module.removesuffix(".py") != module_of(method, route.path)
        ]
    assert elsewhere == []


def test_handlers_with_a_transaction_run_in_a_thread() -> None:
    for route in list_api_routes(create_app(Settings.model_construct())):
        assert route.endpoint
        if "uow" in inspect.signature(route.endpoint).parameters:
            assert not inspect.iscoroutinefunction(inspect.unwrap(route.endpoint)), route.path
