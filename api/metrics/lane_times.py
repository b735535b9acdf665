"""How long each lane takes to begin with a message: workers note it, and it is read here."""

import redis
from prometheus_client import Gauge
from redis.exceptions import RedisError

from storage.redis.canaries import Canaries

_SECONDS = Gauge(
    "pressroom_canary_seconds", "Time from sending a message to doing its task", ["lane"]
)


def collect_canaries(client: redis.Redis) -> None:
    """None are shown while Redis is away."""
    _SECONDS.clear()
    try:
        found = Canaries(client).seconds()
    except RedisError:
        return
    for lane, seconds in found.items():
        _SECONDS.labels(lane).set(seconds)
