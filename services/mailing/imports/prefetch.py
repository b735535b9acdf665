from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Prefetch(Generic[Result]):
    """Steps of one kind, in order, each done while the result of the one before is in use.

    A step that mostly computes, and a use that mostly waits for somebody else (the database, the
    object storage), take as long together as the slower of them. What a step raises is raised by
    its ``take``.
    """

    def __init__(self, step: Callable[[], Result]) -> None:
        self._step = step
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ahead")
        self._coming = self._worker.submit(step)

    def take(self) -> Result:
        result = self._coming.result()
        self._coming = self._worker.submit(self._step)
        return result

    def close(self) -> None:
        """Wait for the step under way, and forget what it comes to."""
        self._worker.shutdown()
