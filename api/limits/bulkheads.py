"""Bulkheads: the threads of this process, divided so that work that hangs in one blocks no other.

Each handler that blocks, for the database, Redis, object storage or a core, works in the threads of
one bulkhead. If all of them are busy, a caller waits for a limited time among a limited number of
callers, and then is refused with 503. FastAPI's own threads run no handler: a test checks this.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from contextvars import copy_context
from functools import partial, wraps
from threading import Lock
from typing import Any, ParamSpec, TypeVar

from api.metrics import BULKHEAD_ERRORS
from core.errors import access, requests
from core.errors.catalogue import ErrorType
from storage.unit_of_work import UnitOfWork

# The longest wait of most callers for a thread. A burst of small requests takes a fraction of it,
# and the callers still wait for their responses.
MAX_WAIT_SECONDS = 2.0
MAX_WAITING_CALLERS = 1_000

_END = object()

P = ParamSpec("P")
T = TypeVar("T")


class Bulkhead:
    """A pool of threads, and the callers who wait for one of them."""

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
        self._max_calls = threads + max_waiting
        self._error = error
        # Optimization: our own thread pools (decision 17).
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._lock = Lock()
        self._calls = 0

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the work's result; raises the error when no thread is free in time.

        Work that has begun continues when its caller is cancelled. It keeps its thread until its
        end.
        """
        with self._lock:
            has_thread = self._calls < self.threads
            is_full = self._calls >= self._max_calls
            self._calls += not is_full
        if is_full:
            raise self._refusal()
        call = partial(copy_context().run, work, *args, **kwargs)
        future = self._pool.submit(call)

        def count_down(_: Future[Any]) -> None:
            with self._lock:
                self._calls -= 1

        future.add_done_callback(count_down)
        is_refused = False

        def refuse() -> None:
            # Work that has begun can't be cancelled.
            nonlocal is_refused
            is_refused = future.cancel()

        loop = asyncio.get_running_loop()
        timer = None if has_thread else loop.call_later(self._wait_seconds, refuse)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if is_refused:
                raise self._refusal() from None
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def threaded(self, handler: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
        """Make a route's handler work in the bulkhead's threads: a decorator."""

        @wraps(handler)
        async def in_thread(*args: P.args, **kwargs: P.kwargs) -> T:
            return await self.run(wrap_in_transaction(handler), *args, **kwargs)

        return in_thread

    async def iterate(self, items: Iterator[T]) -> AsyncIterator[T]:
        """Yield items, each made in a thread. A slow receiver holds no thread between two items."""
        while (item := await self.run(partial(next, items, _END))) is not _END:
            yield item

    def _refusal(self) -> Exception:
        BULKHEAD_ERRORS.labels(self.name).inc()
        return self._error()


def wrap_in_transaction(handler: Callable[P, T]) -> Callable[P, T]:
    """Wrap a handler, so that its unit of work is committed before the handler returns.

    A handler has a unit of work if it declares a parameter of the type ``Transaction``. It must be
    committed in the handler's thread.
    """

    def work(*args: P.args, **kwargs: P.kwargs) -> T:
        units = (value for value in kwargs.values() if isinstance(value, UnitOfWork))
        with next(units, nullcontext()):
            return handler(*args, **kwargs)

    return work


# The check of credentials. Every other part of the service depends on it.
AUTHENTICATION = Bulkhead("authentication", 4)
# Hashing a password takes 64 MiB and a core for a while, so only a few are hashed at the same time.
PASSWORDS = Bulkhead("passwords", 4, wait_seconds=30.0, max_waiting=56, error=access.LOGIN_BUSY)
# Charges, balances, orders and the payment providers' notifications.
MONEY = Bulkhead("money", 10)
# Changes of one list, which wait for its lock.
LISTS = Bulkhead("lists", 8)
# Unsubscribing and switching mail off. No crowd of subscribers may delay these.
LEAVING = Bulkhead("leaving", 3, wait_seconds=10.0)
# Reads and writes of objects.
STORAGE = Bulkhead("storage", 6, wait_seconds=5.0)
# All other reads and writes of rows.
RECORDS = Bulkhead("records", 8)
# The queue of request-only work, its cache and its callers, in Redis. Callers come in bursts, and
# wait for much longer than this for a worker.
REQUESTS = Bulkhead("requests", 6, wait_seconds=5.0, max_waiting=5_000)
# Look-ups of host names that callers send. The callers' own name servers may be slow, so that each
# of many hostile callers holds a thread.
NAMES = Bulkhead("names", 32, wait_seconds=0.5)
# Look-ups of open event streams.
STREAMS = Bulkhead("streams", 2)
# The process's own work: it looks for jobs that ended, and writes when keys were used.
BACKGROUND = Bulkhead("background", 2)
# Health checks. Each dependency has one thread.
READINESS = Bulkhead("readiness", 4)
# Figures. The database has one thread, and Redis has the other.
METRICS = Bulkhead("metrics", 2)

# Each of these threads may hold a transaction, and so a connection of the pool. The others run
# single statements, or none. METRICS reads rows in a transaction, in one of its threads.
TRANSACTION_THREADS = 1 + sum(
    each.threads for each in (MONEY, LISTS, LEAVING, STORAGE, RECORDS, STREAMS)
)
# There is a connection for each thread that may need one at the same time as all others. No handler
# waits for a connection while it holds a thread.
SINGLE_STATEMENTS = AUTHENTICATION.threads + MONEY.threads
