"""Tests that each operation is defined in the module that its path names.

If a path contains the names of several modules, the last name counts: the module ``exports`` must
define the operations of ``/lists/{list_id}/exports``.
"""

import inspect
from pathlib import Path

import pytest

import api
from api.app import create_app
from api.openapi.document import list_api_routes
from core.settings import Settings

pytestmark = pytest.mark.tier("check")

API_FOLDER = Path(api.__file__).parent
ROUTES_FOLDER = API_FOLDER / "routes"
# The only operation that isn't defined in api/routes, but in the package api/sign_up.
SIGN_UP_OPERATION = "POST /subscriptions/{list_id}"
# The exceptions to the rule that an API path names its module. Maps a part of an API path to the
# name of the module that defines the operations of the path.
MODULES_OF_PATH_PARTS = {
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


def find_expected_module(method: str, path: str) -> str:
    if f"{method} {path}" == SIGN_UP_OPERATION:
        return "sign_up"
    for part, module in MODULES_OF_PATH_PARTS.items():
        if part in path:
            return module
    modules = {file.stem for file in ROUTES_FOLDER.iterdir()}
    return [word for word in path.split("/") if word in modules][-1]


def test_last_word_of_each_route_path_names_the_module_of_its_handler() -> None:
    misplaced_handlers = []
    for route in list_api_routes(create_app(Settings.model_construct())):
        assert route.endpoint
        assert route.path
        if not route.include_in_schema or route.path == "/":
            continue
        file = Path(inspect.getfile(inspect.unwrap(route.endpoint)))
        module = file.relative_to(
            ROUTES_FOLDER if file.is_relative_to(ROUTES_FOLDER) else API_FOLDER
        ).parts[0]
        misplaced_handlers += [
            (method, route.path, str(file))
            for method in route.methods or ()
            if module.removesuffix(".py") != find_expected_module(method, route.path)
        ]
    assert misplaced_handlers == []


def test_handlers_with_a_transaction_run_in_a_thread() -> None:
    for route in list_api_routes(create_app(Settings.model_construct())):
        assert route.endpoint
        if "uow" in inspect.signature(route.endpoint).parameters:
            assert not inspect.iscoroutinefunction(inspect.unwrap(route.endpoint)), route.path
