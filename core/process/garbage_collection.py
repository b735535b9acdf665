"""Suspends Python's garbage collection while a process creates many objects but little garbage.

A server process creates 200,000 objects during startup, and the parser may create as many for one
JSON document.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_STANDARD_THRESHOLDS = gc.get_threshold()
# The first threshold of garbage collection exceeds the number of objects that a process creates
# during startup. Garbage collection isn't disabled, because a process that never calls
# ``end_start`` could run out of memory.
_STARTUP_THRESHOLDS = (1_000_000, 10, 10)
# In a pool process of a worker, garbage collection starts after 100,000 new objects. Importing two
# chunks of rows creates fewer objects than that.
_POOL_THRESHOLDS = (100_000, 10, 10)


# Optimization: no garbage collection while a process starts (decision 17).
def begin_start() -> None:
    gc.set_threshold(*_STARTUP_THRESHOLDS)


def end_start() -> None:
    """Resume garbage collection, but never collect objects that exist at the end of the startup.

    Collecting the objects from the startup would take a tenth of a second.
    """
    gc.freeze()
    gc.set_threshold(*_STANDARD_THRESHOLDS)


# Optimization: rare garbage collection in pool processes (decision 17).
def collect_rarely() -> None:
    """Reduce garbage collection in a process that creates many objects and hardly any garbage."""
    gc.set_threshold(*_POOL_THRESHOLDS)


class _Pauses:
    def __init__(self) -> None:
        self._lock = Lock()
        self._count = 0

    def begin(self) -> None:
        with self._lock:
            self._count += 1
            gc.disable()

    def end(self) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0:
                gc.enable()


_pauses = _Pauses()


@contextmanager
def pause_collection() -> Iterator[None]:
    """Disable garbage collection during the ``with`` block, which creates only few cycles.

    Several threads can pause garbage collection at the same time. The ``with`` block must be short,
    and must not wait.
    """
    _pauses.begin()
    try:
        yield
    finally:
        _pauses.end()


def freeze_before_fork() -> None:
    """Exclude existing objects from garbage collection, so that forked processes share memory. A
    garbage collection writes to every object that it checks.
    """
    gc.collect()
    gc.freeze()
