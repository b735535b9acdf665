"""Processes of a stack whose broker and cache are separate servers."""

from dataclasses import dataclass

import httpx2

from devstack.harness.stack import Stack
from devstack.supervisor.programs import answers
from storage.resources import Resources
from tests.support.probe.bench import Bench, make_bench
from tests.support.probe.kind import plan_committed

ASKING = "tests.support.probe.asking"


@dataclass(frozen=True)
class SeparateBroker:
    """An API, a worker for ``request``, a worker for ``bulk`` and a broker of their own."""

    bench: Bench
    # With the settings of the processes, so that what is enqueued goes through the same broker.
    resources: Resources

    def ask(self, text: str) -> httpx2.Response:
        stack = self.bench.stack
        with stack.client(stack.new_owner().key) as client:
            return client.post("/ask", params={"text": text})

    def enqueue(self) -> int:
        return plan_committed(self.resources, None)

    def dependencies(self) -> dict[str, str]:
        with self.bench.stack.client() as client:
            found: dict[str, str] = client.get("/readyz").json()["dependencies"]
        return found

    def names(self) -> set[str]:
        """Of all that the cache has."""
        return {name.decode() for name in self.bench.stack.resources.redis.scan_iter("*")}


def start_processes(stack: Stack) -> Bench:
    """An API and a worker of the queues ``request`` and ``bulk`` each, by the stack's settings."""
    bench = make_bench(stack)
    port, mark = stack.api_port, stack.home / f"{stack.name}-asked.ready"
    stack.start("api", "api", str(port), module=ASKING, ready=lambda: answers(port, "/healthz"))
    stack.start(
        "asked",
        "worker",
        module=ASKING,
        ready=mark.exists,
        environment={"PRESSROOM_READY_FILE": str(mark)},
    )
    bench.start_worker(concurrency=2)
    return bench
