"""Counts open streams, downloads or requests by a key, such as a user id."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

K = TypeVar("K")


@contextmanager
def count_while_open(counter: Counter[K], key: K) -> Iterator[None]:
    counter[key] += 1
    try:
        yield
    finally:
        counter[key] -= 1
        if not counter[key]:
            del counter[key]
