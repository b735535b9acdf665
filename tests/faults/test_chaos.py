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
from tests.support.images.uploads import ready, upload
from tests.support.probe.bench import PROBE_WORKER, Bench
from tests.support.probe.kind import plan
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
    """What runs, and the ways in which it is hurt. All processes speak through the proxies."""

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
        self.workers = [(queue, self._worker(queue)) for queue in ("bulk", "bulk", "media")]
        self._start_api()

    def hurt(self) -> None:
        """One event. The kinds are as common as their names here."""
        ways: dict[Callable[[], None], int] = {
            self._kill_worker: 3,
            self._kill_pool_process: 3,
            self._kill_api: 2,
            self._restart_redis: 1,
            self._cut_redis: 4,
            self._cut_postgres: 4,
            self._stall_redis: 1,
            self._pause_worker: 1,
        }
        self.dice.choices(list(ways), list(ways.values()))[0]()
        self._wake(at=time.monotonic())
        self._supervise()

    def end(self) -> None:
        self.redis.resume()
        self._wake(at=float("inf"))

    def _worker(self, queue: str) -> Running:
        words = ("worker", "--queue", queue, "--concurrency", "2" if queue == "bulk" else "1")
        return self.bench.stack.start(
            f"worker-{queue}", *words, module=PROBE_WORKER, environment=self.environment
        )

    def _supervise(self) -> None:
        """A worker whose pool is killed as it starts gives up, for its supervisor to start anew."""
        for place, (queue, worker) in enumerate(self.workers):
            if worker.process.poll() is not None:
                self.workers[place] = queue, self._worker(queue)

    def _start_api(self) -> None:
        port = str(self.bench.stack.api_port)
        self.api = self.bench.stack.start(
            "api", "serve", "--port", port, environment=self.environment
        )

    def _kill_worker(self) -> None:
        place = self.dice.randrange(len(self.workers))
        queue, worker = self.workers[place]
        worker.kill()
        self.workers[place] = queue, self._worker(queue)

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

    def _wake(self, *, at: float) -> None:
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
    made = Chaos(probes, services, redis_proxy, postgres_proxy, environment)
    made.start()
    yield made
    made.end()


def test_every_committed_job_has_one_effect_despite_kills_and_cut_connections(
    probes: Bench, chaos: Chaos
) -> None:
    eventually(lambda: is_responding(probes.stack.api_port, "/readyz"), within=30)
    # Two pools of two processes, all of them at work.
    first = [probes.enqueue(sleep=1) for _ in range(4)]
    for job_id in first:
        probes.finished(job_id)
    clients = max(1, UPLOADS // 50)
    with _persistent_uploads(probes, clients, UPLOADS // clients) as uploaded:
        for _ in range(EVENTS):
            _enqueue(probes, JOBS // EVENTS)
            time.sleep(chaos.dice.uniform(*BETWEEN_EVENTS_SECONDS))
            chaos.hurt()
        chaos.end()
    assert len(uploaded) == UPLOADS
    assert ready(probes.stack) == UPLOADS
    probes.all_finished(within=60 + JOBS / 20)
    _start_unlucky_jobs_again(probes)
    found = probes.stack.query(
        "SELECT count(*), count(DISTINCT job_id) FROM probe_effects e JOIN jobs j ON j.id = job_id"
        " WHERE j.status = 'succeeded'"
    )
    jobs = len(first) + JOBS // EVENTS * EVENTS
    assert found == [(jobs, jobs)]


def _enqueue(probes: Bench, count: int) -> None:
    """Directly, so that it is the commit of the test's own that must be kept."""
    with probes.stack.resources.unit_of_work() as uow:
        for _ in range(count):
            plan(uow, {"sleep": JOB_SECONDS})


@contextmanager
def _persistent_uploads(probes: Bench, clients: int, each: int) -> Iterator[list[str]]:
    """Clients that send the same request with the same key until it is answered with 200."""
    owner, uploaded = probes.stack.create_owner(), list[str]()
    threads = [
        threading.Thread(
            target=_upload_each, args=(probes, owner, f"client-{number}", each, uploaded)
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
        while not _uploaded(probes, owner, key):
            time.sleep(0.1)
        uploaded.append(key)


def _uploaded(probes: Bench, owner: Owner, key: str) -> bool:
    try:
        return upload(probes.stack, owner, wait=10, key=key).status_code == 200
    except httpx2.HTTPError:
        return False


def _start_unlucky_jobs_again(probes: Bench) -> None:
    """A job under way in three killed workers is taken for poison: rare, told, and not lost."""
    with probes.stack.resources.unit_of_work() as uow:
        unlucky = uow.session.query(Job).where(Job.status == JobStatus.FAILED).all()
        assert len(unlucky) <= JOBS // 100
        for job in unlucky:
            assert job.error is not None
            assert job.error["code"] == "job.worker_lost"
            records.retry_locked_job(uow, job)
    probes.all_finished(within=60)
