"""Postgres, Valkey and S3 killed and started again under load: our processes find them again."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from devstack.supervisor.programs import answers
from tests.embedded import Services
from tests.faults.uploads import upload
from tests.probe.bench import Bench
from tests.sizes import sized
from tests.stack import Owner, Running, Stack, eventually

HEALTHY_WITHIN = 60.0


@pytest.fixture
def processes(bench: Bench, api: Running, media: Running) -> list[Running]:
    return [api, media, bench.start_worker(concurrency=1)]


def test_killed_services_are_found_again_by_every_process(
    bench: Bench, services: Services, processes: list[Running]
) -> None:
    owner = bench.stack.new_owner()
    for name in ("postgres", "valkey", "s3") * sized(1, 10):
        _restart_under_load(bench, services, owner, name)
        # None of ours was started again.
        assert [running.process.poll() for running in processes] == [None] * len(processes)


def _restart_under_load(bench: Bench, services: Services, owner: Owner, name: str) -> None:
    stack = bench.stack
    with _load(stack, owner):
        jobs = [bench.enqueue(sleep=0.5) for _ in range(5)]
        # The worker holds a message that it can't acknowledge then.
        bench.started(jobs[0])
        services.restart(name)
    eventually(lambda: answers(stack.api_port, "/readyz"), within=HEALTHY_WITHIN, what="/readyz")
    eventually(lambda: _served(stack, owner), within=HEALTHY_WITHIN, what="an upload")
    for job_id in [*jobs, bench.enqueue()]:
        assert bench.finished(job_id, within=HEALTHY_WITHIN).status == "succeeded"
        assert bench.effects(job_id) == 1


@contextmanager
def _load(stack: Stack, owner: Owner) -> Iterator[None]:
    """Uploads one after another; what they are answered meanwhile must be an answer of ours."""
    stop, strange = threading.Event(), list[str]()

    def call() -> None:
        while not stop.is_set():
            try:
                reply = upload(stack, owner, wait=2)
            except httpx.HTTPError as error:
                strange.append(repr(error))
                continue
            if reply.status_code not in {200, 202, 503}:
                strange.append(reply.text)
            stop.wait(0.05)

    thread = threading.Thread(target=call)
    thread.start()
    time.sleep(0.2)
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert strange == []


def _served(stack: Stack, owner: Owner) -> bool:
    return upload(stack, owner, wait=5).status_code == 200
