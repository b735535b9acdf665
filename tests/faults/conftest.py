import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from devstack.harness.proxy import Proxy, open_proxy
from devstack.harness.running import Running
from devstack.harness.stack import Owner, Stack
from devstack.sandbox.sandbox_settings import payment_settings
from tests.support.credits import till
from tests.support.credits.till import Poster
from tests.support.http.servers import silent_server
from tests.support.imports.importing import Importing
from tests.support.probe.bench import PROBE_WORKER, Bench, make_bench


class Fleet:
    """One API process and one media worker, which tests share as long as these live.

    Every other process that a test starts ends with it.
    """

    def __init__(self, stack: Stack, redis: Proxy, postgres: Proxy) -> None:
        self._stack = stack
        self._redis = redis
        self._postgres = postgres
        self._shared: dict[str, Running] = {}

    def start_api(self) -> Running:
        return self._living("api") or self._share(
            "api", self._stack.start_api(None, **self.proxied())
        )

    def start_media(self) -> Running:
        # The probe's worker, since any worker sweeps jobs of every kind.
        return self._living("media") or self._share(
            "media", self._stack.start_worker("media", concurrency=2, module=PROBE_WORKER)
        )

    def end(self) -> None:
        """For a test that has processes of its own."""
        for running in self._shared.values():
            running.kill()
            self._stack.processes.remove(running)
        self._shared.clear()

    def proxied(self) -> dict[str, str]:
        return {
            "PRESSROOM_REDIS_URL": self._redis.url,
            "PRESSROOM_DATABASE_URL": self._postgres.url,
        }

    def recover(self) -> None:
        for running in tuple(self._stack.processes):
            resume(running)
            if running not in self._shared.values():
                running.kill()
                self._stack.processes.remove(running)
        for proxy in (self._redis, self._postgres):
            proxy.resume()
            proxy.cut()
        self._stack.query(
            "TRUNCATE jobs, idempotency_records, attachments, probe_plans, probe_starts,"
            " probe_effects CASCADE"
        )
        self._stack.resources.redis.flushdb()

    def _living(self, name: str) -> Running | None:
        running = self._shared.get(name)
        return running if running and running.process.poll() is None else None

    def _share(self, name: str, running: Running) -> Running:
        self._shared[name] = running
        return running


@pytest.fixture
def hanging() -> Iterator[str]:
    with silent_server() as place:
        yield place


@pytest.fixture(scope="session")
def bench(make_lasting_stack: Callable[[str], Stack]) -> Bench:
    """A stack of which each test starts the bulk workers that it needs."""
    return make_bench(make_lasting_stack("faults"))


@pytest.fixture(scope="session")
def redis_proxy(bench: Bench) -> Iterator[Proxy]:
    """Between the API and Redis."""
    with open_proxy(bench.stack.environment["PRESSROOM_REDIS_URL"]) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def postgres_proxy(bench: Bench) -> Iterator[Proxy]:
    """Between the API and Postgres."""
    with open_proxy(bench.stack.environment["PRESSROOM_DATABASE_URL"]) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def fleet(bench: Bench, redis_proxy: Proxy, postgres_proxy: Proxy) -> Fleet:
    return Fleet(bench.stack, redis_proxy, postgres_proxy)


@pytest.fixture
def api(fleet: Fleet) -> Running:
    return fleet.start_api()


@pytest.fixture
def media(fleet: Fleet) -> Running:
    return fleet.start_media()


@pytest.fixture(autouse=True)
def _left_as_found(fleet: Fleet) -> Iterator[None]:
    yield
    fleet.recover()


@pytest.fixture(scope="session")
def importing(make_lasting_stack: Callable[[str], Stack]) -> Importing:
    return Importing(make_lasting_stack("bulk-faults"))


@pytest.fixture
def importer(importing: Importing) -> Iterator[Owner]:
    """An owner on the stack of imports; the workers that their test starts end with it."""
    yield importing.stack.new_owner()
    for running in tuple(importing.stack.processes):
        kill_all(running)
        importing.stack.processes.remove(running)


def kill_all(running: Running) -> None:
    """kill -9 of a worker and its pool."""
    children = running.children() if running.process.poll() is None else []
    running.kill()
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def children_of(pid: int) -> list[int]:
    """The children of all of its threads."""
    found: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    return found


def descriptors_of(running: Running) -> int:
    return sum(1 for _ in Path(f"/proc/{running.pid}/fd").iterdir())


def pause(running: Running) -> None:
    """SIGSTOP to the process and its pool, as a suspended machine would be."""
    _signal(running, signal.SIGSTOP)


def resume(running: Running) -> None:
    _signal(running, signal.SIGCONT)


def _signal(running: Running, number: signal.Signals) -> None:
    if running.process.poll() is None:
        for pid in (running.pid, *running.children()):
            os.kill(pid, number)


@pytest.fixture(scope="session")
def bank(make_lasting_stack: Callable[[str], Stack]) -> Iterator[Stack]:
    """An API whose provider says nothing: all that it knows is what webhooks say."""
    stack = make_lasting_stack("till")
    with till.unwilling_provider() as url:
        stack.environment |= payment_settings(url, {})
        stack.start_api()
        yield stack


@pytest.fixture(scope="session")
def poster(bank: Stack) -> Iterator[Poster]:
    opened = Poster(bank)
    yield opened
    opened.close()
