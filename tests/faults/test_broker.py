"""Tests that no work is lost or done twice if Redis is flushed, full or hanging."""

import json
import time
from collections.abc import Iterator
from functools import partial

import pytest

from devstack.harness.embedded_services import Services
from devstack.harness.polling import eventually
from devstack.harness.running import Running
from models import JobStatus
from services.jobs.outbox import send_job
from storage.broker import Broker
from storage.resources import open_resources
from tests.support.images.uploads import count_ready_attachments, upload
from tests.support.probe.bench import PROBE_WORKER, Bench
from tests.support.probe.kind import PROBE, enqueue_probe
from tests.support.sizes import sized
from tests.support.stack.frozen_processes import frozen
from tests.support.stack.signals import pause_process, resume_process

QUEUED_JOBS = sized(150, 1000)
DUPLICATED_JOBS = sized(30, 1000)


def test_queued_jobs_finish_after_redis_flush(probes: Bench) -> None:
    probes.start_worker(concurrency=2)
    with probes.stack.resources.unit_of_work() as uow:
        for _ in range(QUEUED_JOBS):
            enqueue_probe(uow, {})
    eventually(lambda: probes.stack.query("SELECT 1 FROM jobs WHERE status = 'succeeded' LIMIT 1"))
    probes.stack.resources.redis.flushall()
    probes.all_finished(within=60)
    _require_one_effect_per_job(probes, QUEUED_JOBS)


def test_job_delivered_twice_concurrently_has_one_effect(probes: Bench) -> None:
    worker = probes.start_worker(concurrency=2)
    pause_process(worker)
    with probes.stack.resources.unit_of_work() as uow:
        jobs = [enqueue_probe(uow, {}) for _ in range(DUPLICATED_JOBS)]
        # Send a second message for each job, so that the queue contains two messages for each job.
        for job in jobs:
            uow.after_commit(partial(send_job, uow.broker, job))
    resume_process(worker)
    probes.all_finished(within=120)
    assert probes.stack.query("SELECT count(*) FROM probe_starts") == [(DUPLICATED_JOBS,)]
    _require_one_effect_per_job(probes, DUPLICATED_JOBS)


def test_upload_delivered_twice_concurrently_is_converted_only_once(
    probes: Bench, api: Running, media_worker: Running
) -> None:
    stack = probes.stack
    pause_process(media_worker)
    owner = stack.create_owner()
    uploads = sized(3, 100)
    for _ in range(uploads):
        assert upload(stack, owner, wait=0).status_code == 202
    queue = "pressroom.media"
    for message in stack.resources.redis.lrange(queue, 0, -1):
        stack.resources.redis.lpush(queue, _copy(message))
    resume_process(media_worker)
    eventually(lambda: count_ready_attachments(stack) == uploads, within=60, what="every upload")
    assert stack.query("SELECT DISTINCT attempt, crashes FROM jobs") == [(1, 0)]


def _copy(message: bytes | str) -> str:
    """Return a copy of a queue message with another delivery tag."""
    fields = json.loads(message)
    fields["properties"]["delivery_tag"] += "-again"
    return json.dumps(fields)


@pytest.fixture
def full_redis(probes: Bench) -> Iterator[None]:
    """Limit Redis' memory, so that Redis refuses writes until the test calls ``_make_room``."""
    client = probes.stack.resources.redis
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", "1")
    try:
        yield
    finally:
        _make_room(probes)


def _make_room(probes: Bench) -> None:
    client = probes.stack.resources.redis
    client.config_set("maxmemory", "256mb")
    client.config_set("maxmemory-policy", "volatile-lru")


def test_upload_accepted_while_broker_is_full_finishes_afterwards(
    probes: Bench, api: Running, media_worker: Running, full_redis: None
) -> None:
    stack = probes.stack
    # The new worker can't connect to its queue yet, but it must not exit.
    words = ("worker", "--queue", "bulk", "--concurrency", "1")
    new_worker = stack.start("worker-bulk", *words, module=PROBE_WORKER)
    reply = upload(stack, stack.create_owner(), wait=3)
    assert reply.status_code in {202, 503}
    if reply.status_code == 503:
        assert "Retry-After" in reply.headers
    accepted = int(reply.status_code == 202)
    eventually(lambda: b"maxmemory" in new_worker.log.read_bytes(), what="the new worker's error")
    _make_room(probes)
    eventually(
        lambda: count_ready_attachments(stack) == accepted, within=60, what="the accepted upload"
    )
    assert probes.finished(probes.enqueue()).status == JobStatus.SUCCEEDED
    assert [running.process.poll() for running in (api, media_worker, new_worker)] == [
        None,
        None,
        None,
    ]


def test_worker_survives_a_full_broker_and_finishes_its_queue(probes: Bench) -> None:
    worker = probes.start_worker(concurrency=1)
    jobs = [probes.enqueue(sleep=0.1) for _ in range(20)]
    probes.started(jobs[2])
    probes.stack.resources.redis.config_set("maxmemory-policy", "noeviction")
    probes.stack.resources.redis.config_set("maxmemory", "1")
    time.sleep(0.2)
    _make_room(probes)
    probes.all_finished(within=60)
    _require_one_effect_per_job(probes, 20)
    assert worker.process.poll() is None


def test_upload_is_accepted_while_redis_hangs_and_finishes_afterwards(
    probes: Bench, services: Services, api: Running, media_worker: Running
) -> None:
    stack = probes.stack
    owner = stack.create_owner()
    with frozen(services.pids["valkey"]):
        assert upload(stack, owner, wait=1).status_code == 202
    eventually(lambda: count_ready_attachments(stack) == 1, within=60, what="the upload")


def test_sending_to_a_hanging_broker_fails_fast(probes: Bench, services: Services) -> None:
    broker = Broker(probes.stack.settings())
    resources = open_resources(probes.stack.settings(), concurrency=1, name="silent")
    assert broker.send(PROBE.name, PROBE.queue, {"job_id": 0})
    with frozen(services.pids["valkey"]):
        began_at = time.monotonic()
        assert not any(broker.send(PROBE.name, PROBE.queue, {"job_id": 0}) for _ in range(100))
        for _ in range(100):
            resources.notifier.publish(None, "job:0")
            assert broker.count_waiting(PROBE.queue) is None
        # If each call waited for its timeout, all calls together would take minutes.
        assert time.monotonic() - began_at < 30
    eventually(lambda: broker.send(PROBE.name, PROBE.queue, {"job_id": 0}), within=20)
    broker.close()
    resources.close()


def _require_one_effect_per_job(probes: Bench, job_count: int) -> None:
    assert probes.stack.query("SELECT DISTINCT status FROM jobs") == [(JobStatus.SUCCEEDED,)]
    effects = probes.stack.query("SELECT count(*), count(DISTINCT job_id) FROM probe_effects")
    assert effects == [(job_count, job_count)]
