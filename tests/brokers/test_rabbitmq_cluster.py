"""A cluster of RabbitMQ loses a server while callers ask and jobs are queued."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from pydantic import SecretStr

from core.lanes import Lane
from models import JobStatus
from storage.resources import open_resources
from tests.brokers.apart import Apart, start_processes
from tests.brokers.rabbitmq import running_rabbitmq
from tests.sizes import FULL
from tests.stack import Stack, eventually

SERVERS = 3
MAX_FAILOVER_SECONDS = 60.0


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.skipif(not FULL, reason="three servers take a gigabyte: PRESSROOM_SIZE=full")
def test_quorum_queues_outlive_the_loss_of_a_server(
    make_stack: Callable[[str], Stack], tmp_path: Path, record_property: Callable[..., None]
) -> None:
    stack = make_stack("rabbitmq-cluster")
    with running_rabbitmq(tmp_path, servers=SERVERS) as rabbitmq:
        stack.environment["PRESSROOM_BROKER_URL"] = rabbitmq.url
        settings = stack.settings().model_copy(update={"broker_url": SecretStr(rabbitmq.url)})
        resources = open_resources(settings, concurrency=2, name="cluster")
        apart = Apart(start_processes(stack), resources)
        # No worker takes these, so they show what the queue itself has kept.
        for _ in range(50):
            assert resources.broker.send("probe.none", Lane.MEDIA, {})
        over, statuses, jobs = Event(), [], []

        def load() -> None:
            while not over.is_set():
                statuses.append(apart.ask("load").status_code)
                jobs.append(apart.enqueue())
                time.sleep(0.1)

        with ThreadPoolExecutor(1) as thread:
            loading = thread.submit(load)
            try:
                eventually(lambda: statuses.count(200) > 10, within=60)
                rabbitmq.kill(rabbitmq.nodes[0])
                began, before = time.monotonic(), statuses.count(200)
                eventually(
                    lambda: statuses.count(200) > before + 10,
                    within=MAX_FAILOVER_SECONDS,
                    what="answers again",
                )
                record_property("seconds", round(time.monotonic() - began, 1))
            finally:
                over.set()
        loading.result()
        assert set(statuses) <= {200, 503, 504}
        eventually(lambda: resources.broker.waiting(Lane.MEDIA) == 50, what="all messages")
        for job_id in jobs:
            assert apart.bench.finished(job_id, within=60).status == JobStatus.SUCCEEDED
        assert [each.process.poll() for each in stack.processes] == [None] * len(stack.processes)
        stack.stop()
        resources.close()
