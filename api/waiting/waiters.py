"""Waiting for a worker without holding a thread.

A waiting request is a future in a map. One subscriber per process receives notifications, and one
loop per kind of topic looks up results, with a single query for all waiting requests: 500 of them
cost no more queries than one. Notifications are only hints: the loop also looks every 300 ms, so
that a lost one (a subscriber's connection can die silently) delays an answer by no more than that.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Generic, TypeVar

from api.metrics.requests import WAITING
from core.logging import get_logger
from core.refusals.requests import QUEUE_TOO_MANY_OF_YOURS, QUEUE_TOO_MANY_WAITERS

log = get_logger(__name__)

LOOK_EVERY_SECONDS = 0.3
_PAUSE_BEFORE_CANCELLING_AGAIN = 0.2
MAX_WAITING_REQUESTS = 2_000
# So that the others can wait too, however many calls of one owner do.
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
        with self.registered(topic) as future:
            self._owners[owner_id] += 1
            try:
                self.nudge(topic)
                return await result_within(future, seconds)
            finally:
                self._owners[owner_id] -= 1
                if not self._owners[owner_id]:
                    del self._owners[owner_id]

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
        look_at_all = clock() + LOOK_EVERY_SECONDS
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), look_at_all - clock())
            self._wake.clear()
            topics, self._nudged = list(self._nudged), set()
            if clock() >= look_at_all:
                topics = list(self._futures)
                look_at_all = clock() + LOOK_EVERY_SECONDS
            try:
                found = await self._look(topics) if topics else {}
            except Exception as error:  # noqa: BLE001 - no failed lookup may end the loop
                log.warning("waiting.look_failed", reason=type(error).__name__)
                await asyncio.sleep(LOOK_EVERY_SECONDS)
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


async def result_within(future: asyncio.Future[V | None], seconds: float) -> V | None:
    """The future's value, or ``None`` when the time runs out."""
    with suppress(TimeoutError):
        return await asyncio.wait_for(future, seconds)
    return None


@asynccontextmanager
async def background_loops(*loops: Awaitable[None]) -> AsyncIterator[None]:
    """Run endless loops while the block lasts."""
    tasks = [asyncio.ensure_future(loop) for loop in loops]
    try:
        yield
    finally:
        unfinished = set(tasks)
        while unfinished:
            # Once more: what a loop waits for may take a cancellation for its own, such as a
            # connection that is being made.
            for task in unfinished:
                task.cancel()
            _, unfinished = await asyncio.wait(unfinished, timeout=_PAUSE_BEFORE_CANCELLING_AGAIN)
