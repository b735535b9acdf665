"""Sends notifications. Their names are apart: commands use them without the library of Redis."""

import redis

from core.calls.breaker import Breaker
from storage.redis.notifications import channel_of, message


class Notifier:
    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._breaker = Breaker("Redis", redis.RedisError)

    def tell(self, waiter: str | None, topic: str, value: str = "") -> None:
        """Tell the process with this name, or all processes where no name is known."""
        channel, text = channel_of(waiter), message(topic, value)
        self._breaker.attempt(
            "notification.failed", lambda: self._client.publish(channel, text), topic=topic
        )
