"""Bounds the requests in progress in an API process, in total and per account.

A request holds a place from its arrival until its response starts. A request holds no place while
it waits for its body or for a worker, so that slow callers and slow work take no place from others.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from core.errors.requests import REQUESTS_TOO_MANY_OF_YOURS, SERVICE_BUSY

# The maximum number of places in a process. A process that answers 600 calls per second needs about
# three seconds for this many calls.
MAX_PLACES = 2_000
# An account may take at most this share of the places.
ACCOUNT_FRACTION = 4
# Each account has this many places even if ``MAX_PLACES`` places are taken. All accounts together
# get at most ``MAX_PLACES`` such places.
MIN_PLACES_PER_ACCOUNT = 100
# All posts of reports together may take at most this share of the places, because strangers can
# post in the name of any number of senders.
SENDERS_FRACTION = 2

# The key of the time at which the last byte of a request arrived, in the ASGI scope.
RECEIVED_AT_KEY = "pressroom.received_at"


class Places:
    def __init__(self) -> None:
        self.total = 0
        self.by_account: Counter[str] = Counter()
        self.by_senders = 0


class Place:
    """A request in progress, and the account for which it runs.

    Attributes:
        is_never_refused: whether the request is served however busy the process is. Such a request
            takes no place from other requests.
    """

    def __init__(
        self,
        places: Places,
        account: str,
        *,
        scope: Mapping[str, Any] | None = None,
        max_wait_seconds: float = float("inf"),
        is_sender: bool = False,
        is_never_refused: bool = False,
    ) -> None:
        """Create a place that isn't taken yet.

        Args:
            scope: the ASGI scope, in which Uvicorn's connection stores when the last byte arrived.
            max_wait_seconds: the maximum time from the last byte of the request to the start of its
                work, while other requests wait too.
        """
        self.account = account
        self.is_never_refused = is_never_refused
        self._places = places
        self._scope = scope or {}
        self._max_wait_seconds = max_wait_seconds
        self._is_sender = is_sender
        self._is_taken = False
        self._has_begun = False

    def take(self) -> None:
        if not self.is_never_refused:
            places = self._places
            of_account = places.by_account[self.account]
            if of_account >= max(MAX_PLACES // ACCOUNT_FRACTION, MIN_PLACES_PER_ACCOUNT):
                raise REQUESTS_TOO_MANY_OF_YOURS()
            is_within_minimum = of_account < MIN_PLACES_PER_ACCOUNT
            max_places = 2 * MAX_PLACES if is_within_minimum else MAX_PLACES
            are_senders_full = places.by_senders >= MAX_PLACES // SENDERS_FRACTION
            if places.total >= max_places or (self._is_sender and are_senders_full):
                raise SERVICE_BUSY()
        self._count(1)

    def leave(self) -> None:
        if self._is_taken:
            self._count(-1)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Give the place back until the ``with`` block ends."""
        was_taken = self._is_taken
        self.leave()
        try:
            yield
        finally:
            if was_taken:
                self._count(1)

    def is_late(self) -> bool:
        received_at = self._scope.get(RECEIVED_AT_KEY)
        return (
            not self._has_begun
            and not self.is_never_refused
            and received_at is not None
            and time.monotonic() - received_at > self._max_wait_seconds
        )

    def begin_work(self) -> None:
        self._has_begun = True

    def _count(self, number: int) -> None:
        self._is_taken = number > 0
        if self.is_never_refused:
            return
        places = self._places
        places.total += number
        places.by_senders += number * self._is_sender
        places.by_account[self.account] += number
        if not places.by_account[self.account]:
            del places.by_account[self.account]


# The place of work that belongs to no request, such as the background loops of the process.
_NO_PLACE = Place(Places(), "")
_current_place: ContextVar[Place] = ContextVar("place", default=_NO_PLACE)


def set_current_place(place: Place) -> None:
    _current_place.set(place)


def current_place() -> Place:
    return _current_place.get()
