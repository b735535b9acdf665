from collections.abc import Iterator

import pytest

from tests.services.subscriptions.members.acting import Acting
from tests.stack import Stack


@pytest.fixture
def acting(stack: Stack) -> Iterator[Acting]:
    with stack.client() as client:
        yield Acting(stack, client)
