"""Shares of a bulkhead, so that one list or one caller never takes all of its threads."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from weakref import WeakValueDictionary

from api.limits.bulkheads import (
    LISTS,
    MAX_WAIT_SECONDS,
    NAMES,
    RECORDS,
    STORAGE,
    Bulkhead,
    wrap_in_transaction,
)
from core.errors import mailing, requests
from core.errors.catalogue import ErrorType

P = ParamSpec("P")
T = TypeVar("T")


class Shares:
    """At most ``threads`` threads of the bulkhead per key, such as a list's id."""

    def __init__(
        self, bulkhead: Bulkhead, threads: int, error: ErrorType, *, wait_seconds: float
    ) -> None:
        self._bulkhead = bulkhead
        self._threads = threads
        self._error = error
        self._wait_seconds = wait_seconds
        # Only the callers of a key hold its semaphore.
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


# A locked list delays its own callers, and no caller of another list.
ACTS_BY_LIST = Shares(LISTS, LISTS.threads // 4, mailing.LIST_BUSY, wait_seconds=MAX_WAIT_SECONDS)
# The uploads of one caller leave threads for the uploads of others.
UPLOADS_BY_CALLER = Shares(STORAGE, STORAGE.threads // 2, requests.SERVICE_BUSY, wait_seconds=10.0)
# A caller may choose a name server that keeps a thread waiting. The waits for a thread are shorter
# than MAX_LOOK_UP_SECONDS, and leave time for the look-up itself.
NAMES_BY_CALLER = Shares(NAMES, 1, requests.SERVICE_BUSY, wait_seconds=1.0)
# A search may read half a million rows, and a count may take seconds.
SEARCHES_BY_CALLER = Shares(
    RECORDS, RECORDS.threads // 4, requests.SERVICE_BUSY, wait_seconds=MAX_WAIT_SECONDS
)


def threaded_by_list(handler: Callable[..., T]) -> Callable[..., Coroutine[Any, Any, T]]:
    """Make a route's handler work in the threads of the list ``list_id``: a decorator."""

    @wraps(handler)
    async def in_thread(*, list_id: int, **kwargs: Any) -> T:
        return await ACTS_BY_LIST.run(
            list_id, wrap_in_transaction(handler), list_id=list_id, **kwargs
        )

    return in_thread
