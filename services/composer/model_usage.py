"""How much the language model was used, summed over every worker in Redis."""

from typing import Any

import redis
from redis.exceptions import RedisError

from core.logging import get_logger
from integrations.llm.port import Usage

log = get_logger(__name__)

_SUMS = "pressroom:llm-usage"
# So that a model's name, which may hold any character but a space, ends where the rest begins.
_APART = " "
CALLS, TOKENS, SECONDS = "calls", "tokens", "seconds"


def note(client: redis.Redis, usage: Usage) -> None:
    """Never raises: a count that is lost is no reason to lose an answer."""
    try:
        with client.pipeline(transaction=False) as together:
            together.hincrby(_SUMS, _name(CALLS, usage.outcome, usage.model), 1)
            together.hincrby(_SUMS, _name(TOKENS, "in", usage.model), usage.tokens_in)
            together.hincrby(_SUMS, _name(TOKENS, "out", usage.model), usage.tokens_out)
            together.hincrbyfloat(_SUMS, _name(SECONDS, "", usage.model), usage.seconds)
            together.execute()
    except RedisError as error:
        log.warning("llm.usage_not_noted", reason=type(error).__name__)


def noted(client: redis.Redis) -> dict[tuple[str, str, str], float]:
    """By what is counted, its outcome or direction, and the model."""
    found = {}
    sums: dict[Any, Any] = client.hgetall(_SUMS)
    for name, value in sums.items():
        what, which, model = name.decode().split(_APART, 2)
        found[what, which, model] = float(value)
    return found


def _name(what: str, which: str, model: str) -> str:
    return _APART.join((what, which, model))
