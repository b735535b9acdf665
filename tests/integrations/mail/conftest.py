from collections.abc import Iterator

import pytest

from tests.support.mail.server import Sandbox, Talker, running_sandbox, running_talker


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """The sandbox's SMTP server, with a mailbox of its own."""
    with running_sandbox() as running:
        yield running


@pytest.fixture
def talker() -> Iterator[Talker]:
    """A server that says what the test tells it to."""
    with running_talker(Talker()) as running:
        yield running
