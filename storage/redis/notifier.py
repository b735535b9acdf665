"""Notifies the API processes when a worker has finished work that callers wait for."""

import redis

from core.calls.breaker import Breaker
from storage.redis.notifications import build_channel_name, build_notification


class Notifier:
    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._breaker = Breaker("Redis", redis.RedisError)

    def publish(self, waiter: str | None, topic: str, value: str = "") -> None:
        """Notify the API process ``waiter``, or every API process if ``waiter`` is ``None``."""
        channel = build_channel_name(waiter)
        text = build_notification(topic, value)
        self._breaker.attempt(
            "notification.failed", lambda: self._client.publish(channel, text), topic=topic
        )
