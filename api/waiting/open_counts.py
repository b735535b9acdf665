"""Counts open streams, downloads or requests by a key, such as a user id."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

K = TypeVar("K")


@contextmanager
def count_while_open(counter: Counter[K], key: K) -> Iterator[None]:
    """Add 1 to the count for ``key``, and subtract 1 when the ``with`` block ends."""
    counter[key] += 1
    try:
        yield
    finally:
        counter[key] -= 1
        if not counter[key]:
            del counter[key]
