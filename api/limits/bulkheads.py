"""Bulkheads: the threads of this process, divided, so that what hangs in one part stops no other.

Each handler that blocks, for the database, Redis, object storage or a core, works in the threads of
one bulkhead. A caller who finds all of them busy waits for a bounded time among a bounded number of
callers, and is refused with 503 then. FastAPI's own threads serve no handler: a test looks at that.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial, wraps
from threading import Lock
from typing import Any, ParamSpec, TypeVar

from api.metrics.requests import REFUSED
from core.refusals.requests import SERVICE_BUSY

P = ParamSpec("P")
T = TypeVar("T")

# What most callers wait for a thread at most. It is a multiple of what a burst of small requests
# takes, and less than the patience of those who made them.
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
    ) -> None:
        self.name = name
        self.threads = threads
        self._wait_seconds = wait_seconds
        self._most = threads + max_waiting
        # A pool by itself costs a call half of what the shared threads of anyio cost it.
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._lock = Lock()
        self._under_way = 0

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """The work's result; raises ``service.busy`` when no thread is free in time.

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
        begun.add_done_callback(self._count_down)
        result = asyncio.wrap_future(begun)
        if not has_thread:
            try:
                await asyncio.wait({result}, timeout=self._wait_seconds)
            except asyncio.CancelledError:
                # Nobody needs a thread for it any more.
                begun.cancel()
                raise
            # Work that has begun can't be cancelled.
            if not result.done() and begun.cancel():
                raise self._refused()
        return await result

    def threaded(self, handler: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
        """Let this function work in the bulkhead's threads: a decorator, for routes."""

        @wraps(handler)
        async def in_thread(*args: P.args, **kwargs: P.kwargs) -> T:
            return await self.run(handler, *args, **kwargs)

        return in_thread

    async def iterate(self, items: Iterator[T]) -> AsyncIterator[T]:
        """The items, each made in a thread: a slow receiver holds none between two of them."""
        while (item := await self.run(partial(next, items, _END))) is not _END:
            yield item

    def _count_down(self, _: Future[Any]) -> None:
        with self._lock:
            self._under_way -= 1

    def _refused(self) -> Exception:
        REFUSED.labels(self.name).inc()
        return SERVICE_BUSY()


# The check of credentials, which every other part of the service stands on.
AUTHENTICATION = Bulkhead("authentication", 4)
# Charges, balances, orders and the payment providers' notifications.
MONEY = Bulkhead("money", 10)
# Acts on one list, which wait for its lock.
LISTS = Bulkhead("lists", 8)
# Leaving a list and switching its mail off, which no crowd of subscribers may hold up.
LEAVING = Bulkhead("leaving", 3, wait_seconds=10.0)
# Whatever reads or writes objects.
STORAGE = Bulkhead("storage", 6, wait_seconds=5.0)
# All other reads and writes of rows.
RECORDS = Bulkhead("records", 8)
# The queue of request-only work, its cache and its callers, in Redis. Callers come in bursts, and
# wait for much longer than this for a worker.
REQUESTS = Bulkhead("requests", 6, wait_seconds=5.0, max_waiting=5_000)
# The names of hosts that callers send, which their own name servers may keep us waiting for.
NAMES = Bulkhead("names", 2)
# What open event streams look up.
STREAMS = Bulkhead("streams", 2)
# What this process does by itself: it looks for jobs that ended, and writes when keys were used.
BACKGROUND = Bulkhead("background", 2)
# One thread for each dependency that is asked whether it answers.
READINESS = Bulkhead("readiness", 4)
# One for the database's figures and one for those in Redis.
METRICS = Bulkhead("metrics", 2)

# Each of these threads may hold a transaction, and so a connection of the pool. The others run
# single statements, or none; of the two of METRICS, one reads rows in a transaction.
TRANSACTION_THREADS = 1 + sum(
    each.threads for each in (MONEY, LISTS, LEAVING, STORAGE, RECORDS, STREAMS)
)
# What most calls consist of. Together there is a connection for each thread that needs one at the
# same time as all others: no handler waits for a connection while it holds a thread.
SINGLE_STATEMENTS = AUTHENTICATION.threads + MONEY.threads
