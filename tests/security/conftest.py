from collections.abc import Iterator

import httpx2
import pytest

from devstack.harness.running import Running
from devstack.harness.stack import Owner, Stack
from devstack.supervisor.programs import is_responding
from tests.support.lists.subscribers import new_list
from tests.support.people.oauth import LOOPBACK, REDIRECT, Person, Program, log_in, register


@pytest.fixture(scope="module")
def impatient_api(empty_stack: Stack) -> tuple[Stack, Running]:
    """A test stack whose API has short timeouts and low limits, and the API's process."""
    stack = empty_stack
    stack.start_worker("media")
    port = stack.api_port
    api = stack.start(
        "api",
        str(port),
        module="tests.support.probe.impatient_api",
        ready=lambda: is_responding(port, "/healthz"),
        forks=True,
    )
    return stack, api


@pytest.fixture
def list_id(client: httpx2.Client) -> int:
    return int(new_list(client)["id"])


@pytest.fixture
def impatient_owner(impatient_api: tuple[Stack, Running]) -> Owner:
    return impatient_api[0].create_owner()


@pytest.fixture
def logged_in_owner(stack: Stack, owner: Owner) -> Iterator[Person]:
    logged_in_owner = log_in(stack, owner)
    yield logged_in_owner
    logged_in_owner.browser.close()


@pytest.fixture(scope="module")
def public_program(stack: Stack) -> Program:
    return register(stack, redirect_uris=(REDIRECT, LOOPBACK), public=True)
