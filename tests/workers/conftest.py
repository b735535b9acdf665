from collections.abc import Callable, Iterator

import pytest

from devstack.harness.stack import Stack
from tests.support.probe.bench import Bench, make_bench


@pytest.fixture(scope="session")
def lasting_probes(make_lasting_stack: Callable[[str], Stack]) -> Bench:
    return make_bench(make_lasting_stack("queues"))


@pytest.fixture
def probes(lasting_probes: Bench) -> Iterator[Bench]:
    """A test stack for probe jobs, which do whatever a test tells them to do."""
    yield lasting_probes
    for running in lasting_probes.stack.processes:
        running.kill()
    lasting_probes.stack.processes.clear()
    lasting_probes.stack.query("TRUNCATE jobs, idempotency_records")
    lasting_probes.stack.resources.redis.flushdb()
