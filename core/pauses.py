"""Computes the pauses between attempts at work that failed."""

import random
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True)
class Pauses:
    """The pauses before the next attempts.

    Attributes:
        steps: the pause after the first failure, after the second one, and so on. The last pause
            also follows all further failures.
        jitter: how much a pause changes at random at most, as a fraction of the pause. A positive
            number lengthens pauses, and a negative number shortens them. Work that failed at the
            same time is thereby retried at different times.
    """

    steps: tuple[timedelta, ...]
    jitter: float = 0.0

    @classmethod
    def double(cls, first: timedelta, longest: timedelta, jitter: float = 0.0) -> "Pauses":
        """Return pauses that double with each further failure, up to the longest pause."""
        steps = [first]
        while steps[-1] < longest:
            steps.append(min(2 * steps[-1], longest))
        return cls(tuple(steps), jitter)

    def choose(self, failures: int, longest: timedelta = timedelta.max) -> timedelta:
        """Return the pause after ``failures`` failures. ``failures`` must be at least 1."""
        pause = min(self.steps[min(failures, len(self.steps)) - 1], longest)
        return pause * (1 + random.uniform(0, self.jitter))  # noqa: S311 - no secret
