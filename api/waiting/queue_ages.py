"""The ages of the queues, by which calls are refused that would wait too long."""

import asyncio
import math

import redis
import redis.asyncio
from redis.exceptions import RedisError

from api.limits.bulkheads import BACKGROUND
from core.errors import DomainError
from core.errors.requests import QUEUE_OVERLOADED
from core.queues import Queue
from storage.redis.canaries import Canaries

LOOK_AT_QUEUES_EVERY_SECONDS = 1.0
# A caller who waits has little of the wait left by then. Work that no caller waits for may be late,
# but not so late that what is accepted can never be done.
MAX_QUEUE_SECONDS_OF_WAITERS = 30.0
MAX_QUEUE_SECONDS = 600.0
_MAX_RETRY_AFTER_SECONDS = 60


class QueueAges:
    """The ages of the queues, read once a second for the whole process."""

    def __init__(self, client: redis.Redis) -> None:
        self._canaries = Canaries(client)
        self._seconds: dict[str, float] = {}

    def check(self, queue: Queue, *, waits: bool) -> None:
        """Refuse what would stand too long in the queue: raises ``queue.overloaded``."""
        age = self._seconds.get(queue, 0.0)
        if age > (MAX_QUEUE_SECONDS_OF_WAITERS if waits else MAX_QUEUE_SECONDS):
            raise QUEUE_OVERLOADED(retry_after=min(math.ceil(age), _MAX_RETRY_AFTER_SECONDS))

    async def run(self) -> None:
        while True:
            try:
                self._seconds = await BACKGROUND.run(self._canaries.seconds)
            except (RedisError, DomainError):
                # A queue whose age is not known refuses no caller.
                self._seconds = {}
            await asyncio.sleep(LOOK_AT_QUEUES_EVERY_SECONDS)
