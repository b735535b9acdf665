"""Tests of the names that the Python client exports, and of its methods."""

import gc
import importlib
import inspect
import warnings
import weakref
from functools import cache
from types import ModuleType
from typing import Any

import httpx2
import pytest

from clients.generator.operations import read_operations
from clients.generator.resources import DEPRECATED_OPERATIONS, group_operations
from tests.support.clients.write_names import CLIENTS, NAMES_FILE
from tests.support.http.openapi import openapi_document


def find_object(package: ModuleType, line: str) -> Any:
    """Return the object whose module and name are in a line of ``python_names.txt``.

    Raises ``AttributeError`` or ``ModuleNotFoundError`` if the client no longer has this object.
    """
    module, name = line.split()
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
        if part in CLIENTS and found is getattr(package, part):
            found = _create_client(found)
    return found


@cache
def _create_client(client_class: Any) -> Any:
    """Create a client, because resources such as ``lists`` are attributes of instances only."""
    return client_class("https://press.example.com")


def test_python_client_still_has_every_name_of_each_release(package: ModuleType) -> None:
    for line in NAMES_FILE.read_text().splitlines():
        find_object(package, line)


@pytest.mark.parametrize("client", ["Pressroom", "AsyncPressroom"])
def test_python_clients_group_methods_by_resource_and_keep_flat_aliases(
    package: ModuleType, client: str
) -> None:
    pressroom = getattr(package, client)("https://press.example.com")
    for method in group_operations(read_operations(openapi_document())):
        grouped = getattr(getattr(pressroom, method.resource), method.name)
        alias = getattr(pressroom, method.operation.id)
        assert inspect.signature(grouped) == inspect.signature(alias)
        assert alias.__doc__ == f"Call ``{method.python_path}``."
        assert grouped.__doc__


@pytest.mark.parametrize("client", ["Pressroom", "AsyncPressroom"])
def test_used_python_client_is_freed_without_garbage_collection(
    package: ModuleType, client: str
) -> None:
    pressroom = getattr(package, client)("https://press.example.com")
    assert pressroom.lists
    reference = weakref.ref(pressroom)
    gc.disable()
    try:
        del pressroom
        assert reference() is None
    finally:
        gc.enable()


def test_asynchronous_client_has_all_methods_of_the_synchronous_client(
    package: ModuleType,
) -> None:
    names = {name for name in dir(package.Pressroom) if not name.startswith("_")}
    assert names - {"close"} <= set(dir(package.AsyncPressroom))


def test_methods_that_release_2_removes_warn_and_have_no_resource(package: ModuleType) -> None:
    http = httpx2.Client(
        transport=httpx2.MockTransport(lambda _: httpx2.Response(200, json={"data": 0}))
    )
    pressroom = package.Pressroom("https://press.example.com", http=http)
    for name in DEPRECATED_OPERATIONS - {"receive_stripe_webhook"}:
        with pytest.warns(DeprecationWarning, match=f"Release 2.0 removes {name}"):
            getattr(pressroom, name)()
    with pytest.warns(DeprecationWarning, match="POST /webhooks/stripe"):
        pressroom.receive_stripe_webhook("signature", {})


@pytest.mark.parametrize("client", ["Pressroom", "AsyncPressroom"])
def test_python_clients_read_url_and_key_from_the_environment(
    package: ModuleType, monkeypatch: pytest.MonkeyPatch, client: str
) -> None:
    create_client = getattr(package, client)
    for name, value, missing in (
        (None, "", "Set PRESSROOM_URL and PRESSROOM_KEY, or"),
        ("PRESSROOM_URL", "https://press.example.com/", "Set PRESSROOM_KEY, or"),
    ):
        if name:
            monkeypatch.setenv(name, value)
        with pytest.raises(package.SettingMissing, match=missing):
            create_client()
    monkeypatch.setenv("PRESSROOM_KEY", "prk_key")
    create_client()
    monkeypatch.delenv("PRESSROOM_URL")
    with pytest.raises(package.SettingMissing, match="Set PRESSROOM_URL, or"):
        create_client()


def test_python_client_sends_the_key_of_the_environment_only_to_the_url_of_the_environment(
    package: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRESSROOM_URL", "https://press.example.com")
    monkeypatch.setenv("PRESSROOM_KEY", "prk_key")
    requests: list[Any] = []

    def respond(request: httpx2.Request) -> httpx2.Response:
        requests.append((request.url.host, request.headers.get("authorization")))
        return httpx2.Response(200, json={"data": {}})

    http = httpx2.Client(transport=httpx2.MockTransport(respond))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        package.Pressroom(http=http).account.read()
        package.Pressroom("https://other.example.com", http=http).account.read()
    assert requests == [
        ("press.example.com", "Bearer prk_key"),
        ("other.example.com", None),
    ]
