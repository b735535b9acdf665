from collections.abc import Iterator

import pytest

from tests.support.mail.server import (
    Sandbox,
    ScriptedSmtpServer,
    running_sandbox,
    running_scripted_server,
)


@pytest.fixture(scope="module")
def mail_sandbox() -> Iterator[Sandbox]:
    """The SMTP server of the sandbox, whose mailbox is empty when a test module starts."""
    with running_sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def scripted_server() -> Iterator[ScriptedSmtpServer]:
    with running_scripted_server(ScriptedSmtpServer()) as server:
        yield server
