"""The language model's metrics: workers call it and note the figures, which are read here."""

from collections.abc import Iterable

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from services.composer import model_usage as usage

Sums = dict[tuple[str, str, str], float]


class _Usage(Collector):
    def __init__(self) -> None:
        self.sums: Sums = {}

    def collect(self) -> Iterable[CounterMetricFamily]:
        calls = CounterMetricFamily(
            "pressroom_llm_calls", "Questions to the language model", labels=["model", "outcome"]
        )
        tokens = CounterMetricFamily(
            "pressroom_llm_tokens", "Tokens of the language model", labels=["model", "direction"]
        )
        seconds = CounterMetricFamily(
            "pressroom_llm_seconds", "Time spent on asking the language model", labels=["model"]
        )
        families = {usage.CALLS: calls, usage.TOKENS: tokens, usage.SECONDS: seconds}
        for (what, which, model), value in self.sums.items():
            families[what].add_metric([model, which] if which else [model], value)
        return families.values()


_USAGE = _Usage()
REGISTRY.register(_USAGE)


def show_usage(sums: Sums) -> None:
    """Show these figures of the whole deployment from now on."""
    _USAGE.sums = sums
