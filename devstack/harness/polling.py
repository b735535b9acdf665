"""Polls a condition until it holds."""

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def eventually(
    condition: Callable[[], Result | None], *, within: float = 60.0, what: str = "the condition"
) -> Result:
    """Poll until the condition returns a true value, and return the value.

    Raises ``AssertionError`` after ``within`` seconds.
    """
    began = time.monotonic()
    while True:
        result = condition()
        if result:
            return result
        waited = time.monotonic() - began
        assert waited < within, f"{what} did not come true within {within:g} s"
        # Poll less often during a long wait, because frequent polls would use half of a processor.
        time.sleep(min(max(0.02, waited / 10), 0.1))
