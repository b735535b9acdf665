"""Chunks of one import that this process applies at the same time."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import NamedTuple

from services.mailing.imports.applying.apply import NotInTurn
from services.mailing.imports.chunks import JudgedRow

# The database writes a chunk by one core.
AT_ONCE = 2


class _UnderWay(NamedTuple):
    result: Future[None]
    number: int
    rows: list[JudgedRow]


class ChunksSideBySide:
    """Applies chunks in the order in which they come, two at a time.

    Whatever ``apply`` raises, the call that waits for that chunk raises.
    """

    def __init__(self, apply: Callable[[int, list[JudgedRow]], None]) -> None:
        self._apply = apply
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="chunk")
        self._under_way: deque[_UnderWay] = deque()

    def put(self, number: int, rows: list[JudgedRow]) -> None:
        """Begin with a chunk, when no more than one is under way."""
        while len(self._under_way) >= AT_ONCE:
            self._end_oldest()
        result = self._threads.submit(copy_context().run, self._apply, number, rows)
        self._under_way.append(_UnderWay(result, number, rows))

    def end_all(self) -> None:
        while self._under_way:
            self._end_oldest()

    def close(self) -> None:
        """Wait for those under way, whatever becomes of them."""
        self._threads.shutdown()

    def _end_oldest(self) -> None:
        oldest = self._under_way.popleft()
        try:
            oldest.result.result()
        except NotInTurn:
            # All before it are applied now.
            self._apply(oldest.number, oldest.rows)
