import json
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import update

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from models import Job
from services.jobs.lease import Lease
from services.jobs.lost_jobs import STEADY_AFTER
from services.jobs.transitions import claim_job
from storage.resources import Resources
from storage.task_messages import queue_name
from tests.support.probe.bench import Bench, make_bench
from tests.support.probe.kind import PROBE

CANCELLED = {"code": "job.cancelled", "message": "The job was cancelled."}


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
    return claim(resources, quiet.enqueue())


def claim(resources: Resources, job_id: int) -> Lease:
    with resources.unit_of_work() as uow:
        lease = claim_job(uow, job_id)
    assert lease is not None
    return lease


def change(resources: Resources, job_id: int, **values: object) -> None:
    """Bring a job into a state that would take time to come about by itself."""
    with resources.unit_of_work() as uow:
        uow.session.execute(update(Job).where(Job.id == job_id).values(**values))


def sent_jobs(resources: Resources) -> list[int]:
    """The jobs of the queue's messages, in the order in which workers take them."""
    messages = resources.redis.lrange(queue_name(PROBE.queue), 0, -1)
    assert isinstance(messages, list)
    ids = [json.loads(message)["headers"]["id"] for message in reversed(messages)]
    return [int(task_id.split("-")[1]) for task_id in ids]
