"""Measures memory that changes for a while after the work has ended."""

import time
from collections.abc import Callable

from devstack.harness.polling import eventually

MEGABYTE = 1024 * 1024


def await_stable_memory(memory: Callable[[], int]) -> int:
    """Wait until the memory stays the same for two seconds, and return it.

    Image converters free their memory after an idle second.
    """
    level = 0
    level_since = time.monotonic()

    def is_stable() -> bool:
        nonlocal level, level_since
        if abs(memory() - level) > MEGABYTE:
            level = memory()
            level_since = time.monotonic()
        return time.monotonic() - level_since > 2

    eventually(is_stable, within=30, what="a memory that stays as it is")
    return level
