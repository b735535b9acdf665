"""Tests that random kills and cut connections lose no job and no upload."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx2
import pytest

from devstack.harness.embedded_services import Services
from devstack.harness.polling import eventually
from devstack.harness.proxy import Proxy
from devstack.harness.running import Running
from devstack.harness.stack import Owner
from devstack.supervisor.programs import is_responding
from models import Job, JobStatus
from services.jobs import records
from tests.support.images.uploads import count_ready_attachments, upload
from tests.support.probe.bench import PROBE_WORKER, Bench
from tests.support.probe.kind import enqueue_probe
from tests.support.sizes import sized
from tests.support.stack.fleet import Fleet
from tests.support.stack.signals import pause_process, resume_process

SEED = 20_260_801
JOBS = sized(80, 10_000)
UPLOADS = sized(4, 200)
EVENTS = sized(8, 500)
BETWEEN_EVENTS_SECONDS = (0.1, 0.9)
JOB_SECONDS = 0.05
_PAUSE_SECONDS = 7.0


@dataclass
class Chaos:
    """Runs an API process and workers, and causes random faults.

    All processes connect to Redis and Postgres through proxies.
    """

    bench: Bench
    services: Services
    redis: Proxy
    postgres: Proxy
    environment: dict[str, str]
    dice: random.Random = field(default_factory=lambda: random.Random(SEED))
    workers: list[tuple[str, Running]] = field(default_factory=list)
    api: Running | None = None
    paused: list[tuple[float, Running]] = field(default_factory=list)

    def start(self) -> None:
        self.workers = [(queue, self._start_worker(queue)) for queue in ("bulk", "bulk", "media")]
        self._start_api()

    def cause_fault(self) -> None:
        """Cause one random fault. A fault with a higher weight is more frequent."""
        weights: dict[Callable[[], None], int] = {
            self._kill_worker: 3,
            self._kill_pool_process: 3,
            self._kill_api: 2,
            self._restart_redis: 1,
            self._cut_redis: 4,
            self._cut_postgres: 4,
            self._stall_redis: 1,
            self._pause_worker: 1,
        }
        cause = self.dice.choices(list(weights), list(weights.values()))[0]
        cause()
        self._resume_paused_workers(at=time.monotonic())
        self._restart_exited_workers()

    def stop_faults(self) -> None:
        self.redis.resume()
        self._resume_paused_workers(at=float("inf"))

    def _start_worker(self, queue: str) -> Running:
        words = ("worker", "--queue", queue, "--concurrency", "2" if queue == "bulk" else "1")
        return self.bench.stack.start(
            f"worker-{queue}", *words, module=PROBE_WORKER, environment=self.environment
        )

    def _restart_exited_workers(self) -> None:
        """Restart workers that exited because their pool was killed during their start.

        In production, Docker or Kubernetes restarts a worker that has exited.
        """
        for number, (queue, worker) in enumerate(self.workers):
            if worker.process.poll() is not None:
                self.workers[number] = queue, self._start_worker(queue)

    def _start_api(self) -> None:
        port = str(self.bench.stack.api_port)
        self.api = self.bench.stack.start(
            "api", "serve", "--port", port, environment=self.environment
        )

    def _kill_worker(self) -> None:
        worker_number = self.dice.randrange(len(self.workers))
        queue, worker = self.workers[worker_number]
        worker.kill()
        self.workers[worker_number] = queue, self._start_worker(queue)

    def _kill_pool_process(self) -> None:
        _, worker = self.dice.choice(self.workers)
        if children := worker.children():
            os.kill(self.dice.choice(children), signal.SIGKILL)

    def _kill_api(self) -> None:
        assert self.api is not None
        self.api.kill()
        self._start_api()

    def _restart_redis(self) -> None:
        self.services.restart("valkey")

    def _cut_redis(self) -> None:
        self.redis.cut()

    def _cut_postgres(self) -> None:
        self.postgres.cut()

    def _stall_redis(self) -> None:
        self.redis.stall()

    def _pause_worker(self) -> None:
        _, worker = self.dice.choice(self.workers)
        pause_process(worker)
        self.paused.append((time.monotonic() + _PAUSE_SECONDS, worker))

    def _resume_paused_workers(self, *, at: float) -> None:
        for due, worker in tuple(self.paused):
            if due <= at:
                resume_process(worker)
                self.paused.remove((due, worker))


@pytest.fixture
def chaos(
    probes: Bench, services: Services, fleet: Fleet, redis_proxy: Proxy, postgres_proxy: Proxy
) -> Iterator[Chaos]:
    fleet.end()
    environment = {**fleet.proxied(), "PRESSROOM_LOG_LEVEL": "warning"}
    created_chaos = Chaos(probes, services, redis_proxy, postgres_proxy, environment)
    created_chaos.start()
    yield created_chaos
    created_chaos.stop_faults()


def test_every_committed_job_has_one_effect_despite_kills_and_cut_connections(
    probes: Bench, chaos: Chaos
) -> None:
    eventually(lambda: is_responding(probes.stack.api_port, "/readyz"), within=30)
    # Wait until each of the two workers has run jobs in both processes of its pool.
    first_jobs = [probes.enqueue(sleep=1) for _ in range(4)]
    for job_id in first_jobs:
        probes.finished(job_id)
    clients = max(1, UPLOADS // 50)
    with _persistent_uploads(probes, clients, UPLOADS // clients) as uploaded:
        for _ in range(EVENTS):
            _enqueue(probes, JOBS // EVENTS)
            time.sleep(chaos.dice.uniform(*BETWEEN_EVENTS_SECONDS))
            chaos.cause_fault()
        chaos.stop_faults()
    assert len(uploaded) == UPLOADS
    assert count_ready_attachments(probes.stack) == UPLOADS
    probes.all_finished(within=60 + JOBS / 20)
    _retry_jobs_of_killed_workers(probes)
    effect_counts = probes.stack.query(
        "SELECT count(*), count(DISTINCT job_id) FROM probe_effects e JOIN jobs j ON j.id = job_id"
        " WHERE j.status = 'succeeded'"
    )
    job_count = len(first_jobs) + JOBS // EVENTS * EVENTS
    assert effect_counts == [(job_count, job_count)]


def _enqueue(probes: Bench, count: int) -> None:
    """Enqueue probe jobs without the API, because a response of the API could get lost."""
    with probes.stack.resources.unit_of_work() as uow:
        for _ in range(count):
            enqueue_probe(uow, {"sleep": JOB_SECONDS})


@contextmanager
def _persistent_uploads(
    probes: Bench, clients: int, uploads_per_client: int
) -> Iterator[list[str]]:
    """Start clients that repeat each upload with its idempotency key until the response is 200."""
    owner = probes.stack.create_owner()
    uploaded: list[str] = []
    threads = [
        threading.Thread(
            target=_upload_each,
            args=(probes, owner, f"client-{number}", uploads_per_client, uploaded),
        )
        for number in range(clients)
    ]
    for thread in threads:
        thread.start()
    yield uploaded
    for thread in threads:
        thread.join(300)


def _upload_each(probes: Bench, owner: Owner, client: str, count: int, uploaded: list[str]) -> None:
    for number in range(count):
        key = f"{client}-upload-number-{number}"
        while not _try_upload(probes, owner, key):
            time.sleep(0.1)
        uploaded.append(key)


def _try_upload(probes: Bench, owner: Owner, key: str) -> bool:
    """Upload a picture, and return whether the response is 200."""
    try:
        return upload(probes.stack, owner, wait=10, key=key).status_code == 200
    except httpx2.HTTPError:
        return False


def _retry_jobs_of_killed_workers(probes: Bench) -> None:
    """Retry the jobs that failed because their worker was killed three times.

    After three kills, Pressroom assumes that the job itself crashes its worker, and doesn't run the
    job again. At most one percent of the jobs may fail, and each failed job must have the error
    code `job.worker_lost`.
    """
    with probes.stack.resources.unit_of_work() as uow:
        failed_jobs = uow.session.query(Job).where(Job.status == JobStatus.FAILED).all()
        assert len(failed_jobs) <= JOBS // 100
        for job in failed_jobs:
            assert job.error is not None
            assert job.error["code"] == "job.worker_lost"
            records.retry_locked_job(uow, job)
    probes.all_finished(within=60)
