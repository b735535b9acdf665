from collections.abc import Callable, Iterator

import pytest

from devstack.harness.stack import Stack
from tests.support.probe.bench import Bench, make_bench


@pytest.fixture(scope="session")
def working(make_lasting_stack: Callable[[str], Stack]) -> Bench:
    return make_bench(make_lasting_stack("queues"))


@pytest.fixture
def bench(working: Bench) -> Iterator[Bench]:
    """A bench of which each test starts the workers that it needs; they end with it."""
    yield working
    for running in working.stack.processes:
        running.kill()
    working.stack.processes.clear()
    working.stack.query("TRUNCATE jobs, idempotency_records")
    working.stack.resources.redis.flushdb()
