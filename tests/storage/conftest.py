from collections.abc import Callable

import pytest

from devstack.harness.stack import Stack
from devstack.supervisor.environment import build_path


@pytest.fixture(scope="session")
def idle_stack(make_lasting_stack: Callable[[str], Stack]) -> Stack:
    """A test stack without running processes, whose database has all tables."""
    return make_lasting_stack("idle")


@pytest.fixture
def postgres_tools_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set PATH so that Pressroom finds the programs of the embedded Postgres, such as pg_dump."""
    monkeypatch.setenv("PATH", build_path())
