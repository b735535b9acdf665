"""Tests workers that serve several queues, each with its own concurrency limit."""

import time

import pytest

from core.queues import Queue
from devstack.harness.free_ports import free_port
from devstack.harness.proxy import open_proxy
from models import JobStatus
from tests.support.probe.bench import Bench
from tests.support.probe.kind import PROBES
from workers.serving import IncompatibleQueues, plan_serving

IO_BOUND_QUEUES = ("money", "mail", "maintenance")
CPU_BOUND_QUEUES = ("media", "export", "bulk")


@pytest.mark.parametrize(
    "queues", [IO_BOUND_QUEUES, CPU_BOUND_QUEUES], ids=["threads", "processes"]
)
def test_full_queue_does_not_delay_other_queues_of_the_same_worker(
    probes: Bench, queues: tuple[str, ...]
) -> None:
    probes.start_worker(*queues, concurrency=2)
    full_kind, *other_kinds = (PROBES[Queue(queue)] for queue in queues)
    long_jobs = [probes.enqueue(kind=full_kind, sleep=60) for _ in range(20)]
    for job_id in long_jobs[:2]:
        probes.started(job_id)
    short_jobs = [probes.enqueue(kind=kind) for kind in other_kinds for _ in range(5)]
    for job_id in short_jobs:
        assert probes.finished(job_id).status == JobStatus.SUCCEEDED
    assert sum(probes.starts(job_id) for job_id in long_jobs) == 2


def test_queue_stays_within_its_concurrency_limit_after_its_worker_reconnects(
    probes: Bench,
) -> None:
    with open_proxy(probes.stack.environment["PRESSROOM_REDIS_URL"]) as proxy:
        probes.start_worker("mail", "money", concurrency=2, PRESSROOM_REDIS_URL=proxy.url)
        long_jobs = [probes.enqueue(kind=PROBES[Queue.MAIL], sleep=60) for _ in range(8)]
        for job_id in long_jobs[:2]:
            probes.started(job_id)
        proxy.cut()
        money_job = probes.enqueue(kind=PROBES[Queue.MONEY])
        assert probes.finished(money_job, within=60).status == JobStatus.SUCCEEDED
        assert sum(probes.starts(job_id) for job_id in long_jobs) == 2


@pytest.mark.tier("faults")
def test_worker_without_broker_connection_creates_no_queue_canaries(probes: Bench) -> None:
    unreachable_url = f"redis://127.0.0.1:{free_port()}/0"
    words = ("worker", "--queue", "mail")
    environment = {"PRESSROOM_BROKER_URL": unreachable_url}
    worker = probes.stack.start("lost", *words, environment=environment)
    try:
        time.sleep(10)  # The worker checks every second whether a canary is due.
        assert probes.stack.resources.redis.hgetall("pressroom:canaries") == {}
    finally:
        worker.kill()


def test_worker_rejects_a_mix_of_io_bound_and_cpu_bound_queues() -> None:
    with pytest.raises(IncompatibleQueues, match="mail and bulk can't share a worker"):
        plan_serving([Queue.MAIL, Queue.BULK])
