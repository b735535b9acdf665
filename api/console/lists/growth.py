"""The figure of a list's growth: how many joined and left in each span of days, and what remains.

It is drawn as SVG in whole numbers of a box that the page stretches; its labels are text beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Self

from services.subscriptions.daily_figures import MemberFigures

WIDTH, HEIGHT = 1_000, 300
_MAX_BARS = 62
_GAP_SHARE = 0.25


@dataclass(frozen=True)
class GrowthSpan:
    first: date
    last: date
    joined: int
    left: int

    @property
    def net(self) -> int:
        return self.joined - self.left

    @classmethod
    def of(cls, days: Sequence[MemberFigures]) -> Self:
        return cls(
            date.fromisoformat(days[0].key),
            date.fromisoformat(days[-1].key),
            sum(each.joined for each in days),
            sum(each.left for each in days),
        )


@dataclass(frozen=True)
class PlottedBar:
    """The place of a span's bars: joins above the zero line, departures below it."""

    x: float
    width: float
    joined_y: float
    joined_height: float
    left_height: float


@dataclass(frozen=True)
class GrowthPlot:
    """The figure that the template draws.

    Attributes:
        whole: all of its days together.
        most_joined: the number that the upper edge stands for, as ``most_left`` for the lower one.
        line: the points of the net of each span.
    """

    whole: GrowthSpan
    spans: list[GrowthSpan]
    bars: list[PlottedBar]
    zero: float
    most_joined: int
    most_left: int
    line: str

    @property
    def marks(self) -> list[str]:
        """Return the values at the top, in the middle and at the bottom of the figure."""
        middle = (self.most_joined - self.most_left) / 2
        return [f"{value:,g}" for value in (self.most_joined, middle, -self.most_left or 0)]

    @property
    def days_of_span(self) -> int:
        return (self.spans[0].last - self.spans[0].first).days + 1


def growth_plot(days: Sequence[MemberFigures]) -> GrowthPlot:
    """Return the figure of these days, in order; several of many days make one span."""
    # A day, a week, or as many weeks as are needed for a figure that can be read.
    size = 1 if len(days) <= _MAX_BARS else 7 * -(-len(days) // (7 * _MAX_BARS))
    spans = [GrowthSpan.of(days[first : first + size]) for first in range(0, len(days), size)]
    most_joined = max(each.joined for each in spans)
    most_left = max(each.left for each in spans)
    # Both directions have one scale. A list to which nothing happened has a line in the middle.
    unit = HEIGHT / (most_joined + most_left or 1)
    zero = round(most_joined * unit, 1) if most_joined or most_left else HEIGHT / 2
    step = WIDTH / len(spans)
    bars = [
        PlottedBar(
            x=round((number + _GAP_SHARE / 2) * step, 1),
            width=round((1 - _GAP_SHARE) * step, 1),
            joined_y=round(zero - each.joined * unit, 1),
            joined_height=round(each.joined * unit, 1),
            left_height=round(each.left * unit, 1),
        )
        for number, each in enumerate(spans)
    ]
    line = " ".join(
        f"{round((number + 0.5) * step, 1)},{round(zero - each.net * unit, 1)}"
        for number, each in enumerate(spans)
    )
    return GrowthPlot(GrowthSpan.of(days), spans, bars, zero, most_joined, most_left, line)
