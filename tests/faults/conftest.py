import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.faults.proxy import Proxy, proxied
from tests.probe.bench import Bench, make_bench
from tests.stack import Running, Stack


@pytest.fixture(scope="package")
def bench(make_stack: Callable[[str], Stack]) -> Bench:
    """A stack of which each test starts and stops the workers it needs."""
    return make_bench(make_stack("faults"))


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
