"""Tests Pressroom with a message broker that is separate from the main Redis."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx2
import pytest
from pydantic import SecretStr

from core.queues import Queue
from devstack.harness.embedded_services import Services
from devstack.harness.polling import eventually
from devstack.harness.proxy import Proxy, open_proxy
from devstack.harness.stack import Stack
from devstack.supervisor.embedded.valkey import DATABASES
from devstack.supervisor.programs import is_responding
from models import JobStatus
from storage.resources import Resources, open_resources
from tests.support.probe.bench import Bench, make_bench
from tests.support.probe.kind import enqueue_committed_probe

ASKING = "tests.support.probe.asking"


@dataclass(frozen=True)
class SeparateBroker:
    """A stack with an API process, workers for ``request`` and ``bulk``, and a separate broker."""

    bench: Bench
    # The resources have the settings of the processes, so that tests enqueue into the same broker.
    resources: Resources

    def ask(self, text: str) -> httpx2.Response:
        stack = self.bench.stack
        with stack.client(stack.create_owner().key) as client:
            return client.post("/ask", params={"text": text})

    def enqueue(self) -> int:
        return enqueue_committed_probe(self.resources, None)

    def dependencies(self) -> dict[str, str]:
        with self.bench.stack.client() as client:
            dependencies: dict[str, str] = client.get("/readyz").json()["dependencies"]
        return dependencies

    def names(self) -> set[str]:
        """Return the names of all keys in the cache."""
        return {name.decode() for name in self.bench.stack.resources.redis.scan_iter("*")}


def start_processes(stack: Stack) -> Bench:
    """Start an API process, a worker for ``request`` and a worker for ``bulk`` on the stack."""
    bench = make_bench(stack)
    port = stack.api_port
    ready_file = stack.home / f"{stack.name}-asked.ready"
    stack.start(
        "api", "api", str(port), module=ASKING, ready=lambda: is_responding(port, "/healthz")
    )
    stack.start(
        "asked",
        "worker",
        module=ASKING,
        ready=ready_file.exists,
        environment={"PRESSROOM_READY_FILE": str(ready_file)},
    )
    bench.start_worker(concurrency=2)
    return bench


@dataclass(frozen=True)
class ProxiedBroker(SeparateBroker):
    """A separate message broker behind a proxy. The proxy can refuse connections to the broker."""

    proxy: Proxy


@pytest.fixture(scope="module")
def proxied_broker(
    services: Services, make_stack: Callable[[str], Stack]
) -> Iterator[ProxiedBroker]:
    stack = make_stack("apart")
    redis_url = services.environment["PRESSROOM_REDIS_URL"]
    # The proxy forwards connections to a Redis database that no test stack uses.
    with open_proxy(f"{redis_url.rpartition('/')[0]}/{DATABASES - 2}") as proxy:
        stack.environment["PRESSROOM_BROKER_URL"] = proxy.url
        settings = stack.settings().model_copy(update={"broker_url": SecretStr(proxy.url)})
        resources = open_resources(settings, concurrency=2, name="apart")
        yield ProxiedBroker(start_processes(stack), resources, proxy)
        stack.stop()
        resources.close()


@pytest.fixture(autouse=True)
def _resume_broker(proxied_broker: ProxiedBroker) -> Iterator[None]:
    yield
    proxied_broker.proxy.resume()
    eventually(
        lambda: set(proxied_broker.dependencies().values()) == {"ok"}, what="all dependencies"
    )


def test_jobs_and_requests_succeed_with_a_separate_broker(proxied_broker: ProxiedBroker) -> None:
    jobs = [proxied_broker.enqueue() for _ in range(20)]
    for number in range(20):
        reply = proxied_broker.ask(f"number {number}")
        assert (reply.status_code, reply.json()["data"]) == (200, {"echo": f"number {number}"})
    for job_id in jobs:
        assert proxied_broker.bench.finished(job_id).status == JobStatus.SUCCEEDED
        assert proxied_broker.bench.effects(job_id) == 1
    # The messages about jobs are in the broker's Redis. The main Redis contains only keys of API
    # requests (``pressroom``), and keys that this test's own jobs wrote (``probe``).
    assert {name.partition(":")[0] for name in proxied_broker.names()} == {"pressroom", "probe"}


def test_broker_reports_how_many_messages_wait_in_a_queue(proxied_broker: ProxiedBroker) -> None:
    broker = proxied_broker.resources.broker
    queue = Queue.MEDIA
    count_before = broker.count_waiting(queue)
    assert count_before is not None
    for _ in range(3):
        assert broker.send("probe.none", queue, {})
    eventually(lambda: broker.count_waiting(queue) == count_before + 3, what="three more messages")


def test_call_without_broker_gets_503_and_leaves_no_keys_in_redis(
    proxied_broker: ProxiedBroker,
) -> None:
    proxied_broker.proxy.refuse()
    reply = proxied_broker.ask("refused")
    assert (reply.status_code, reply.json()["code"]) == (503, "queue.unavailable")
    available = {"database": "ok", "redis": "ok", "objects": "ok"}
    expected = available | {"broker": "unavailable"}
    eventually(lambda: proxied_broker.dependencies() == expected, what="the unavailable broker")
    key_prefixes = ("pressroom:waiting:", "pressroom:input:", "pressroom:line:")
    eventually(
        lambda: not any(name.startswith(key_prefixes) for name in proxied_broker.names()),
        what="the removal of the rejected request",
    )


def test_jobs_accepted_during_broker_outage_succeed_afterwards(
    proxied_broker: ProxiedBroker,
) -> None:
    proxied_broker.proxy.refuse()
    jobs = [proxied_broker.enqueue() for _ in range(5)]
    proxied_broker.proxy.resume()
    for job_id in jobs:
        assert proxied_broker.bench.finished(job_id, within=60).status == JobStatus.SUCCEEDED
