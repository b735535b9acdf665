from collections.abc import Iterator

import pytest

from tests.support.challenges.server import ChallengeServer, running_challenge_server


@pytest.fixture
def challenge_server() -> Iterator[ChallengeServer]:
    """A test server in the role of the CAPTCHA provider, whose replies the test sets."""
    with running_challenge_server() as server:
        yield server
