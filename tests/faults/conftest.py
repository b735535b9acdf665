from collections.abc import Callable, Iterator

import pytest

from devstack.harness.proxy import Proxy, open_proxy
from devstack.harness.running import Running
from devstack.harness.stack import Owner, Stack
from devstack.sandbox.sandbox_settings import build_payment_settings
from tests.support.credits.stripe_events import WebhookPoster, running_list_only_provider
from tests.support.http.servers import silent_server
from tests.support.imports.importing import ImportRunner
from tests.support.probe.bench import Bench, make_bench
from tests.support.stack.fleet import Fleet
from tests.support.stack.signals import kill_with_children


@pytest.fixture
def silent_server_url() -> Iterator[str]:
    """The URL of a server that accepts connections and never answers."""
    with silent_server() as url:
        yield url


@pytest.fixture(scope="session")
def probes(make_lasting_stack: Callable[[str], Stack]) -> Bench:
    """A test stack for probe jobs, which do whatever a test tells them to do.

    The test stack has no workers for bulk jobs, except those that a test starts.
    """
    return make_bench(make_lasting_stack("faults"))


@pytest.fixture(scope="session")
def redis_proxy(probes: Bench) -> Iterator[Proxy]:
    """The proxy through which the API connects to Redis."""
    with open_proxy(probes.stack.environment["PRESSROOM_REDIS_URL"]) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def postgres_proxy(probes: Bench) -> Iterator[Proxy]:
    """The proxy through which the API connects to Postgres."""
    with open_proxy(probes.stack.environment["PRESSROOM_DATABASE_URL"]) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def fleet(probes: Bench, redis_proxy: Proxy, postgres_proxy: Proxy) -> Fleet:
    return Fleet(probes.stack, redis_proxy, postgres_proxy)


@pytest.fixture
def api(fleet: Fleet) -> Running:
    return fleet.start_api()


@pytest.fixture
def media_worker(fleet: Fleet) -> Running:
    return fleet.start_media()


@pytest.fixture(autouse=True)
def _recover_fleet(request: pytest.FixtureRequest) -> Iterator[None]:
    """After a test that uses `probes`, kill the processes that it started and delete its rows."""
    if "probes" not in request.fixturenames:
        yield
        return
    fleet: Fleet = request.getfixturevalue("fleet")
    yield
    fleet.recover()


@pytest.fixture(scope="session")
def imports(make_lasting_stack: Callable[[str], Stack]) -> ImportRunner:
    """A test stack for imports of files."""
    return ImportRunner(make_lasting_stack("bulk-faults"))


@pytest.fixture
def import_owner(imports: ImportRunner) -> Iterator[Owner]:
    """A new owner in the test stack of the fixture `imports`."""
    yield imports.stack.create_owner()
    for running in tuple(imports.stack.processes):
        kill_with_children(running)
        imports.stack.processes.remove(running)


@pytest.fixture(scope="session")
def payment_stack(make_lasting_stack: Callable[[str], Stack]) -> Iterator[Stack]:
    """A test stack whose payment provider reports payments only by webhook."""
    stack = make_lasting_stack("till")
    with running_list_only_provider() as url:
        stack.environment |= build_payment_settings(url, {})
        stack.start_api()
        yield stack


@pytest.fixture(scope="session")
def payment_webhooks(payment_stack: Stack) -> Iterator[WebhookPoster]:
    """A client that signs webhooks and posts them to the API, as the payment provider does."""
    poster = WebhookPoster(payment_stack)
    yield poster
    poster.close()
