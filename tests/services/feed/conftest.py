from collections.abc import Callable

import pytest

from core.ids import random_id
from devstack.harness.stack import Stack


@pytest.fixture(scope="session")
def quiet(make_lasting_stack: Callable[[str], Stack]) -> Stack:
    """A stack without processes: the tests themselves announce and read."""
    return make_lasting_stack("feed")


@pytest.fixture
def user_id() -> int:
    """An owner of whom the feed tells nothing yet."""
    return random_id()
