from collections.abc import Iterator

import pytest

from tests.support.challenges.server import Server, serving


@pytest.fixture
def challenge_server() -> Iterator[Server]:
    """A test server in the role of the CAPTCHA provider, whose replies the test sets."""
    with serving() as server:
        yield server
