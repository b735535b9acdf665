"""Several queues in one worker process, each with a limit of its own."""

import time

import pytest

from core.queues import Queue
from devstack.harness.free_ports import free_port
from devstack.harness.proxy import open_proxy
from models import JobStatus
from tests.support.probe.bench import Bench
from tests.support.probe.kind import PROBES
from workers.serving import IncompatibleQueues, plan_serving

WAITING = ("money", "mail", "maintenance")
COMPUTING = ("media", "export", "bulk")


@pytest.mark.parametrize("queues", [WAITING, COMPUTING], ids=["threads", "processes"])
def test_full_queue_does_not_delay_other_queues_of_the_same_worker(
    probes: Bench, queues: tuple[str, ...]
) -> None:
    probes.start_worker(*queues, concurrency=2)
    full, *others = (PROBES[Queue(queue)] for queue in queues)
    stuck = [probes.enqueue(kind=full, sleep=60) for _ in range(20)]
    for job_id in stuck[:2]:
        probes.started(job_id)
    quick = [probes.enqueue(kind=kind) for kind in others for _ in range(5)]
    for job_id in quick:
        assert probes.finished(job_id).status == JobStatus.SUCCEEDED
    assert sum(probes.starts(job_id) for job_id in stuck) == 2


def test_queue_stays_within_its_concurrency_limit_after_its_worker_reconnects(
    probes: Bench,
) -> None:
    with open_proxy(probes.stack.environment["PRESSROOM_REDIS_URL"]) as proxy:
        probes.start_worker("mail", "money", concurrency=2, PRESSROOM_REDIS_URL=proxy.url)
        stuck = [probes.enqueue(kind=PROBES[Queue.MAIL], sleep=60) for _ in range(8)]
        for job_id in stuck[:2]:
            probes.started(job_id)
        proxy.cut()
        money = probes.enqueue(kind=PROBES[Queue.MONEY])
        assert probes.finished(money, within=60).status == JobStatus.SUCCEEDED
        assert sum(probes.starts(job_id) for job_id in stuck) == 2


@pytest.mark.tier("faults")
def test_worker_without_broker_connection_creates_no_queue_canaries(probes: Bench) -> None:
    nowhere = f"redis://127.0.0.1:{free_port()}/0"
    words = ("worker", "--queue", "mail")
    started = probes.stack.start("lost", *words, environment={"PRESSROOM_BROKER_URL": nowhere})
    try:
        time.sleep(10)  # it looks each second whether a canary is due
        assert probes.stack.resources.redis.hgetall("pressroom:canaries") == {}
    finally:
        started.kill()


def test_worker_rejects_a_mix_of_io_bound_and_cpu_bound_queues() -> None:
    with pytest.raises(IncompatibleQueues, match="mail and bulk can't share a worker"):
        plan_serving([Queue.MAIL, Queue.BULK])
