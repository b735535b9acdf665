import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from devstack.harness.stack import Owner, Stack
from tests.support.clients.building import build_python
from tests.support.clients.faulty_network import faulty_network


@pytest.fixture(scope="session")
def python_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_python(tmp_path_factory.mktemp("clients"))


@pytest.fixture(scope="session")
def package(python_project: Path) -> ModuleType:
    sys.path.insert(0, str(python_project / "src"))
    return importlib.import_module("pressroom_client")


@pytest.fixture
def pressroom(package: ModuleType, stack: Stack, owner: Owner) -> Iterator[Any]:
    with package.Pressroom(stack.api_url, owner.key) as client:
        yield client


@pytest.fixture(scope="session")
def network_url(stack: Stack) -> Iterator[str]:
    """The URL of a proxy for the API that simulates network faults.

    The path in a client's base URL selects the faults that the client meets.
    """
    with faulty_network(stack.api_port) as url:
        yield url
