"""A stack whose composer asks a language model that the sandbox plays and a test steers."""

import time
from collections.abc import Callable
from typing import Any

import httpx2

from devstack.sandbox import sandbox_settings
from tests.stack import Running, Stack

RUN = "composer"
SOURCE = "openai/steered"


class Modelled:
    """An API process and one io worker at a time, by the fallback that a test wants."""

    def __init__(self, make_stack: Callable[[str], Stack], name: str, **environment: str) -> None:
        self.stack = make_stack(name)
        self.stack.start_sandbox()
        self.stack.environment |= {
            "PRESSROOM_LLM_PROVIDER": "openai",
            "PRESSROOM_LLM_BASE_URL": f"{self._run_url}/v1",
            "PRESSROOM_LLM_API_KEY": sandbox_settings.LLM_API_KEY,
            "PRESSROOM_LLM_MODEL": SOURCE.removeprefix("openai/"),
            **environment,
        }
        self.stack.start_api()
        self._workers: dict[str, Running] = {}

    def work(self, fallback: str = "offline", *, concurrency: int = 4) -> Running:
        """The worker with this fallback, and no other."""
        for other in set(self._workers) - {fallback}:
            self._workers.pop(other).stop()
        if fallback not in self._workers:
            self._workers[fallback] = self.stack.start_worker(
                "request", concurrency=concurrency, PRESSROOM_LLM_FALLBACK=fallback
            )
        return self._workers[fallback]

    def rest(self) -> None:
        for worker in self._workers.values():
            worker.stop()
        self._workers.clear()

    def steer(self, model: str | None) -> None:
        """From now on the model answers as the sandbox's of this name."""
        name = None if model is None else f"sandbox-{model}"
        self._run("PUT", json={"model": name})

    def calls(self) -> int:
        """How often the model was asked, each retry counted."""
        return int(self._run("GET")["calls"])

    @property
    def _run_url(self) -> str:
        return f"{self.stack.sandbox_url}{sandbox_settings.LLM_PREFIX}/runs/{RUN}"

    def _run(self, method: str, **content: Any) -> dict[str, Any]:
        reply = httpx2.request(method, self._run_url, timeout=30, **content).raise_for_status()
        found: dict[str, Any] = reply.json()
        return found

    def metric(self, line: str) -> float:
        """The value of the metric that begins so, 0 where there is none."""
        token = self.stack.environment["PRESSROOM_METRICS_TOKEN"]
        reply = httpx2.get(
            f"{self.stack.api_url}/metrics",
            headers={"Authorization": f"Bearer {token}"},
            timeout=30,
        )
        found = [each for each in reply.text.splitlines() if each.startswith(line)]
        return float(found[0].rpartition(" ")[2]) if found else 0.0


def post(words: str = "") -> dict[str, str]:
    """A post that nobody has sent before, as a body."""
    return {
        "title": "How we bake bread",
        "content": "We bake bread every morning in a small shop. The flour comes from a mill by "
        "the river. The dough rests for a night, and the baker shapes the loaves at five. "
        f"Sourdough needs patience and warmth. Issue {time.monotonic_ns()}. {words}",
    }
