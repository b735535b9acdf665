from collections.abc import Iterator

import pytest

from devstack.harness.stack import Stack
from tests.support.lists.acting import Acting


@pytest.fixture
def acting(stack: Stack) -> Iterator[Acting]:
    with stack.client() as client:
        yield Acting(stack, client)
