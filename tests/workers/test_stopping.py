"""Tests what happens to the jobs of a stopping worker, and to jobs that never end."""

import pytest

from core.queues import Queue
from devstack.harness.polling import eventually
from models import JobStatus
from services.jobs.kinds import JobKind
from tests.support.probe.bench import Bench
from tests.support.probe.kind import BRIEF_PROBE, PROBES
from workers.stopping import STUCK_EXIT_CODE

MAIL = PROBES[Queue.MAIL]


@pytest.mark.tier("processes")
@pytest.mark.parametrize("kind", [MAIL, PROBES[Queue.EXPORT]], ids=["thread", "process"])
def test_job_interrupted_by_three_worker_restarts_counts_no_crash(
    probes: Bench, kind: JobKind
) -> None:
    job_id = probes.enqueue(kind=kind, hang=3)
    for attempt in (1, 2, 3):
        worker = probes.start_worker(kind.queue, concurrency=1, PRESSROOM_WORKER_GRACE="0.2")
        probes.started(job_id, attempt)
        assert worker.stop() == 0
        assert probes.job(job_id).crashes == 0
    probes.start_worker(kind.queue, concurrency=1)
    job = probes.finished(job_id)
    assert (job.status, job.attempt, job.crashes) == (JobStatus.SUCCEEDED, 4, 0)
    assert probes.effects(job_id) == 1


@pytest.mark.tier("processes")
def test_stopping_worker_finishes_its_running_job_and_takes_no_new_job(
    probes: Bench,
) -> None:
    worker = probes.start_worker("mail", concurrency=1)
    running_job = probes.enqueue(kind=MAIL, sleep=1.5)
    probes.started(running_job)
    queued_job = probes.enqueue(kind=MAIL)
    assert worker.stop() == 0
    job = probes.job(running_job)
    assert (job.status, job.attempt) == (JobStatus.SUCCEEDED, 1)
    assert probes.starts(queued_job) == 0
    # The messages are acknowledged, so the broker doesn't deliver them again.
    assert not probes.stack.resources.redis.hlen("unacked")


@pytest.mark.tier("processes")
def test_job_past_its_deadline_is_restarted_and_its_stuck_worker_process_exits(
    probes: Bench,
) -> None:
    worker = probes.start_worker("mail", "money", concurrency=2, PRESSROOM_WORKER_GRACE="0.2")
    neighbour = probes.enqueue(kind=PROBES[Queue.MONEY], hang=1)
    probes.started(neighbour)
    overdue = probes.enqueue(kind=BRIEF_PROBE, hang=1)
    probes.started(overdue)
    probes.start_worker("mail", "money", concurrency=2)
    eventually(lambda: worker.process.poll() is not None, within=30, what="the worker's end")
    assert worker.process.returncode == STUCK_EXIT_CODE
    for job_id in (neighbour, overdue):
        job = probes.finished(job_id)
        assert (job.status, job.attempt, job.crashes) == (JobStatus.SUCCEEDED, 2, 0)
        assert probes.effects(job_id) == 1
