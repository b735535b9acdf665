"""Limits the memory for request bodies, in total, per IP address and per user.

Each body counts against two holders, the sender's IP address and the user. Small bodies have a
separate memory pool, so that large uploads can't block charges or logins.
"""

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from api.limits.rate_limits import build_address_rate_key
from api.metrics import BODY_BYTES
from core.errors.catalogue import ErrorType
from core.errors.requests import BODY_TOO_MANY_UNFINISHED, SERVICE_BUSY

MEGABYTE = 1024 * 1024
MAX_SMALL_BODY_BYTES = 64 * 1024
MAX_HELD_SMALL_BODY_BYTES = 64 * MEGABYTE
# The size of the memory pool for large bodies, enough for fifty images of the maximum size. The
# memory of a large body is reserved until the body is stored.
MAX_HELD_LARGE_BODY_BYTES = 256 * MEGABYTE
# An IP address or user may reserve at most one eighth of each memory pool.
HOLDER_FRACTION = 8
# The maximum number of incomplete bodies per IP address or user. Each incomplete body needs a task
# and up to half a megabyte for data that was read ahead.
MAX_UNFINISHED_BODIES = 128

# The rate limit keys of IP addresses are cached, because a few IP addresses send most request
# bodies.
name_address_holder = lru_cache(maxsize=4096)(build_address_rate_key)


class BytePool:
    """A memory pool. Each IP address or user may reserve only a part of it."""

    def __init__(self, name: str, max_bytes: int) -> None:
        self._gauge = BODY_BYTES.labels(name)
        self._free_bytes = max_bytes
        self._max_bytes_per_holder = max_bytes // HOLDER_FRACTION
        self._bytes_by_holder: Counter[str] = Counter()

    def take(self, holders: Iterable[str], count: int) -> ErrorType | None:
        if any(
            self._bytes_by_holder[holder] + count > self._max_bytes_per_holder for holder in holders
        ):
            return BODY_TOO_MANY_UNFINISHED
        if count > self._free_bytes:
            return SERVICE_BUSY
        self._free_bytes -= count
        self._gauge.inc(count)
        for holder in holders:
            self._bytes_by_holder[holder] += count
        return None

    def release(self, holders: Iterable[str], count: int) -> None:
        self._free_bytes += count
        self._gauge.dec(count)
        _count_down(self._bytes_by_holder, holders, count)


class BodyBudget:
    def __init__(self) -> None:
        self.small = BytePool("small", MAX_HELD_SMALL_BODY_BYTES)
        self.large = BytePool("large", MAX_HELD_LARGE_BODY_BYTES)
        self.unfinished: Counter[str] = Counter()


class HeldBody:
    """The memory that is reserved for a request body.

    The reservation moves to the pool for large bodies when a body exceeds ``MAX_SMALL_BODY_BYTES``.
    """

    def __init__(self, budget: BodyBudget, *holders: str) -> None:
        self._budget = budget
        self._holders = holders
        self._pool = budget.small
        self._bytes = 0
        self._is_unfinished = False

    def begin(self) -> ErrorType | None:
        """Return an error if the sender has too many incomplete bodies."""
        unfinished = self._budget.unfinished
        if any(unfinished[holder] >= MAX_UNFINISHED_BODIES for holder in self._holders):
            return BODY_TOO_MANY_UNFINISHED
        unfinished.update(self._holders)
        self._is_unfinished = True
        return None

    def take(self, count: int) -> ErrorType | None:
        size = self._bytes + count
        if self._pool is self._budget.small and size > MAX_SMALL_BODY_BYTES:
            return self._move_to_large_pool(size)
        error = self._pool.take(self._holders, count)
        if error is None:
            self._bytes = size
        return error

    def move_to_large_pool(self) -> ErrorType | None:
        """Count a body that stays in memory for a long time against the pool for large bodies.

        Return an error if the pool, or the part for the IP address or user, is full.
        """
        if self._pool is self._budget.small:
            return self._move_to_large_pool(self._bytes)
        return None

    def _move_to_large_pool(self, size: int) -> ErrorType | None:
        error = self._budget.large.take(self._holders, size)
        if error is None:
            self._pool.release(self._holders, self._bytes)
            self._pool = self._budget.large
            self._bytes = size
        return error

    def finish(self) -> None:
        if self._is_unfinished:
            _count_down(self._budget.unfinished, self._holders, 1)
            self._is_unfinished = False

    def release(self) -> None:
        self._pool.release(self._holders, self._bytes)
        self._bytes = 0


def _count_down(counter: Counter[str], holders: Iterable[str], count: int) -> None:
    for holder in holders:
        counter[holder] -= count
        if counter[holder] <= 0:
            del counter[holder]
