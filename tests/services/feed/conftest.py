from collections.abc import Callable

import pytest

from core.ids import random_id
from devstack.harness.stack import Stack


@pytest.fixture(scope="session")
def stack_without_processes(make_lasting_stack: Callable[[str], Stack]) -> Stack:
    """A stack without API and workers, because the tests of the feed write and read its events."""
    return make_lasting_stack("feed")


@pytest.fixture
def feed_owner_id() -> int:
    """The id of an owner who has no events in the event feed."""
    return random_id()
