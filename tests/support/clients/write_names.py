"""Adds the names of the Python client to ``tests/clients/python_names.txt``.

A maintainer runs ``python -m tests.support.clients.write_names`` once per release. Each line of
``python_names.txt`` has a module, and a name that a released client exports from the module. The
name of a method begins with the method's class, as in ``Pressroom.lists.create``. Tests check that
the current client exports all names in ``python_names.txt``.
"""

import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

from clients.generator.operations import read_operations
from clients.generator.resources import group_operations
from tests.support.clients.building import build_python
from tests.support.http.openapi import openapi_document

NAMES_FILE = Path(__file__).parents[2] / "clients" / "python_names.txt"
CLIENTS = ("Pressroom", "AsyncPressroom")
_TYPES_MODULE = "pressroom_client.generated.types"


def main() -> None:
    with TemporaryDirectory() as folder:
        sys.path.insert(0, str(build_python(Path(folder)) / "src"))
        exported = set(_list_names(importlib.import_module("pressroom_client")))
        released = set(NAMES_FILE.read_text().splitlines())
    NAMES_FILE.write_text("".join(f"{line}\n" for line in sorted(released | exported)))


def _list_names(package: ModuleType) -> Iterator[str]:
    for name in package.__all__:
        yield f"{package.__name__} {name}"
        exported = getattr(package, name)
        if inspect.isclass(exported):
            members = (member for base in exported.__mro__ for member in _public_members(base))
            yield from (f"{package.__name__} {name}.{member}" for member in members)
    for client in CLIENTS:
        for method in group_operations(read_operations(openapi_document())):
            yield f"{package.__name__} {client}.{method.python_path}"
    types = importlib.import_module(_TYPES_MODULE)
    yield from (f"{_TYPES_MODULE} {name}" for name in _public_members(types))


def _public_members(owner: type | ModuleType) -> Iterator[str]:
    """Yield the public names that a class or module of the client defines itself."""
    name = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
    if not name.startswith("pressroom_client"):
        return
    for member, value in vars(owner).items():
        is_imported = isinstance(owner, ModuleType) and getattr(value, "__module__", name) != name
        if not member.startswith("_") and not isinstance(value, ModuleType) and not is_imported:
            yield member


if __name__ == "__main__":
    main()
