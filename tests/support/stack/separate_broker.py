"""A stack in which the Celery broker and the cache are separate Redis databases."""

from dataclasses import dataclass

import httpx2

from devstack.harness.stack import Stack
from devstack.supervisor.programs import is_responding
from storage.resources import Resources
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
