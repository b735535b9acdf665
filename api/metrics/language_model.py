"""The language model's metrics: workers call it and note the figures, which are read here."""

from collections.abc import Iterable

import redis
from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector
from redis.exceptions import RedisError

from services.composer import model_usage

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
        for (what, which, model), value in self.sums.items():
            if what == model_usage.CALLS:
                calls.add_metric([model, which], value)
            elif what == model_usage.TOKENS:
                tokens.add_metric([model, which], value)
            else:
                seconds.add_metric([model], value)
        return calls, tokens, seconds


_USAGE = _Usage()
REGISTRY.register(_USAGE)


def collect_llm_usage(client: redis.Redis) -> None:
    """Read the whole deployment's figures from Redis; none while Redis is away."""
    try:
        _USAGE.sums = model_usage.noted(client)
    except RedisError:
        _USAGE.sums = {}
