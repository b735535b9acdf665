"""Counts per key of open things, such as the streams of a user."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

K = TypeVar("K")


@contextmanager
def counted(counter: Counter[K], key: K) -> Iterator[None]:
    """Count one more of the key until the block ends."""
    counter[key] += 1
    try:
        yield
    finally:
        counter[key] -= 1
        if not counter[key]:
            del counter[key]
