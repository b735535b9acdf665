from collections.abc import Callable

import pytest

from devstack.harness.stack import Stack


@pytest.fixture(scope="session")
def idle_stack(make_lasting_stack: Callable[[str], Stack]) -> Stack:
    """A database that no process of ours uses."""
    return make_lasting_stack("idle")
