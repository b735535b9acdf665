"""How long a message waits in each lane, as canaries found it, and who is refused for it."""

import asyncio
import math

import redis
from redis.exceptions import RedisError

from api.limits.bulkheads import BACKGROUND
from core.errors import DomainError
from core.lanes import Lane
from core.refusals.requests import QUEUE_OVERLOADED
from storage.redis.canaries import Canaries

LOOK_EVERY_SECONDS = 1.0
# A caller who waits has little of the wait left by then. Work that no caller waits for may be late,
# but not so late that what is accepted can never be done.
MAX_SECONDS_OF_WAITERS = 30.0
MAX_SECONDS = 600.0
_MAX_RETRY_AFTER_SECONDS = 60


class LaneAges:
    """Looked at once a second for the whole process, so that no call asks for itself."""

    def __init__(self, client: redis.Redis) -> None:
        self._canaries = Canaries(client)
        self._seconds: dict[str, float] = {}

    def check(self, lane: Lane, *, waits: bool) -> None:
        """Refuse what would stand too long in the lane: raises ``queue.overloaded``."""
        age = self._seconds.get(lane, 0.0)
        if age > (MAX_SECONDS_OF_WAITERS if waits else MAX_SECONDS):
            raise QUEUE_OVERLOADED(retry_after=min(math.ceil(age), _MAX_RETRY_AFTER_SECONDS))

    async def run(self) -> None:
        while True:
            try:
                self._seconds = await BACKGROUND.run(self._canaries.seconds)
            except (RedisError, DomainError):
                # What is not known refuses no caller.
                self._seconds = {}
            await asyncio.sleep(LOOK_EVERY_SECONDS)
