from collections.abc import Callable

import pytest

from devstack.harness.running import Running
from devstack.harness.stack import Owner, Stack
from devstack.supervisor.programs import answers


@pytest.fixture(scope="session")
def impatient(make_lasting_stack: Callable[[str], Stack]) -> tuple[Stack, Running]:
    """An API with little patience and small bounds, and what works for it."""
    stack = make_lasting_stack("impatient")
    stack.start_worker("media")
    port = stack.api_port
    api = stack.start(
        "api",
        str(port),
        module="tests.support.probe.impatient_api",
        ready=lambda: answers(port, "/healthz"),
        forks=True,
    )
    return stack, api


@pytest.fixture
def patience_owner(impatient: tuple[Stack, Running]) -> Owner:
    return impatient[0].new_owner()
