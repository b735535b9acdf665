"""Commits several chunks of an import at the same time in separate threads."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context

from services.subscriptions.imports.chunks.applying import EarlierChunkPending

# The maximum number of chunks that are applied at the same time. The number is low, because each
# chunk occupies one core of the database server.
MAX_CHUNKS_AT_ONCE = 2


# Optimization: two chunks of one request applied at the same time (decision 17).
class ChunkCommitter:
    """A set of threads that commit several chunks of an import at the same time.

    If the owner's member quota is nearly used up, an import's chunks must be committed in ascending
    order. A chunk that must wait for preceding chunks is retried after the preceding chunks have
    been committed.
    """

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads = threads
        self._running: deque[tuple[Callable[[], None], Future[None]]] = deque()

    def wait_for_room(self, max_chunks: int = MAX_CHUNKS_AT_ONCE) -> None:
        """Wait until fewer than ``max_chunks`` chunks are being committed. Raises the error that
        prevented a chunk from being committed.
        """
        while len(self._running) >= max_chunks:
            self._end_oldest()

    def start(self, commit: Callable[[], None]) -> None:
        self._running.append((commit, self._threads.submit(copy_context().run, commit)))

    def end_all(self) -> bool:
        """Wait until all chunks are committed. Return false if none was in progress."""
        was_running = bool(self._running)
        while self._running:
            self._end_oldest()
        return was_running

    def _end_oldest(self) -> None:
        commit, result = self._running.popleft()
        try:
            result.result()
        except EarlierChunkPending:
            commit()


@contextmanager
def chunk_committer() -> Iterator[ChunkCommitter]:
    with ThreadPoolExecutor(MAX_CHUNKS_AT_ONCE, thread_name_prefix="chunk") as threads:
        chunks = ChunkCommitter(threads)
        yield chunks
        chunks.end_all()
