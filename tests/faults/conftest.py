from collections.abc import Callable, Iterator

import pytest

from devstack.harness.proxy import Proxy, open_proxy
from devstack.harness.running import Running
from devstack.harness.stack import Owner, Stack
from devstack.sandbox.sandbox_settings import payment_settings
from tests.support.credits.till import Poster, unwilling_provider
from tests.support.http.servers import silent_server
from tests.support.imports.importing import Importing
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
    """A stack for probe jobs. Each test starts the bulk workers that it needs."""
    return make_bench(make_lasting_stack("faults"))


@pytest.fixture(scope="session")
def redis_proxy(probes: Bench) -> Iterator[Proxy]:
    """The proxy between the API and Redis."""
    with open_proxy(probes.stack.environment["PRESSROOM_REDIS_URL"]) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def postgres_proxy(probes: Bench) -> Iterator[Proxy]:
    """The proxy between the API and Postgres."""
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
    """End the processes of the test and delete its rows. Tests with another stack need neither."""
    if "probes" not in request.fixturenames:
        yield
        return
    fleet: Fleet = request.getfixturevalue("fleet")
    yield
    fleet.recover()


@pytest.fixture(scope="session")
def imports(make_lasting_stack: Callable[[str], Stack]) -> Importing:
    """A stack that imports files. Each test starts the workers that it needs."""
    return Importing(make_lasting_stack("bulk-faults"))


@pytest.fixture
def import_owner(imports: Importing) -> Iterator[Owner]:
    """An owner on the stack of imports. After the test, stop the workers that the test started."""
    yield imports.stack.new_owner()
    for running in tuple(imports.stack.processes):
        kill_with_children(running)
        imports.stack.processes.remove(running)


@pytest.fixture(scope="session")
def payment_stack(make_lasting_stack: Callable[[str], Stack]) -> Iterator[Stack]:
    """A stack whose payment provider answers no call, so that payments arrive only by webhook."""
    stack = make_lasting_stack("till")
    with unwilling_provider() as url:
        stack.environment |= payment_settings(url, {})
        stack.start_api()
        yield stack


@pytest.fixture(scope="session")
def payment_webhooks(payment_stack: Stack) -> Iterator[Poster]:
    """A client that signs and posts the webhooks of the payment provider."""
    poster = Poster(payment_stack)
    yield poster
    poster.close()
