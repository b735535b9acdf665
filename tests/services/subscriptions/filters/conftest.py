from collections.abc import Iterator

import pytest

from devstack.harness.stack import Stack
from tests.support.lists.random_list import RandomList, make_random_list
from tests.support.stack.maintenance import resting_maintenance


@pytest.fixture(scope="module")
def random_list(stack: Stack) -> Iterator[RandomList]:
    """A list with random members, whom the tests search with filters.

    Maintenance is paused, because it would remove members who have been pending for months.
    """
    with resting_maintenance(stack):
        yield make_random_list(stack)
