"""Hashes few passwords at a time, since each hash takes 64 MiB and a core for a while."""

from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

from core.refusals.access import LOGIN_BUSY

MAX_CONCURRENT_HASHES = 4
MAX_WAITING_HASHES = 60

_Result = TypeVar("_Result")


class HashingPool:
    """Threads that only hash passwords, so that a rush of logins delays no other request."""

    def __init__(self) -> None:
        self._turns = CapacityLimiter(MAX_CONCURRENT_HASHES)
        self._waiting = 0

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """The work's result; raises ``login.busy`` when too many callers wait already."""
        if self._waiting >= MAX_WAITING_HASHES:
            raise LOGIN_BUSY()
        self._waiting += 1
        try:
            return await to_thread.run_sync(work, limiter=self._turns)
        finally:
            self._waiting -= 1
