"""Lets requests wait for a result, such as the end of a job, without occupying a thread.

Each waiting request has an asyncio future, which is registered under a topic. A topic is the name
under which a worker publishes a result. A single query looks up all results, however many requests
wait.

A notification from a worker makes the background loop look up the finished work's result
immediately. Notifications can get lost, so all results are also looked up every 300 ms.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar

from api.limits.bulkheads import BACKGROUND
from api.limits.places import current_place
from api.metrics import WAITING_REQUESTS
from api.waiting.open_counts import count_while_open
from core.errors.requests import QUEUE_TOO_MANY_OF_YOURS, QUEUE_TOO_MANY_WAITERS
from core.ids import AccountId
from core.logging import get_logger
from models import FINISHED
from services.jobs import records
from storage.database import Database
from storage.redis.notifications import parse_job_topic

log = get_logger(__name__)

LOOK_UP_ALL_SECONDS = 0.3
MAX_WAITING_REQUESTS = 2_000
# The maximum number of waiting requests per owner, so that one owner can't use up
# ``MAX_WAITING_REQUESTS``.
MAX_WAITING_REQUESTS_PER_OWNER = 500

V = TypeVar("V")

Lookup = Callable[[list[str]], Awaitable[Mapping[str, V]]]


class Waiters(Generic[V]):
    """``look_up`` returns the known results by topic."""

    def __init__(self, look_up: Lookup[V]) -> None:
        self._look_up = look_up
        self._futures: dict[str, set[asyncio.Future[V | None]]] = defaultdict(set)
        self._owners: Counter[AccountId | None] = Counter()
        self._nudged: set[str] = set()
        self._wake = asyncio.Event()
        self.closed = False

    def close(self) -> None:
        """Wake all requests, as if their timeouts had expired."""
        self.closed = True
        for futures in self._futures.values():
            for future in futures:
                if not future.done():
                    future.set_result(None)

    async def wait(
        self, topic: str, seconds: float, *, account_id: AccountId | None = None
    ) -> V | None:
        """Return ``None`` after a timeout.

        ``check_room`` enforces the limit on waiting requests per owner.
        """
        with self.register(topic) as future, count_while_open(self._owners, account_id):
            self.nudge(topic)
            with suppress(TimeoutError):
                return await asyncio.wait_for(future, seconds)
            return None

    def check_room(self, account_id: AccountId) -> None:
        """Raise an error if the owner or the process has too many waiting requests."""
        if len(self._futures) >= MAX_WAITING_REQUESTS:
            raise QUEUE_TOO_MANY_WAITERS()
        if self._owners[account_id] >= MAX_WAITING_REQUESTS_PER_OWNER:
            raise QUEUE_TOO_MANY_OF_YOURS()

    def nudge(self, topic: str) -> None:
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
            except Exception as error:  # noqa: BLE001 - a failed lookup must not end the loop
                log.warning("waiting.look_failed", reason=type(error).__name__)
                await asyncio.sleep(LOOK_UP_ALL_SECONDS)
            else:
                for topic, value in values.items():
                    self.fulfil(topic, value)

    @contextmanager
    def register(self, topic: str) -> Iterator[asyncio.Future[V | None]]:
        if len(self._futures) >= MAX_WAITING_REQUESTS:
            raise QUEUE_TOO_MANY_WAITERS()
        future: asyncio.Future[V | None] = asyncio.get_running_loop().create_future()
        if self.closed:
            future.set_result(None)
        self._futures[topic].add(future)
        WAITING_REQUESTS.inc()
        try:
            with current_place().paused():
                yield future
        finally:
            WAITING_REQUESTS.dec()
            self._futures[topic].discard(future)
            if not self._futures[topic]:
                del self._futures[topic]


def deliver_job_status(waiters: Waiters[bool], topic: str, status: str) -> None:
    """Look up a job in the database when a notification reports the job's end.

    The status in the notification isn't trusted, because it may come from another deployment.
    Redis's channels span all its databases.
    """
    if status in FINISHED:
        waiters.nudge(topic)


def build_job_lookup(database: Database) -> Lookup[bool]:
    """Return a function that finds out which jobs have ended."""

    def find_ended_jobs(topics: list[str]) -> Mapping[str, bool]:
        job_ids = {topic: parse_job_topic(topic) for topic in topics}
        finished_ids = records.find_finished_jobs(database, list(job_ids.values()))
        return {topic: True for topic, job_id in job_ids.items() if job_id in finished_ids}

    return lambda topics: BACKGROUND.run(find_ended_jobs, topics)
