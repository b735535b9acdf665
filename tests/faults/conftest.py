import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.faults.proxy import Proxy, proxied
from tests.faults.size import sized
from tests.probe.bench import Bench, make_bench
from tests.stack import Running, Stack


@pytest.fixture(scope="package")
def bench(make_stack: Callable[[str], Stack]) -> Bench:
    """A stack of which each test starts and stops the workers it needs."""
    return make_bench(make_stack("faults"))


@dataclass(frozen=True)
class Poisoned:
    """A worker of two processes with a long job in one, and jobs that kill the other."""

    bench: Bench
    worker: Running
    neighbour: int
    poison: list[int]


@pytest.fixture(scope="package", autouse=True)
def poisoned(make_stack: Callable[[str], Stack]) -> Poisoned:
    """Apart from the others and begun with the first: losing three leases takes its time."""
    bench = make_bench(make_stack("poison"))
    worker = bench.start_worker(concurrency=2)
    neighbour = bench.enqueue(sleep=12)
    bench.started(neighbour)
    poison = [bench.enqueue(kill=1000) for _ in range(sized(1, 20))]
    return Poisoned(bench, worker, neighbour, poison)


@pytest.fixture(autouse=True)
def _nothing_left_running(bench: Bench) -> Iterator[None]:
    yield
    for running in bench.stack.processes:
        resume(running)
        running.kill()
    bench.stack.stop()
    bench.stack.query(
        "TRUNCATE jobs, attachments, probe_plans, probe_starts, probe_effects CASCADE"
    )
    bench.stack.resources.redis.flushdb()


@pytest.fixture
def redis_proxy(bench: Bench) -> Iterator[tuple[Proxy, str]]:
    with proxied(bench.stack.environment["PRESSROOM_REDIS_URL"]) as made:
        yield made


@pytest.fixture
def postgres_proxy(bench: Bench) -> Iterator[tuple[Proxy, str]]:
    with proxied(bench.stack.environment["PRESSROOM_DATABASE_URL"]) as made:
        yield made


def pause(running: Running) -> None:
    """SIGSTOP to the process and its pool, as a suspended machine would be."""
    _signal(running, signal.SIGSTOP)


def resume(running: Running) -> None:
    _signal(running, signal.SIGCONT)


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _signal(running: Running, number: signal.Signals) -> None:
    if running.process.poll() is None:
        for pid in (running.pid, *running.children()):
            os.kill(pid, number)
