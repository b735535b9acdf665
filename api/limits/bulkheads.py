"""Bulkheads: the threads of this process, divided, so that what hangs in one part stops no other.

Each handler that blocks, for the database, Redis, object storage or a core, works in the threads of
one bulkhead. A caller who finds all of them busy waits for a bounded time among a bounded number of
callers, and is refused with 503 then. FastAPI's own threads serve no handler: a test looks at that.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from contextvars import copy_context
from functools import partial, wraps
from threading import Lock
from typing import Any, Generic, ParamSpec, TypeVar
from weakref import WeakValueDictionary

import psycopg2
from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError

from api.metrics import REFUSED
from core.errors import DomainError, TransientError, access, mailing, requests
from core.errors.catalogue import ErrorType

P = ParamSpec("P")
T = TypeVar("T")
K = TypeVar("K")

# The longest wait of most callers for a thread: a multiple of what a burst of small requests takes,
# and less than the patience of those who made them.
MAX_WAIT_SECONDS = 2.0
MAX_WAITING_CALLERS = 1_000

_END = object()


class Bulkhead:
    """``threads`` threads of their own, and the callers who wait for one of them."""

    def __init__(
        self,
        name: str,
        threads: int,
        *,
        wait_seconds: float = MAX_WAIT_SECONDS,
        max_waiting: int = MAX_WAITING_CALLERS,
        error: ErrorType = requests.SERVICE_BUSY,
    ) -> None:
        self.name = name
        self.threads = threads
        self._wait_seconds = wait_seconds
        self._most = threads + max_waiting
        self._error = error
        # A pool by itself costs a call half of what the shared threads of anyio cost it.
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._lock = Lock()
        self._under_way = 0

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the work's result; raises the error when no thread is free in time.

        Work that has begun goes on when its caller is cancelled, and keeps its thread until its
        end.
        """
        with self._lock:
            has_thread = self._under_way < self.threads
            is_full = self._under_way >= self._most
            self._under_way += not is_full
        if is_full:
            raise self._refused()
        call = partial(copy_context().run, work, *args, **kwargs)
        begun = self._pool.submit(call)

        def count_down(_: Future[Any]) -> None:
            with self._lock:
                self._under_way -= 1

        begun.add_done_callback(count_down)
        is_refused = False

        def refuse() -> None:
            # Work that has begun can't be cancelled.
            nonlocal is_refused
            is_refused = begun.cancel()

        loop = asyncio.get_running_loop()
        timer = None if has_thread else loop.call_later(self._wait_seconds, refuse)
        try:
            return await asyncio.wrap_future(begun)
        except asyncio.CancelledError:
            if is_refused:
                raise self._refused() from None
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def threaded(self, handler: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
        """Let this function work in the bulkhead's threads: a decorator for routes."""

        @wraps(handler)
        async def in_thread(*args: P.args, **kwargs: P.kwargs) -> T:
            return await self.run(_committed(handler), *args, **kwargs)

        return in_thread

    async def iterate(self, items: Iterator[T]) -> AsyncIterator[T]:
        """Yield items, each made in a thread: a slow receiver holds none between two of them."""
        while (item := await self.run(partial(next, items, _END))) is not _END:
            yield item

    def _refused(self) -> Exception:
        REFUSED.labels(self.name).inc()
        return self._error()


def _committed(handler: Callable[P, T]) -> Callable[P, T]:
    """Commit the ``uow`` that a handler has, in its thread and before it answers."""

    def work(*args: P.args, **kwargs: P.kwargs) -> T:
        uow: Any = kwargs.get("uow", nullcontext())
        with uow:
            return handler(*args, **kwargs)

    return work


# The check of credentials, which every other part of the service stands on.
AUTHENTICATION = Bulkhead("authentication", 4)
# Each hash of a password takes 64 MiB and a core for a while, and so few are made at a time.
PASSWORDS = Bulkhead("passwords", 4, wait_seconds=30.0, max_waiting=56, error=access.LOGIN_BUSY)
# Charges, balances, orders and the payment providers' notifications.
MONEY = Bulkhead("money", 10)
# Acts on one list, which wait for its lock.
LISTS = Bulkhead("lists", 8)
# Leaving a list and switching its mail off, which no crowd of subscribers may hold up.
LEAVING = Bulkhead("leaving", 3, wait_seconds=10.0)
# Reads and writes of objects.
STORAGE = Bulkhead("storage", 6, wait_seconds=5.0)
# All other reads and writes of rows.
RECORDS = Bulkhead("records", 8)
# The queue of request-only work, its cache and its callers, in Redis. Callers come in bursts, and
# wait for much longer than this for a worker.
REQUESTS = Bulkhead("requests", 6, wait_seconds=5.0, max_waiting=5_000)
# The names of hosts that callers send, which their own name servers may keep us waiting for: a
# thread for each of many hostile callers.
NAMES = Bulkhead("names", 32, wait_seconds=0.5)
# Look-ups of open event streams.
STREAMS = Bulkhead("streams", 2)
# The process's own work: it looks for jobs that ended, and writes when keys were used.
BACKGROUND = Bulkhead("background", 2)
# A thread for each dependency that is asked whether it answers.
READINESS = Bulkhead("readiness", 4)
# A thread for the database's figures and another for those in Redis.
METRICS = Bulkhead("metrics", 2)

# Each of these threads may hold a transaction, and so a connection of the pool. The others run
# single statements, or none; of the two of METRICS, one reads rows in a transaction.
TRANSACTION_THREADS = 1 + sum(
    each.threads for each in (MONEY, LISTS, LEAVING, STORAGE, RECORDS, STREAMS)
)
# Together there is a connection for each thread that needs one at the
# same time as all others: no handler waits for a connection while it holds a thread.
SINGLE_STATEMENTS = AUTHENTICATION.threads + MONEY.threads

# Questions to dependencies that may hang.

MAX_ANSWER_SECONDS = 1.0


class Question(Generic[T]):
    """Asks a dependency in a thread, and waits a second for the answer.

    While the dependency hangs, it holds one thread and is not asked again.
    """

    def __init__(self, ask: Callable[[], T], bulkhead: Bulkhead) -> None:
        self._ask = ask
        self._bulkhead = bulkhead
        self._asked: asyncio.Task[T] | None = None
        self._since = 0.0

    async def answer(self) -> T | None:
        """Return ``None`` when the dependency fails or hangs."""
        now = asyncio.get_running_loop().time()
        if self._asked is None or self._asked.done():
            self._asked = asyncio.ensure_future(self._bulkhead.run(self._ask))
            self._since = now
        asked = self._asked
        await asyncio.wait({asked}, timeout=max(self._since + MAX_ANSWER_SECONDS - now, 0))
        if not asked.done():
            return None
        try:
            return asked.result()
        except (psycopg2.Error, SQLAlchemyError, RedisError, TransientError, DomainError):
            return None


@contextmanager
def counted(counter: Counter[K], key: K) -> Iterator[None]:
    """Count one more of the key while the block lasts."""
    counter[key] += 1
    try:
        yield
    finally:
        counter[key] -= 1
        if not counter[key]:
            del counter[key]


# Shares of a bulkhead, so that one list or one caller never takes all of its threads.


class Shares:
    """At most ``threads`` threads of the bulkhead for each key, such as a list's id."""

    def __init__(
        self, bulkhead: Bulkhead, threads: int, error: ErrorType, *, wait_seconds: float
    ) -> None:
        self._bulkhead = bulkhead
        self._threads = threads
        self._error = error
        self._wait_seconds = wait_seconds
        # The callers of a key hold it, and nothing else does.
        self._turns: WeakValueDictionary[int, asyncio.Semaphore] = WeakValueDictionary()

    async def run(self, key: int, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the work's result; raises the error when the key's own threads stay busy."""
        turns = self._turns.setdefault(key, asyncio.Semaphore(self._threads))
        try:
            async with asyncio.timeout(self._wait_seconds):
                await turns.acquire()
        except TimeoutError:
            raise self._error() from None
        try:
            return await self._bulkhead.run(work, *args, **kwargs)
        finally:
            turns.release()

    def threaded(
        self, name: str
    ) -> Callable[[Callable[P, T]], Callable[P, Coroutine[Any, Any, T]]]:
        """Decorate a route: its parameter of this name is the key."""

        def decorate(handler: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
            @wraps(handler)
            async def in_thread(*args: P.args, **kwargs: P.kwargs) -> T:
                key = kwargs[name]
                assert isinstance(key, int)
                return await self.run(key, _committed(handler), *args, **kwargs)

            return in_thread

        return decorate


# A list that is locked holds its callers up, and no caller of another list.
ACTS_BY_LIST = Shares(LISTS, LISTS.threads // 4, mailing.LIST_BUSY, wait_seconds=MAX_WAIT_SECONDS)
# The uploads of a caller leave threads for those of others.
UPLOADS_BY_CALLER = Shares(STORAGE, STORAGE.threads // 2, requests.SERVICE_BUSY, wait_seconds=10.0)
# Name servers of a caller's own choice may keep a thread waiting for as long as they like. The
# waits for a thread are shorter than MAX_LOOK_UP_SECONDS, and leave time for the look-up itself.
NAMES_BY_CALLER = Shares(NAMES, 1, requests.SERVICE_BUSY, wait_seconds=1.0)
# A search may read half a million rows, and a count may take seconds.
SEARCHES_BY_CALLER = Shares(
    RECORDS, RECORDS.threads // 4, requests.SERVICE_BUSY, wait_seconds=MAX_WAIT_SECONDS
)
