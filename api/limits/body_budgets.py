"""The memory that request bodies take in this process, divided so that no caller takes all of it.

A holder is an address or an owner: a body counts for both. Small bodies have a reserve of their
own, so that a charge or a login never competes with uploads.
"""

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from api.limits.rate_limits import rate_key_of_address
from api.metrics import BODY_BYTES
from core.errors.catalogue import ErrorType
from core.errors.requests import BODY_TOO_MANY_UNFINISHED, SERVICE_BUSY

MEGABYTE = 1024 * 1024
MAX_SMALL_BODY_BYTES = 64 * 1024
MAX_HELD_SMALL_BODY_BYTES = 64 * MEGABYTE
# Room for fifty of the largest uploads; a body counts until it is stored.
MAX_HELD_LARGE_BODY_BYTES = 256 * MEGABYTE
# A holder may take one part of so many of either budget.
SHARES = 8
# A holder may have so many. Each costs a task, and up to half a megabyte that the server has read
# ahead.
MAX_UNFINISHED_BODIES = 128

# The same few addresses send most bodies.
holder_of_address = lru_cache(maxsize=4096)(rate_key_of_address)


class Reserve:
    """Bytes of bodies, of which each holder may hold a share."""

    def __init__(self, name: str, max_bytes: int) -> None:
        self._shown = BODY_BYTES.labels(name)
        self._left = max_bytes
        self._share = max_bytes // SHARES
        self._held: Counter[str] = Counter()

    def take(self, holders: Iterable[str], count: int) -> ErrorType | None:
        """Take the bytes for all of the holders, or return why not."""
        if any(self._held[holder] + count > self._share for holder in holders):
            return BODY_TOO_MANY_UNFINISHED
        if count > self._left:
            return SERVICE_BUSY
        self._left -= count
        self._shown.inc(count)
        for holder in holders:
            self._held[holder] += count
        return None

    def give_back(self, holders: Iterable[str], count: int) -> None:
        self._left += count
        self._shown.dec(count)
        _count_down(self._held, holders, count)


class BodyBudget:
    """The bytes that all requests of this process hold together."""

    def __init__(self) -> None:
        self.small = Reserve("small", MAX_HELD_SMALL_BODY_BYTES)
        self.large = Reserve("large", MAX_HELD_LARGE_BODY_BYTES)
        self.unfinished: Counter[str] = Counter()


class HeldBody:
    """The share of one request's body in the budget, at first in the reserve for small bodies.

    A body that turns out to be larger is counted as a whole among the large ones.
    """

    def __init__(self, budget: BodyBudget, *holders: str) -> None:
        self._budget = budget
        self._holders = holders
        self._reserve = budget.small
        self._bytes = 0
        self._is_unfinished = False

    def begin(self) -> ErrorType | None:
        """Count the body among those that have not arrived yet, or return why not."""
        unfinished = self._budget.unfinished
        if any(unfinished[holder] >= MAX_UNFINISHED_BODIES for holder in self._holders):
            return BODY_TOO_MANY_UNFINISHED
        unfinished.update(self._holders)
        self._is_unfinished = True
        return None

    def take(self, count: int) -> ErrorType | None:
        """Count these bytes too, or return why not."""
        size = self._bytes + count
        if self._reserve is self._budget.small and size > MAX_SMALL_BODY_BYTES:
            return self._count_as_large(size)
        error = self._reserve.take(self._holders, count)
        if error is None:
            self._bytes = size
        return error

    def keep(self) -> ErrorType | None:
        """Leave the reserve for small bodies, or return why not: this one stays for long."""
        if self._reserve is self._budget.small:
            return self._count_as_large(self._bytes)
        return None

    def _count_as_large(self, size: int) -> ErrorType | None:
        error = self._budget.large.take(self._holders, size)
        if error is None:
            self._reserve.give_back(self._holders, self._bytes)
            self._reserve = self._budget.large
            self._bytes = size
        return error

    def end(self) -> None:
        """The body has arrived, or never will."""
        if self._is_unfinished:
            _count_down(self._budget.unfinished, self._holders, 1)
            self._is_unfinished = False

    def release(self) -> None:
        self._reserve.give_back(self._holders, self._bytes)
        self._bytes = 0


def _count_down(counter: Counter[str], holders: Iterable[str], count: int) -> None:
    for holder in holders:
        counter[holder] -= count
        if counter[holder] <= 0:
            del counter[holder]
