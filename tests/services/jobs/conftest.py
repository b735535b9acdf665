from collections.abc import Callable, Iterator

import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from services.jobs.lease import Lease
from services.jobs.lost_jobs import STEADY_AFTER
from storage.resources import Resources
from tests.support.probe.bench import Bench, make_bench
from tests.support.probe.job_states import claim_lease


@pytest.fixture(scope="session")
def quiet(make_lasting_stack: Callable[[str], Stack]) -> Bench:
    """A bench without workers: the tests themselves claim, sweep and finish."""
    made = make_bench(make_lasting_stack("jobs"))
    # No lease counts as lost until workers had time to renew theirs after the database's start.
    steady = "SELECT pg_postmaster_start_time() < now() - %s"
    eventually(lambda: made.stack.query(steady, STEADY_AFTER)[0][0], what="a steady database")
    return made


@pytest.fixture(scope="session")
def bench(make_lasting_stack: Callable[[str], Stack]) -> Bench:
    """A bench with one probe worker of four processes."""
    working = make_bench(make_lasting_stack("probes"))
    working.start_worker(concurrency=4)
    return working


@pytest.fixture
def resources(quiet: Bench) -> Iterator[Resources]:
    """The quiet bench's resources; what a test leaves unfinished is taken away after it."""
    yield quiet.stack.resources
    quiet.stack.query("TRUNCATE jobs, idempotency_records")
    quiet.stack.resources.redis.flushdb()


@pytest.fixture
def claimed(quiet: Bench, resources: Resources) -> Lease:
    """A job of which this test holds the lease."""
    return claim_lease(resources, quiet.enqueue())
