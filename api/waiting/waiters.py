"""Waiting for a worker without holding a thread.

A waiting request is a future in a map. A process has one subscriber, which receives notifications,
and one loop for each kind of topic, which looks up results with a single query for all waiting
requests: 500 of them cost no more queries than one. Notifications are only hints: the loop also
looks every 300 ms, so that a lost one (a subscriber's connection can die silently) delays an answer
by no more than that.
"""

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterator,
    Mapping,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Generic, TypeVar

import redis
import redis.asyncio
from redis.exceptions import RedisError
from starlette.types import Receive

from api.limits.bulkheads import BACKGROUND, counted
from api.metrics import WAITING
from core.errors import DomainError
from core.errors.requests import QUEUE_OVERLOADED, QUEUE_TOO_MANY_OF_YOURS, QUEUE_TOO_MANY_WAITERS
from core.logging import get_logger
from core.queues import Queue
from models import FINISHED
from services.jobs import records
from storage.database import Database
from storage.redis.canaries import Canaries
from storage.redis.notifications import CHANNEL, channel_of, job_of, job_topic

log = get_logger(__name__)

SWEEP_SECONDS = 0.3
_PAUSE_BEFORE_CANCELLING_AGAIN = 0.2
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


# A connection counts as dead after so many seconds without a message or a ping's answer.
_MAX_SILENCE_SECONDS = 4
_PAUSE_BEFORE_RECONNECTING_SECONDS = 0.3

Listener = Callable[[str, str], None]


class NotificationsSilent(Exception):
    """The connection is silent, and does not answer pings."""


class Subscriber:
    """Receives the notifications for one process, by the name ``waiter``, and those for all.

    It passes topic and value to its listeners.
    """

    def __init__(self, client: redis.asyncio.Redis, waiter: str | None) -> None:
        self._client = client
        self._channels = {CHANNEL, channel_of(waiter)}
        self._listeners: list[Listener] = []

    @contextmanager
    def listening(self, listener: Listener) -> Iterator[None]:
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    async def run(self) -> None:
        while True:
            try:
                async for message in self._messages():
                    topic, _, value = message.partition(" ")
                    for listener in tuple(self._listeners):
                        listener(topic, value)
            except Exception as error:  # noqa: BLE001 - no failure may end the subscription
                log.warning("subscriber.reconnecting", reason=type(error).__name__)
                await asyncio.sleep(_PAUSE_BEFORE_RECONNECTING_SECONDS)

    async def _messages(self) -> AsyncIterator[str]:
        async with self._client.pubsub() as pubsub:
            await pubsub.subscribe(*self._channels)
            silent = 0
            while silent < _MAX_SILENCE_SECONDS:
                message = await pubsub.get_message(timeout=1.0)
                if message is None:
                    silent += 1
                    # A ping's answer counts as a message, so only a dead connection stays silent.
                    await pubsub.ping()
                    continue
                silent = 0
                if message["type"] == "message":
                    yield message["data"].decode()
        raise NotificationsSilent


# How long a lost notification delays an event.
LOOK_EVERY_SECONDS = 1.0


@contextmanager
def job_changes(
    subscriber: Subscriber, job_ids: Collection[int]
) -> Iterator[Callable[[], Awaitable[None]]]:
    """Give a wait until one of the jobs has changed, or until it is time to look anyway."""
    changed = asyncio.Event()
    topics = {job_topic(job_id) for job_id in job_ids}

    def listener(topic: str, _: str) -> None:
        if topic in topics:
            changed.set()

    async def wait() -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), LOOK_EVERY_SECONDS)
        changed.clear()

    with subscriber.listening(listener):
        yield wait


T = TypeVar("T")


class CallerDisconnected(Exception):
    """The caller hung up before its answer."""


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The work's result. If the caller hangs up, cancel the work and raise ``CallerDisconnected``.

    The request's body must have been read before: the next message is then the connection's end.
    """
    working = asyncio.ensure_future(work)

    async def disconnected() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    leaving = asyncio.ensure_future(disconnected())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise CallerDisconnected
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


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
