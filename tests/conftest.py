import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
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
from tests.cheap_passwords import use_cheap_hashes
from tests.http_servers import serving_app
from tests.programs import TEST_PROGRAMS
from tests.sandbox.providers import PROVIDERS_WITH_FAULTS
from tests.sizes import FULL, SIZE
from tests.tiers import PARTS, of_the_tier
from tests.visiting import Visitor, a_visitor, new_account
from tests.zygote import Zygote

pytest_plugins = ["tests.failed_tests", "tests.given_settings", "tests.order", "tests.stack_logs"]

# The same examples in every run but `make test-full SIZE=full`, which looks for new ones. A machine
# with other work to do may be slow at either.
settings.register_profile(
    "same dice",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("new dice", settings.get_profile("same dice"), derandomize=False)
settings.load_profile("new dice" if FULL else "same dice")

# What the product logs in the tests' own process. The default would colour each line of source in a
# traceback: a second for a deep one.
structlog.configure(
    processors=[
        structlog.processors.add_log_level,
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)

use_cheap_hashes()

# Nothing that collection makes is garbage, and all of it would be looked at again and again.
gc.disable()

MakeStack = Callable[[str], Stack]
OpenStacks = Callable[[], AbstractContextManager[MakeStack]]

# Of the fixtures, those that start services, programs of ours, or a browser.
STACK = {"services", "stack", "browser"}


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pressroom")


@pytest.fixture(scope="session")
def services(home: Path) -> Iterator[Services]:
    """Postgres, Valkey and S3, started once a run."""
    with embedded_services(home) as running:
        yield running


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote | None]:
    """Fork the programs of `make test` from one process; in the full tier, each starts itself."""
    if SIZE != "few" or sys.platform != "linux":
        yield None
        return
    with closing(Zygote()) as zygote:
        yield zygote


@pytest.fixture(scope="session")
def open_stacks(services: Services, home: Path, zygote: Zygote | None) -> OpenStacks:
    """Opens a factory of stacks, which end with it."""
    # Each has its own Redis database, counted from 1.
    numbers = iter(range(1, DATABASES))
    programs = replace(TEST_PROGRAMS, fork=None if zygote is None else zygote.fork)
    # To copy a database takes less than to migrate a new one.
    with open_stack(services, home, "migrated", next(numbers), free_port()):
        pass

    @contextmanager
    def factory() -> Iterator[MakeStack]:
        with ExitStack() as opened:

            def make(name: str) -> Stack:
                port, number = free_port(), next(numbers)
                stack = open_stack(
                    services, home, name, number, port, like="migrated", programs=programs
                )
                return opened.enter_context(stack)

            yield make

    return factory


@pytest.fixture(scope="module")
def make_stack(open_stacks: OpenStacks) -> Iterator[MakeStack]:
    """Makes stacks apart from each other, for tests that kill, flush or count.

    They end with the file: what runs for nobody takes time and memory from the tests after it.
    """
    with open_stacks() as make:
        yield make


@pytest.fixture(scope="module")
def bare(request: pytest.FixtureRequest, make_stack: MakeStack) -> Stack:
    """A stack of the file's own, without processes."""
    return make_stack(request.path.stem.removeprefix("test_").replace("_", "-"))


@pytest.fixture(scope="session")
def make_lasting_stack(open_stacks: OpenStacks) -> Iterator[MakeStack]:
    """Makes stacks that several files share."""
    with open_stacks() as make:
        yield make


@pytest.fixture(scope="session")
def stack(make_lasting_stack: MakeStack) -> Stack:
    """The stack that tests of the public interface share: a sandbox, an API process, workers."""
    shared = make_lasting_stack("shared")
    waiting = ("request", "photos", "money", "mail", "webhooks", "maintenance")
    with shared.starting_together():
        shared.start_sandbox()
        shared.start_api()
        shared.start_worker(*waiting, concurrency=4)
        shared.start_worker("media", "bulk", "export", concurrency=1)
    return shared


@pytest.fixture(autouse=True)
def _no_failed_logins_of_the_network(request: pytest.FixtureRequest) -> None:
    """Forget at how many accounts logins failed: the callers of all tests share one network."""
    # Tests of the supervisor mean another thing by the word.
    asked = request.getfixturevalue("stack") if "stack" in request.fixturenames else None
    if isinstance(asked, Stack):
        asked.query(
            "DELETE FROM login_attempts s USING login_attempts a WHERE a.source = s.subject"
        )


@pytest.fixture(scope="session")
def sandbox() -> Iterator[str]:
    """The URL of a sandbox by itself, for tests of adapters."""
    with serving_app(create_app(PROVIDERS_WITH_FAULTS)) as url:
        yield url


@pytest.fixture
def owner(stack: Stack) -> Owner:
    """A new owner on the paid plan."""
    return stack.new_owner()


@pytest.fixture
def email(stack: Stack) -> str:
    """The address of a new account with a password."""
    return new_account(stack)


@pytest.fixture
def make_visitor(stack: Stack) -> Iterator[Callable[[], Visitor]]:
    """Opens browsers in which nobody is logged in."""
    with ExitStack() as opened:
        yield lambda: opened.enter_context(a_visitor(stack))


@pytest.fixture
def visitor(make_visitor: Callable[[], Visitor]) -> Visitor:
    """A browser in which nobody is logged in."""
    return make_visitor()


@pytest.fixture
def person(make_visitor: Callable[[], Visitor], email: str) -> Visitor:
    """The person of the account, who is logged in."""
    visitor = make_visitor()
    visitor.enter(email)
    return visitor


@pytest.fixture
def client(stack: Stack, owner: Owner) -> Iterator[httpx2.Client]:
    """Calls the API as `owner`."""
    with stack.client(owner.key) as client:
        yield client


@pytest.fixture
def stranger(stack: Stack) -> Iterator[httpx2.Client]:
    """Calls the API without credentials."""
    with stack.client() as client:
        yield client


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier",
        choices=("fast", "full", *PARTS),
        help="run the fast tier, the full one, or one part of the full one",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what `make unit` leaves out, by the fixtures that a test asks for, and select a tier.

    Tests that start such programs themselves have the mark where they are written.
    """
    for item in items:
        if isinstance(item, pytest.Function) and STACK & set(item.fixturenames):
            item.add_marker(pytest.mark.stack)
    if tier := config.getoption("tier"):
        kept = set(of_the_tier(items, tier))
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes name their parameter, not themselves: some have the time in them, and a test has one
    name in all processes that run a part of the suite."""
    return argname if isinstance(val, bytes) else None
