from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from core.errors import DomainError, Kind

MOST_PER_USER = 10


class Streams:
    """How many event streams each user holds open on this process."""

    def __init__(self) -> None:
        self._open: Counter[int] = Counter()

    def admit(self, user_id: int) -> None:
        """Raises ``jobs.too_many_streams``."""
        if self._open[user_id] >= MOST_PER_USER:
            raise DomainError(
                Kind.RATE_LIMITED,
                "jobs.too_many_streams",
                f"At most {MOST_PER_USER} event streams a user.",
                retry_after=5,
            )

    @contextmanager
    def counted(self, user_id: int) -> Iterator[None]:
        self._open[user_id] += 1
        try:
            yield
        finally:
            self._open[user_id] -= 1
            if not self._open[user_id]:
                del self._open[user_id]
