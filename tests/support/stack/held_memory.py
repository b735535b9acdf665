"""Measures the memory of a process that still frees memory for a while after its work."""

import time
from collections.abc import Callable

from devstack.harness.polling import eventually

MEGABYTE = 1024 * 1024


def await_stable_memory(memory: Callable[[], int]) -> int:
    """Wait until the size of a process's memory is constant for three seconds. Return this size.

    ``memory``: a function that returns the current size of the process's memory in bytes. The wait
    is necessary because an image converter frees its memory only after it has been idle for two
    seconds.
    """
    level = 0
    level_since = time.monotonic()

    def is_stable() -> bool:
        nonlocal level, level_since
        if abs(memory() - level) > MEGABYTE:
            level = memory()
            level_since = time.monotonic()
        return time.monotonic() - level_since > 3

    eventually(is_stable, within=30, what="a memory that stays as it is")
    return level
