"""Chunks that one process applies at the same time."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context

from services.subscriptions.imports.applying import NotInTurn

# How many chunks one process commits at the same time. The database writes a chunk by one core.
MAX_CHUNKS_AT_ONCE = 2


class ChunksAtOnce:
    """Chunks that threads commit at the same time.

    When the owner's plan is nearly full, chunks go in their order: one that was not in turn is
    committed again after those before it.
    """

    def __init__(self, threads: ThreadPoolExecutor, most: int) -> None:
        self._threads = threads
        self._most = most
        self._under_way: deque[tuple[Callable[[], None], Future[None]]] = deque()

    def make_room(self) -> None:
        """Wait for the oldest chunk if there are as many as may be, and raise its error."""
        if len(self._under_way) == self._most:
            self._end_oldest()

    def start(self, commit: Callable[[], None]) -> None:
        self._under_way.append((commit, self._threads.submit(copy_context().run, commit)))

    def end_all(self) -> bool:
        """Wait until all started chunks are finished. Return whether any chunk had been started."""
        had_some = bool(self._under_way)
        while self._under_way:
            self._end_oldest()
        return had_some

    def _end_oldest(self) -> None:
        commit, result = self._under_way.popleft()
        try:
            result.result()
        except NotInTurn:
            commit()


@contextmanager
def chunks_at_once(most: int) -> Iterator[ChunksAtOnce]:
    """Wait at the end for all chunks that were started, and raise the first error."""
    with ThreadPoolExecutor(most, thread_name_prefix="chunk") as threads:
        chunks = ChunksAtOnce(threads, most)
        yield chunks
        chunks.end_all()
