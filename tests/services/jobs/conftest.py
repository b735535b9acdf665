from collections.abc import Callable, Iterator

import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from services.jobs.lease import Lease
from services.jobs.lost_jobs import OUTAGE_GRACE_PERIOD
from storage.resources import Resources
from tests.support.probe.bench import Bench, make_bench
from tests.support.probe.job_states import claim_lease


@pytest.fixture(scope="session")
def probes_without_workers(make_lasting_stack: Callable[[str], Stack]) -> Bench:
    """A stack for probe jobs, without workers because the tests claim and finish the jobs."""
    probes = make_bench(make_lasting_stack("jobs"))
    # After the start of the database, Pressroom ignores expired leases for a grace period, because
    # workers couldn't renew their leases while the database was down. Wait until the
    # grace period after the start of the database has ended.
    uptime_query = "SELECT pg_postmaster_start_time() < now() - %s"
    eventually(
        lambda: probes.stack.query(uptime_query, OUTAGE_GRACE_PERIOD)[0][0],
        what="a steady database",
    )
    return probes


@pytest.fixture(scope="module")
def probes(empty_stack: Stack) -> Bench:
    probes = make_bench(empty_stack)
    probes.start_worker(concurrency=4)
    return probes


@pytest.fixture
def resources(probes_without_workers: Bench) -> Iterator[Resources]:
    """The database, Redis and object storage of the stack in ``probes_without_workers``."""
    yield probes_without_workers.stack.resources
    probes_without_workers.stack.query("TRUNCATE jobs, idempotency_records")
    probes_without_workers.stack.resources.redis.flushdb()


@pytest.fixture
def lease(probes_without_workers: Bench, resources: Resources) -> Lease:
    return claim_lease(resources, probes_without_workers.enqueue())
