"""Computes the pauses between tries, which double with each further failure."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, func

# After this many doublings, a pause exceeds each maximum. The exponent must be bounded, because
# numbers of failures aren't.
_MAX_DOUBLINGS = 30


@dataclass(frozen=True)
class Pauses:
    """Pauses that double with each further failure.

    Attributes:
        first: the pause after the first failure.
        longest: the longest pause.
    """

    first: timedelta
    longest: timedelta

    def choose(self, failures: int) -> timedelta:
        """Return the pause after ``failures`` failures. ``failures`` must be at least 1."""
        return min(self.first * (1 << min(failures - 1, _MAX_DOUBLINGS)), self.longest)

    def build_expression(self, failures: ColumnElement[int]) -> ColumnElement[Any]:
        """Build the SQL expression for the pause after ``failures`` failures."""
        doublings = func.least(failures - 1, _MAX_DOUBLINGS)
        return func.least(func.power(2, doublings) * self.first, self.longest)
