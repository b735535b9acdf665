"""Questions to a dependency that may hang."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

import psycopg2
from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError

from api.limits.bulkheads import Bulkhead
from core.errors import DomainError, TransientError

MAX_ANSWER_SECONDS = 1.0

T = TypeVar("T")


class Question(Generic[T]):
    """Asks a dependency in a thread, and waits a second for the answer.

    While the dependency hangs, it holds one thread and is not asked again.
    """

    def __init__(self, ask: Callable[[], T], bulkhead: Bulkhead) -> None:
        self._ask = ask
        self._bulkhead = bulkhead
        self._task: asyncio.Task[T] | None = None
        self._since = 0.0

    async def answer(self) -> T | None:
        """Return ``None`` when the dependency fails or hangs."""
        now = asyncio.get_running_loop().time()
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._bulkhead.run(self._ask))
            self._since = now
        task = self._task
        await asyncio.wait({task}, timeout=max(self._since + MAX_ANSWER_SECONDS - now, 0))
        if not task.done():
            return None
        try:
            return task.result()
        except (psycopg2.Error, SQLAlchemyError, RedisError, TransientError, DomainError):
            return None
