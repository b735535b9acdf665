"""Waiting for a worker without holding a thread.

A waiting request is a future in a map. A process has one subscriber, which receives notifications,
and one loop for each kind of topic, which looks up results with a single query for all waiting
requests: 500 of them cost no more queries than one. Notifications are only hints: the loop also
looks every 300 ms, so that a lost one (a subscriber's connection can die silently) delays an answer
by no more than that.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import (
    Awaitable,
    Callable,
    Iterator,
    Mapping,
)
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar

from api.limits.bulkheads import BACKGROUND, counted
from api.metrics import WAITING
from core.errors.requests import QUEUE_TOO_MANY_OF_YOURS, QUEUE_TOO_MANY_WAITERS
from core.logging import get_logger
from models import FINISHED
from services.jobs import records
from storage.database import Database
from storage.redis.notifications import job_of

log = get_logger(__name__)

SWEEP_SECONDS = 0.3
MAX_WAITING_REQUESTS = 2_000
# Others can wait too, however many calls of one owner do.
MAX_WAITING_REQUESTS_OF_AN_OWNER = 500

V = TypeVar("V")

Lookup = Callable[[list[str]], Awaitable[Mapping[str, V]]]


class Waiters(Generic[V]):
    """Futures by topic, fulfilled by one loop that calls ``look`` with many topics at once.

    ``look`` returns the values of the topics that are done, and leaves the others out.
    """

    def __init__(self, look: Lookup[V]) -> None:
        self._look = look
        self._futures: dict[str, set[asyncio.Future[V | None]]] = defaultdict(set)
        self._owners: Counter[int] = Counter()
        self._nudged: set[str] = set()
        self._wake = asyncio.Event()
        self.closed = False

    def close(self) -> None:
        """End all waits at once, as if their time had run out: the process is shutting down."""
        self.closed = True
        for futures in self._futures.values():
            for future in futures:
                if not future.done():
                    future.set_result(None)

    async def wait(self, topic: str, seconds: float, *, owner_id: int = 0) -> V | None:
        """The value that ``look`` found for the topic, or ``None`` when the time ran out.

        Raises ``queue.too_many_waiters``. The owner's share is looked at by ``check_room`` alone.
        """
        with self.registered(topic) as future, counted(self._owners, owner_id):
            self.nudge(topic)
            with suppress(TimeoutError):
                return await asyncio.wait_for(future, seconds)
            return None

    def check_room(self, owner_id: int) -> None:
        """Refuse an owner's call that would wait, before anything of it is stored.

        Raises ``queue.too_many_waiters``, ``queue.too_many_of_yours``.
        """
        if len(self._futures) >= MAX_WAITING_REQUESTS:
            raise QUEUE_TOO_MANY_WAITERS()
        if self._owners[owner_id] >= MAX_WAITING_REQUESTS_OF_AN_OWNER:
            raise QUEUE_TOO_MANY_OF_YOURS()

    def nudge(self, topic: str) -> None:
        """Look the topic up at once, since it may be done."""
        if topic in self._futures:
            self._nudged.add(topic)
            self._wake.set()

    def fulfil(self, topic: str, value: V) -> None:
        for future in self._futures.get(topic, ()):
            if not future.done():
                future.set_result(value)

    async def run(self) -> None:
        clock = asyncio.get_running_loop().time
        look_at_all = clock() + SWEEP_SECONDS
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), look_at_all - clock())
            self._wake.clear()
            topics, self._nudged = list(self._nudged), set()
            if clock() >= look_at_all:
                topics = list(self._futures)
                look_at_all = clock() + SWEEP_SECONDS
            try:
                found = await self._look(topics) if topics else {}
            except Exception as error:  # noqa: BLE001 - no failed lookup may end the loop
                log.warning("waiting.look_failed", reason=type(error).__name__)
                await asyncio.sleep(SWEEP_SECONDS)
            else:
                for topic, value in found.items():
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


def hear(waiters: Waiters[bool], topic: str, status: str) -> None:
    """A listener of the subscriber.

    A notification is only a hint, so the database is asked: pub/sub also carries those of other
    deployments on the same Redis server, whichever database they use.
    """
    if status in FINISHED:
        waiters.nudge(topic)


def lookup(database: Database) -> Lookup[bool]:
    def read(topics: list[str]) -> Mapping[str, bool]:
        wanted = {topic: job_of(topic) for topic in topics}
        finished = records.find_finished_jobs(database, list(wanted.values()))
        return {topic: True for topic, job_id in wanted.items() if job_id in finished}

    return lambda topics: BACKGROUND.run(read, topics)
