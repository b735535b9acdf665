"""A stack whose composer uses the sandbox's language model, with a behaviour that a test sets."""

import time
from collections.abc import Callable
from decimal import Decimal

from devstack.harness.running import Running
from devstack.harness.stack import Stack
from devstack.sandbox import sandbox_settings
from tests.support.composer.language_model import LanguageModelRun

MODEL_SOURCE = "openai/steered"
# The price of a composer call in credits, on stacks where composer calls cost credits.
CALL_PRICE = Decimal("2.5")


def steered_settings(run: LanguageModelRun) -> dict[str, str]:
    return {
        "PRESSROOM_LLM_PROVIDER": "openai",
        "PRESSROOM_LLM_BASE_URL": run.base_url,
        "PRESSROOM_LLM_API_KEY": sandbox_settings.LLM_API_KEY,
        "PRESSROOM_LLM_MODEL": MODEL_SOURCE.removeprefix("openai/"),
    }


class ComposerStack:
    """A stack with an API process, and one worker with the fallback that a test chooses."""

    def __init__(self, make_stack: Callable[[str], Stack], name: str, **environment: str) -> None:
        self.stack = make_stack(name)
        self.stack.start_sandbox()
        self._run = LanguageModelRun(self.stack.sandbox_url)
        self.stack.environment |= {**steered_settings(self._run), **environment}
        self.stack.start_api()
        self._workers: dict[str, Running] = {}

    def work(self, fallback: str = "offline", *, concurrency: int = 4) -> Running:
        for other in set(self._workers) - {fallback}:
            self._workers.pop(other).stop()
        if fallback not in self._workers:
            self._workers[fallback] = self.stack.start_worker(
                "request", concurrency=concurrency, PRESSROOM_LLM_FALLBACK=fallback
            )
        return self._workers[fallback]

    def stop_workers(self) -> None:
        for worker in self._workers.values():
            worker.stop()
        self._workers.clear()

    def steer(self, model: str | None) -> None:
        self._run.steer(model)

    def calls(self) -> int:
        """Return the number of requests to the language model, including retries."""
        return self._run.calls


def build_unique_post(words: str = "") -> dict[str, str]:
    """Return the body of a request with a post that no other test sends."""
    return {
        "title": "How we bake bread",
        "content": "We bake bread every morning in a small shop. The flour comes from a mill by "
        "the river. The dough rests for a night, and the baker shapes the loaves at five. "
        f"Sourdough needs patience and warmth. Issue {time.monotonic_ns()}. {words}",
    }
