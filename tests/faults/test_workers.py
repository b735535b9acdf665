import os
import signal

import pytest

from devstack.harness.polling import eventually
from devstack.harness.proxy import Proxy
from models import JobStatus
from tests.support.probe.bench import Bench
from tests.support.probe.job_states import update_job
from tests.support.stack.signals import pause_process, resume_process


def test_worker_resuming_after_its_lease_expired_writes_no_result(probes: Bench) -> None:
    paused_worker = probes.start_worker(concurrency=1)
    job_id = probes.enqueue(sleep=0.3)
    probes.started(job_id)
    pause_process(paused_worker)
    probes.start_worker(concurrency=1)
    job = probes.finished(job_id)
    assert (job.status, job.attempt) == (JobStatus.SUCCEEDED, 2)
    resume_process(paused_worker)
    eventually(
        lambda: b"job.lease_lost" in paused_worker.log.read_bytes(),
        what="the lost lease in the log",
    )
    assert probes.effects(job_id) == 1
    assert probes.job(job_id).result == job.result


def test_stopping_worker_finishes_short_jobs_and_returns_long_ones(probes: Bench) -> None:
    probes.start_worker(concurrency=1)
    first = probes.enqueue(sleep=60)
    probes.started(first)
    # The first worker is busy with the job `first`. Therefore the jobs `short` and `long` run on
    # the second worker, which the test stops.
    stopping_worker = probes.start_worker(concurrency=2, PRESSROOM_WORKER_GRACE="3")
    short = probes.enqueue(sleep=2)
    long = probes.enqueue(sleep=60)
    for job_id in (short, long):
        probes.started(job_id)
    stopping_worker.process.send_signal(signal.SIGTERM)
    update_job(probes.stack.resources, first, cancel_requested=True)
    job = probes.finished(short)
    assert (job.status, job.attempt, job.crashes) == (JobStatus.SUCCEEDED, 1, 0)
    probes.started(long, attempt=2)
    assert probes.job(long).crashes == 0
    stopping_worker.process.wait(20)
    update_job(probes.stack.resources, long, cancel_requested=True)
    assert probes.finished(long).status == JobStatus.CANCELLED


@pytest.mark.tier("fast")
def test_pool_processes_exit_after_their_worker_is_killed(probes: Bench) -> None:
    worker = probes.start_worker(concurrency=2)
    children = worker.children()
    assert len(children) >= 2
    worker.kill()
    eventually(lambda: not any(_is_running(pid) for pid in children), what="the end of the pool")


def test_worker_finishes_its_job_without_broker_and_takes_the_next_afterwards(
    probes: Bench, redis_proxy: Proxy
) -> None:
    worker = probes.start_worker(concurrency=1, PRESSROOM_REDIS_URL=redis_proxy.url)
    job_id = probes.enqueue(sleep=2)
    probes.started(job_id)
    redis_proxy.refuse()
    job = probes.finished(job_id)
    assert (job.status, job.attempt) == (JobStatus.SUCCEEDED, 1)
    redis_proxy.resume()
    assert probes.finished(probes.enqueue(), within=60).status == JobStatus.SUCCEEDED
    assert worker.process.poll() is None


@pytest.mark.tier("fast")
@pytest.mark.parametrize(
    ("deliver", "attempts"), [(True, 1), (False, 2)], ids=["committed", "not committed"]
)
def test_job_has_one_effect_if_its_final_commit_is_cut_off(
    probes: Bench, postgres_proxy: Proxy, *, deliver: bool, attempts: int
) -> None:
    probes.start_worker(concurrency=1, PRESSROOM_DATABASE_URL=postgres_proxy.url)
    postgres_proxy.cut_at(b"COMMIT", after=b"INSERT INTO probe_effects", deliver=deliver)
    job_id = probes.enqueue()
    assert postgres_proxy.sprung.wait(20)
    job = probes.finished(job_id)
    assert (job.status, job.attempt, job.crashes) == (JobStatus.SUCCEEDED, attempts, 0)
    assert probes.effects(job_id) == 1


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
