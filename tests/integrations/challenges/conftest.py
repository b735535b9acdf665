from collections.abc import Iterator

import pytest

from tests.support.challenges.server import Server, serving


@pytest.fixture
def server() -> Iterator[Server]:
    """A provider that says what the test tells it to."""
    with serving() as running:
        yield running
