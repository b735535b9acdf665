"""Refuses work that would wait too long in its queue."""

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
# The maximum delay of a queue if callers wait for the results of the work.
MAX_QUEUE_SECONDS_WHILE_WAITING = 30.0
# The maximum delay of a queue if no caller waits for the results of the work. If the delay of a
# queue were longer, the workers might never catch up.
MAX_QUEUE_SECONDS = 600.0
_MAX_RETRY_AFTER_SECONDS = 60


class QueueAges:
    """The delays with which workers start the work in each queue.

    The delays of the queues are read from Redis once per second.
    """

    def __init__(self, client: redis.Redis) -> None:
        self._canaries = Canaries(client)
        self._seconds: dict[str, float] = {}

    def check(self, queue: Queue, *, waits: bool) -> None:
        """Raise ``queue.overloaded`` if new work in the queue would start too late.

        Args:
            waits: whether a caller waits for the result of the work.
        """
        age = self._seconds.get(queue, 0.0)
        if age > (MAX_QUEUE_SECONDS_WHILE_WAITING if waits else MAX_QUEUE_SECONDS):
            raise QUEUE_OVERLOADED(retry_after=min(math.ceil(age), _MAX_RETRY_AFTER_SECONDS))

    async def run(self) -> None:
        while True:
            try:
                self._seconds = await BACKGROUND.run(self._canaries.read_delays)
            except (RedisError, DomainError):
                # Accept all work while the delays of the queues are unknown.
                self._seconds = {}
            await asyncio.sleep(READ_EVERY_SECONDS)
