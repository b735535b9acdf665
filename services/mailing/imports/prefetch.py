from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Prefetch(Generic[Result]):
    """Runs each step of a series in a thread while the caller uses the result of the step before.

    A step that mostly computes, and a use that mostly waits for the database or the object storage,
    together take as long as the slower of the two. ``take`` raises what its step raised.
    """

    def __init__(self, step: Callable[[], Result]) -> None:
        self._step = step
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="prefetch")
        self._next = self._begin()

    def take(self) -> Result:
        result = self._next.result()
        self._next = self._begin()
        return result

    def close(self) -> None:
        """Wait for the step that runs, and drop its result."""
        self._worker.shutdown()

    def _begin(self) -> Future[Result]:
        # As a step of what the caller does now: its spans and log records say so.
        return self._worker.submit(copy_context().run, self._step)
