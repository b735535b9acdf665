from collections.abc import Callable
from dataclasses import dataclass

import pytest

from devstack.harness.running import Running
from devstack.harness.stack import Stack
from models import JobStatus
from tests.support.probe.bench import Bench, make_bench
from tests.support.sizes import sized


@dataclass(frozen=True)
class PoisonJobs:
    """A worker with two processes, one for a long job and one for jobs that kill their process.

    Attributes:
        neighbour: the id of the long job.
        poison: the ids of the jobs that kill their process.
    """

    bench: Bench
    worker: Running
    neighbour: int
    poison: list[int]


@pytest.fixture(scope="module")
def poison_jobs(make_stack: Callable[[str], Stack]) -> PoisonJobs:
    bench = make_bench(make_stack("poison"))
    worker = bench.start_worker(concurrency=2)
    neighbour = bench.enqueue(sleep=12)
    bench.started(neighbour)
    poison = [bench.enqueue(kill=1000) for _ in range(sized(1, 20))]
    return PoisonJobs(bench, worker, neighbour, poison)


def test_poison_job_is_tried_three_times_and_fails_as_worker_lost(poison_jobs: PoisonJobs) -> None:
    for job_id in poison_jobs.poison:
        job = poison_jobs.bench.finished(job_id, within=60 * len(poison_jobs.poison))
        assert (job.status, job.attempt, job.crashes) == (JobStatus.FAILED, 3, 3)
        assert job.error is not None
        assert job.error["code"] == "job.worker_lost"
        assert (poison_jobs.bench.starts(job_id), poison_jobs.bench.effects(job_id)) == (3, 0)


def test_job_queued_next_to_poison_jobs_succeeds(poison_jobs: PoisonJobs) -> None:
    job = poison_jobs.bench.finished(poison_jobs.neighbour)
    assert (job.status, job.attempt) == (JobStatus.SUCCEEDED, 1)
    assert poison_jobs.worker.process.poll() is None
