"""Requests that wait for a result without holding a thread.

A waiting request is a future in a map. Each kind of topic has one loop. The loop looks up the
results of all waiting requests with a single query, so 500 requests need no more queries than one.

Notifications are only hints, and a subscriber's connection can die silently. Therefore the loop
also looks up all topics every 300 ms, which bounds the delay after a lost notification.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar

from api.limits.bulkheads import BACKGROUND
from api.metrics import WAITING
from api.waiting.open_counts import counted
from core.errors.requests import QUEUE_TOO_MANY_OF_YOURS, QUEUE_TOO_MANY_WAITERS
from core.logging import get_logger
from models import FINISHED
from services.jobs import records
from storage.database import Database
from storage.redis.notifications import parse_job_topic

log = get_logger(__name__)

LOOK_UP_ALL_SECONDS = 0.3
MAX_WAITING_REQUESTS = 2_000
# This bound leaves room for other owners, however many requests of one owner wait.
MAX_WAITING_REQUESTS_OF_AN_OWNER = 500

V = TypeVar("V")

Lookup = Callable[[list[str]], Awaitable[Mapping[str, V]]]


class Waiters(Generic[V]):
    """Futures by topic, which one loop fulfils.

    The loop calls ``look_up`` with many topics at once. ``look_up`` returns the values of the
    topics that have one.
    """

    def __init__(self, look_up: Lookup[V]) -> None:
        self._look_up = look_up
        self._futures: dict[str, set[asyncio.Future[V | None]]] = defaultdict(set)
        self._owners: Counter[int] = Counter()
        self._nudged: set[str] = set()
        self._wake = asyncio.Event()
        self.closed = False

    def close(self) -> None:
        """End all waits as if their time had run out, because the process is shutting down."""
        self.closed = True
        for futures in self._futures.values():
            for future in futures:
                if not future.done():
                    future.set_result(None)

    async def wait(self, topic: str, seconds: float, *, owner_id: int = 0) -> V | None:
        """Return the value of the topic, or ``None`` when the time has run out.

        Raises ``queue.too_many_waiters``. Only ``check_room`` checks the owner's bound.
        """
        with self.registered(topic) as future, counted(self._owners, owner_id):
            self.nudge(topic)
            with suppress(TimeoutError):
                return await asyncio.wait_for(future, seconds)
            return None

    def check_room(self, owner_id: int) -> None:
        """Refuse a request that would have to wait, before any of its data is stored.

        Raises ``queue.too_many_waiters``, ``queue.too_many_of_yours``.
        """
        if len(self._futures) >= MAX_WAITING_REQUESTS:
            raise QUEUE_TOO_MANY_WAITERS()
        if self._owners[owner_id] >= MAX_WAITING_REQUESTS_OF_AN_OWNER:
            raise QUEUE_TOO_MANY_OF_YOURS()

    def nudge(self, topic: str) -> None:
        """Look the topic up at once, because its value may have arrived."""
        if topic in self._futures:
            self._nudged.add(topic)
            self._wake.set()

    def fulfil(self, topic: str, value: V) -> None:
        for future in self._futures.get(topic, ()):
            if not future.done():
                future.set_result(value)

    async def run(self) -> None:
        clock = asyncio.get_running_loop().time
        look_up_all_at = clock() + LOOK_UP_ALL_SECONDS
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), look_up_all_at - clock())
            self._wake.clear()
            topics = list(self._nudged)
            self._nudged = set()
            if clock() >= look_up_all_at:
                topics = list(self._futures)
                look_up_all_at = clock() + LOOK_UP_ALL_SECONDS
            try:
                values = await self._look_up(topics) if topics else {}
            except Exception as error:  # noqa: BLE001 - no failed lookup may end the loop
                log.warning("waiting.look_failed", reason=type(error).__name__)
                await asyncio.sleep(LOOK_UP_ALL_SECONDS)
            else:
                for topic, value in values.items():
                    self.fulfil(topic, value)

    @contextmanager
    def registered(self, topic: str) -> Iterator[asyncio.Future[V | None]]:
        if len(self._futures) >= MAX_WAITING_REQUESTS:
            raise QUEUE_TOO_MANY_WAITERS()
        future: asyncio.Future[V | None] = asyncio.get_running_loop().create_future()
        if self.closed:
            future.set_result(None)
        self._futures[topic].add(future)
        WAITING.inc()
        try:
            yield future
        finally:
            WAITING.dec()
            self._futures[topic].discard(future)
            if not self._futures[topic]:
                del self._futures[topic]


def deliver_job_status(waiters: Waiters[bool], topic: str, status: str) -> None:
    """Look up a job whose notification says that it has ended.

    The database decides, because notifications also come from other deployments on the same Redis
    server: pub/sub ignores the number of the Redis database.
    """
    if status in FINISHED:
        waiters.nudge(topic)


def job_lookup(database: Database) -> Lookup[bool]:
    """Return a lookup that finds the jobs that have ended."""

    def find_ended_jobs(topics: list[str]) -> Mapping[str, bool]:
        job_ids = {topic: parse_job_topic(topic) for topic in topics}
        finished_ids = records.find_finished_jobs(database, list(job_ids.values()))
        return {topic: True for topic, job_id in job_ids.items() if job_id in finished_ids}

    return lambda topics: BACKGROUND.run(find_ended_jobs, topics)
