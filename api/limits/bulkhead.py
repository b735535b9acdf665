"""Defines bulkheads, which are separate thread pools, so that hanging work can't block all threads.

Each blocking route handler runs in a thread of one bulkhead. If all threads of a bulkhead are busy,
a limited number of callers wait for a limited time. The accounts of the waiting callers take turns.
A caller gets the status 503 if too many callers wait, or if no thread becomes free in time.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Iterator
from contextlib import nullcontext, suppress
from contextvars import copy_context
from functools import partial, wraps
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, ParamSpec, TypeVar, cast
from weakref import WeakValueDictionary

from api.limits.places import Place, current_place
from api.metrics import BULKHEAD_ERRORS
from core.errors import requests
from core.errors.catalogue import ErrorType
from storage.unit_of_work import UnitOfWork

# The default time for which a caller waits for a free thread. In a burst of small requests, callers
# wait only briefly, because small requests free their threads quickly.
MAX_WAIT_SECONDS = 2.0
MAX_WAITING_CALLERS = 1_000

_NO_MORE_ITEMS = object()

P = ParamSpec("P")
T = TypeVar("T")


class _Call:
    def __init__(self, work: Callable[[], Any], place: Place) -> None:
        self.place = place
        self.loop = asyncio.get_running_loop()
        self.result: asyncio.Future[Any] = self.loop.create_future()
        self.has_begun = False
        self.is_cancelled = False
        self._work = work

    def run(self) -> None:
        try:
            result = self._work()
        except BaseException as error:  # noqa: BLE001 - the future passes every exception on
            self.fail(error)
        else:
            self._deliver(self.result.set_result, result)

    def fail(self, error: BaseException) -> None:
        self._deliver(self.result.set_exception, error)

    def _deliver(self, deliver: Callable[[Any], None], value: object) -> None:
        # The event loop is closed only while the process ends.
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.settle, deliver, value)

    def settle(self, deliver: Callable[[Any], None], value: object) -> None:
        """End the caller's wait, in the event loop."""
        if not self.result.done():
            deliver(value)
        # The traceback of an exception refers to frames that refer to the call. Without this cycle,
        # the body of a refused request is freed before the next garbage collection.
        del self.result


class _Turns:
    def __init__(self) -> None:
        self._calls: dict[str, deque[_Call]] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, call: _Call) -> None:
        self._calls.setdefault(call.place.account, deque()).append(call)

    def take_next(self) -> _Call:
        account = next(iter(self._calls))
        calls = self._calls.pop(account)
        call = calls.popleft()
        if calls:
            # Dictionaries are in the order of insertion, so the account's next turn is the last.
            self._calls[account] = calls
        return call


class Bulkhead:
    def __init__(
        self,
        name: str,
        threads: int,
        *,
        wait_seconds: float = MAX_WAIT_SECONDS,
        max_waiting: int = MAX_WAITING_CALLERS,
        error: ErrorType = requests.SERVICE_BUSY,
        does_work: bool = True,
    ) -> None:
        """The threads start when they are first needed.

        Args:
            does_work: whether the bulkhead runs the work of requests, rather than checks before it.
        """
        self.name = name
        self.threads = threads
        self._wait_seconds = wait_seconds
        self._max_calls = threads + max_waiting
        self._error = error
        self._does_work = does_work
        self._lock = Lock()
        self._calls = 0
        self._turns = _Turns()
        # Optimization: our own thread pools (decision 17).
        self._threads: list[Thread] = []
        # Each entry wakes up a thread.
        self._wakes: SimpleQueue[None] = SimpleQueue()

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call ``work`` in one of the bulkhead's threads.

        If the caller is cancelled, work that has begun continues in its thread.
        """
        place = current_place()
        call = _Call(partial(copy_context().run, work, *args, **kwargs), place)
        with self._lock:
            has_thread = self._calls < self.threads
            if self._calls >= self._max_calls and not place.is_never_refused:
                raise self._count_refusal()
            if len(self._threads) < min(self._calls + 1, self.threads):
                self._start_thread()
            self._calls += 1
            self._turns.add(call)
        self._wakes.put(None)
        is_patient = has_thread or place.is_never_refused
        timer = None if is_patient else call.loop.call_later(self._wait_seconds, self._refuse, call)
        try:
            return cast("T", await call.result)
        except asyncio.CancelledError:
            self._cancel(call)
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def threaded(self, handler: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
        @wraps(handler)
        async def in_thread(*args: P.args, **kwargs: P.kwargs) -> T:
            return await self.run(wrap_in_transaction(handler), *args, **kwargs)

        return in_thread

    async def iterate(self, items: Iterator[T]) -> AsyncIterator[T]:
        """Occupy a thread only while an item is computed, not while the consumer processes it."""
        while (item := await self.run(partial(next, items, _NO_MORE_ITEMS))) is not _NO_MORE_ITEMS:
            yield item

    def _start_thread(self) -> None:
        name = f"{self.name}_{len(self._threads)}"
        thread = Thread(target=self._run_calls, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _run_calls(self) -> None:
        while True:
            self._wakes.get()
            self._run_next()

    def _run_next(self) -> None:
        """Run the next call. If it is late, refuse it while another call waits, because the other
        call may still be in time.
        """
        with self._lock:
            call = self._turns.take_next()
            if call.is_cancelled:
                return
            call.has_begun = True
            is_refused = bool(self._turns) and call.place.is_late()
        if is_refused:
            call.fail(self._count_refusal())
        else:
            if self._does_work:
                call.place.begin_work()
            call.run()
        with self._lock:
            self._calls -= 1

    def _refuse(self, call: _Call) -> None:
        if self._cancel(call):
            call.settle(call.result.set_exception, self._count_refusal())

    def _cancel(self, call: _Call) -> bool:
        with self._lock:
            if call.has_begun or call.is_cancelled:
                return call.is_cancelled
            call.is_cancelled = True
            self._calls -= 1
            return True

    def _count_refusal(self) -> Exception:
        BULKHEAD_ERRORS.labels(self.name).inc()
        return self._error()


class KeyedBulkhead:
    def __init__(
        self, bulkhead: Bulkhead, threads: int, error: ErrorType, *, wait_seconds: float
    ) -> None:
        self._bulkhead = bulkhead
        self._threads = threads
        self._error = error
        self._wait_seconds = wait_seconds
        # The semaphore of a key exists only while a caller uses it.
        self._semaphores: WeakValueDictionary[Hashable, asyncio.Semaphore] = WeakValueDictionary()

    async def run(
        self, key: Hashable, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        semaphore = self._semaphores.setdefault(key, asyncio.Semaphore(self._threads))
        try:
            async with asyncio.timeout(self._wait_seconds):
                await semaphore.acquire()
        except TimeoutError:
            raise self._error() from None
        try:
            return await self._bulkhead.run(work, *args, **kwargs)
        finally:
            semaphore.release()


def wrap_in_transaction(handler: Callable[P, T]) -> Callable[P, T]:
    """Commit a handler's parameter of type ``Transaction`` in the thread of the handler."""

    def work(*args: P.args, **kwargs: P.kwargs) -> T:
        units = (value for value in kwargs.values() if isinstance(value, UnitOfWork))
        with next(units, nullcontext()):
            return handler(*args, **kwargs)

    return work
