"""Polls a condition until it is true."""

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def eventually(
    condition: Callable[[], Result | None], *, within: float = 60.0, what: str = "the condition"
) -> Result:
    """Call ``condition`` repeatedly until it returns a true value, and return the value.

    Raises ``AssertionError`` if the condition is still false after ``within`` seconds.
    """
    began = time.monotonic()
    while True:
        result = condition()
        if result:
            return result
        waited = time.monotonic() - began
        assert waited < within, f"{what} did not come true within {within:g} s"
        # Poll less often during a long wait, because frequent polls would use half of a processor
        # core.
        time.sleep(min(max(0.02, waited / 10), 0.1))
