"""Refuses work that would wait too long in a queue before a worker starts it."""

import asyncio
import math

import redis
from redis.exceptions import RedisError

from api.limits.bulkheads import BACKGROUND
from core.errors import DomainError
from core.errors.requests import QUEUE_OVERLOADED
from core.queues import Queue
from storage.redis.canaries import Canaries

READ_EVERY_SECONDS = 1.0
# The maximum time that work may spend in a queue while a caller waits for the result.
MAX_QUEUE_SECONDS_WHILE_WAITING = 30.0
# The maximum time in a queue for work whose result nobody waits for. If work waits longer than
# this, the workers might never catch up.
MAX_QUEUE_SECONDS = 600.0
_MAX_RETRY_AFTER_SECONDS = 60


class QueueAges:
    """The waiting times are read from Redis once per second."""

    def __init__(self, client: redis.Redis) -> None:
        self._canaries = Canaries(client)
        self._seconds: dict[str, float] = {}

    def check(self, queue: Queue, *, waits: bool) -> None:
        """Raise ``queue.overloaded`` if work would wait too long in the queue."""
        age = self._seconds.get(queue, 0.0)
        if age > (MAX_QUEUE_SECONDS_WHILE_WAITING if waits else MAX_QUEUE_SECONDS):
            raise QUEUE_OVERLOADED(retry_after=min(math.ceil(age), _MAX_RETRY_AFTER_SECONDS))

    async def run(self) -> None:
        while True:
            try:
                self._seconds = await BACKGROUND.run(self._canaries.read_delays)
            except (RedisError, DomainError):
                # If the delays of the queues can't be read, accept all requests.
                self._seconds = {}
            await asyncio.sleep(READ_EVERY_SECONDS)
