from collections.abc import Iterator

import pytest

from devstack.harness.stack import Stack
from tests.support.lists.acting import ListActions


@pytest.fixture
def acting(stack: Stack) -> Iterator[ListActions]:
    with stack.client() as client:
        yield ListActions(stack, client)
