import time
from collections.abc import Callable

from devstack.harness.polling import eventually

MEGABYTE = 1024 * 1024


def settled_memory(memory: Callable[[], int]) -> int:
    """The memory once it stays as it is: converters give it back when they have idled a second."""
    level, since = 0, time.monotonic()

    def stays() -> bool:
        nonlocal level, since
        if abs(memory() - level) > MEGABYTE:
            level, since = memory(), time.monotonic()
        return time.monotonic() - since > 2

    eventually(stays, within=30, what="a memory that stays as it is")
    return level
