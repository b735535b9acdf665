"""Reads values from dependencies that may hang, such as the database or Redis."""

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import psycopg2
from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError

from api.limits.bulkhead import Bulkhead
from core.errors import DomainError, TransientError

MAX_READ_SECONDS = 1.0

T = TypeVar("T")


class DependencyProbe(Generic[T]):
    """Reads a value in a thread, but waits only a second for the value.

    Concurrent callers share one read, so that a hanging dependency blocks only one thread.
    """

    def __init__(self, read: Callable[[], T], bulkhead: Bulkhead) -> None:
        self._read = read
        self._bulkhead = bulkhead
        self._task: asyncio.Task[T] | None = None
        self._started_at = 0.0
        # Why the last read has failed.
        self.failure = ""

    async def read(self) -> T | None:
        """Return ``None`` if the dependency fails or hangs."""
        now = asyncio.get_running_loop().time()
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._bulkhead.run(self._read))
            self._task.add_done_callback(_retrieve_failure)
            self._started_at = now
        task = self._task
        await asyncio.wait({task}, timeout=max(self._started_at + MAX_READ_SECONDS - now, 0))
        if not task.done():
            self.failure = f"no response within {MAX_READ_SECONDS:g} s"
            return None
        try:
            return task.result()
        except (psycopg2.Error, SQLAlchemyError, RedisError, TransientError, DomainError) as error:
            self.failure = " ".join(str(error).split()) or type(error).__name__
            return None


def _retrieve_failure(task: asyncio.Task[Any]) -> None:
    """Prevent asyncio from logging the failure after the caller has stopped waiting."""
    if not task.cancelled():
        task.exception()
