"""Shares of a bulkhead, so that one list or one caller never takes all of its threads."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from api.limits.bulkheads import LISTS, MAX_WAIT_SECONDS, NAMES, RECORDS, STORAGE, Bulkhead
from core.refusals.mailing import LIST_BUSY
from core.refusals.refusal import Refusal
from core.refusals.requests import SERVICE_BUSY

P = ParamSpec("P")
T = TypeVar("T")


class Shares:
    """At most ``threads`` threads of the bulkhead for each key, such as a list's id."""

    def __init__(
        self, bulkhead: Bulkhead, threads: int, refusal: Refusal, *, wait_seconds: float
    ) -> None:
        self._bulkhead = bulkhead
        self._threads = threads
        self._refusal = refusal
        self._wait_seconds = wait_seconds
        self._turns: dict[int, asyncio.Semaphore] = {}
        self._callers: Counter[int] = Counter()

    async def run(self, key: int, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """The work's result; raises the refusal when the key's own threads stay busy."""
        async with self._turn(key):
            return await self._bulkhead.run(work, *args, **kwargs)

    def threaded(
        self, name: str
    ) -> Callable[[Callable[P, T]], Callable[P, Coroutine[Any, Any, T]]]:
        """A decorator for routes: the parameter of this name is the key."""

        def decorate(handler: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
            @wraps(handler)
            async def in_thread(*args: P.args, **kwargs: P.kwargs) -> T:
                key = kwargs[name]
                assert isinstance(key, int)
                return await self.run(key, handler, *args, **kwargs)

            return in_thread

        return decorate

    @asynccontextmanager
    async def _turn(self, key: int) -> AsyncIterator[None]:
        turns = self._turns.setdefault(key, asyncio.Semaphore(self._threads))
        self._callers[key] += 1
        try:
            try:
                async with asyncio.timeout(self._wait_seconds):
                    await turns.acquire()
            except TimeoutError:
                raise self._refusal() from None
            try:
                yield
            finally:
                turns.release()
        finally:
            self._callers[key] -= 1
            if not self._callers[key]:
                del self._callers[key], self._turns[key]


# A list that is locked holds its callers up, and no caller of another list.
ACTS_BY_LIST = Shares(LISTS, LISTS.threads // 4, LIST_BUSY, wait_seconds=MAX_WAIT_SECONDS)
# One caller's uploads are not all uploads.
UPLOADS_BY_CALLER = Shares(STORAGE, STORAGE.threads // 2, SERVICE_BUSY, wait_seconds=10.0)
# Name servers of a caller's own choice may keep a thread waiting for as long as they like.
NAMES_BY_CALLER = Shares(NAMES, NAMES.threads // 2, SERVICE_BUSY, wait_seconds=MAX_WAIT_SECONDS)
# A search may read half a million rows, and a count may take seconds.
SEARCHES_BY_CALLER = Shares(
    RECORDS, RECORDS.threads // 4, SERVICE_BUSY, wait_seconds=MAX_WAIT_SECONDS
)
