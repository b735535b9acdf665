"""Polls a condition until it holds."""

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def eventually(
    condition: Callable[[], Result | None], *, within: float = 60.0, what: str = "the condition"
) -> Result:
    """Poll until the condition returns a true value, and return it.

    Fail after ``within`` seconds.
    """
    began = time.monotonic()
    while True:
        result = condition()
        if result:
            return result
        waited = time.monotonic() - began
        assert waited < within, f"{what} did not come true within {within:g} s"
        # Frequent polls during a long wait would take half of the processor.
        time.sleep(min(max(0.02, waited / 10), 0.1))
