from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
import structlog
from hypothesis import HealthCheck, settings

from devstack.harness.embedded_services import Services, embedded_services
from devstack.harness.free_ports import free_port
from devstack.harness.opening import open_stack
from devstack.harness.stack import Owner, Stack
from devstack.sandbox.app import create_app
from devstack.supervisor.embedded.valkey import DATABASES
from tests.support.http.servers import serving_app
from tests.support.people.visiting import Visitor, new_account, new_visitor
from tests.support.sandbox.providers import PROVIDERS_WITH_FAULTS
from tests.support.sizes import FULL
from tests.support.stack.cheap_passwords import use_cheap_hashes
from tests.support.stack.disk_flushes import disable_disk_flushes
from tests.support.stack.programs import TEST_PROGRAMS

pytest_plugins = ["tests.support.stack.given_settings"]

# Hypothesis generates the same examples in every run, except in `make test-full SIZE=full`. The
# examples of Hypothesis have no time limit, because a busy machine may be slow.
settings.register_profile(
    "same examples",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("new examples", settings.get_profile("same examples"), derandomize=False)
settings.load_profile("new examples" if FULL else "same examples")

# Configure Pressroom's logs in the process that runs the tests. By default, structlog colours the
# source code in tracebacks, which takes a second for a deep traceback.
structlog.configure(
    processors=[
        structlog.processors.add_log_level,
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)

use_cheap_hashes()

MakeStack = Callable[[str], Stack]
OpenStacks = Callable[[], AbstractContextManager[MakeStack]]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pressroom")


@pytest.fixture(scope="session")
def services(home: Path) -> Iterator[Services]:
    """The Postgres, Valkey and S3 servers that all tests of a run share."""
    with embedded_services(home) as services:
        yield services


@pytest.fixture(scope="session")
def open_stacks(services: Services, home: Path, request: pytest.FixtureRequest) -> OpenStacks:
    """A context manager for a function that makes test stacks."""
    # Each test stack has its own Redis database. The numbers of these databases start at 1.
    numbers = iter(range(1, DATABASES))
    # The test runner forks the programs of a stack, because forking is faster than starting them.
    # Without the test runner, pytest starts each program of a stack as a new process.
    zygote = request.config.pluginmanager.get_plugin("zygote")
    programs = replace(TEST_PROGRAMS, fork=None if zygote is None else zygote.fork)
    # Each stack gets a copy of a migrated database, because copying is faster than migrating.
    with open_stack(services, home, "migrated", next(numbers), free_port()) as migrated:
        disable_disk_flushes(migrated)

    @contextmanager
    def factory() -> Iterator[MakeStack]:
        with ExitStack() as opened:

            def make(name: str) -> Stack:
                port = free_port()
                number = next(numbers)
                stack = open_stack(
                    services, home, name, number, port, like="migrated", programs=programs
                )
                return opened.enter_context(stack)

            yield make

    return factory


@pytest.fixture(scope="module")
def make_stack(open_stacks: OpenStacks) -> Iterator[MakeStack]:
    """A function that makes a test stack for one test module only.

    Tests that kill processes, flush Redis or count rows need a test stack of their own. The
    stacks of a test module are stopped at its end, because idle processes slow later tests down.
    """
    with open_stacks() as make:
        yield make


@pytest.fixture(scope="module")
def empty_stack(request: pytest.FixtureRequest, make_stack: MakeStack) -> Stack:
    """A test stack without running processes, for a single test module."""
    return make_stack(request.path.stem.removeprefix("test_").replace("_", "-"))


@pytest.fixture(scope="session")
def make_lasting_stack(open_stacks: OpenStacks) -> Iterator[MakeStack]:
    """A function that makes test stacks, each of which several test modules share."""
    with open_stacks() as make:
        yield make


@pytest.fixture(scope="session")
def stack(make_lasting_stack: MakeStack) -> Stack:
    """The stack for all tests of the public interface: a sandbox, an API process and workers."""
    shared_stack = make_lasting_stack("shared")
    short_queues = ("request", "photos", "money", "mail", "webhooks", "maintenance")
    with shared_stack.starting_together():
        shared_stack.start_sandbox()
        shared_stack.start_api()
        shared_stack.start_worker(*short_queues, concurrency=4)
        shared_stack.start_worker("media", "bulk", "export", concurrency=1)
    return shared_stack


@pytest.fixture(autouse=True)
def _forget_failed_logins(request: pytest.FixtureRequest) -> None:
    """Before each test, reset the failed logins per network, as all tests share one network."""
    if "stack" in request.fixturenames:
        stack: Stack = request.getfixturevalue("stack")
        stack.query(
            "DELETE FROM login_attempts s USING login_attempts a WHERE a.source = s.subject"
        )


@pytest.fixture(scope="session")
def sandbox() -> Iterator[str]:
    """The URL of a sandbox that imitates external providers, for tests that need no stack."""
    with serving_app(create_app(PROVIDERS_WITH_FAULTS)) as url:
        yield url


@pytest.fixture
def owner(stack: Stack) -> Owner:
    return stack.create_owner()


@pytest.fixture
def email(stack: Stack) -> str:
    return new_account(stack)


@pytest.fixture
def make_visitor(stack: Stack) -> Iterator[Callable[[], Visitor]]:
    with ExitStack() as opened:
        yield lambda: opened.enter_context(new_visitor(stack))


@pytest.fixture
def visitor(make_visitor: Callable[[], Visitor]) -> Visitor:
    return make_visitor()


@pytest.fixture
def logged_in_visitor(make_visitor: Callable[[], Visitor], email: str) -> Visitor:
    """A browser in which the user with the address of the fixture `email` is logged in."""
    visitor = make_visitor()
    visitor.enter(email)
    return visitor


@pytest.fixture
def client(stack: Stack, owner: Owner) -> Iterator[httpx2.Client]:
    with stack.client(owner.key) as client:
        yield client


@pytest.fixture
def stranger(stack: Stack) -> Iterator[httpx2.Client]:
    with stack.client() as client:
        yield client
