"""Sums of the language model's use over all workers, kept in Redis."""

from typing import Any

import redis
from redis.exceptions import RedisError

from core.logging import get_logger
from integrations.llm.port import Usage

log = get_logger(__name__)

_SUMS = "pressroom:llm-usage"
# A model's name may hold any character but this one.
_APART = " "
CALLS, TOKENS, SECONDS = "calls", "tokens", "seconds"


def note(client: redis.Redis, usage: Usage) -> None:
    """Never raises: a lost count is no reason to lose an answer."""
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
    """The sums by what is counted, its outcome or direction, and the model."""
    sums: dict[Any, Any] = client.hgetall(_SUMS)
    found = {}
    for name, value in sums.items():
        what, which, model = name.decode().split(_APART, 2)
        found[what, which, model] = float(value)
    return found


def _name(what: str, which: str, model: str) -> str:
    return _APART.join((what, which, model))
