"""Calculates a chart that shows the growth of a list.

For each period, the chart shows how many people joined, how many left, and the difference. The
labels of the chart are HTML next to the SVG, because stretching the SVG would distort its text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Self

from services.subscriptions.daily_figures import MemberFigures

# The width and height of the chart in SVG units.
WIDTH = 1_000
HEIGHT = 300
_MAX_BARS = 62
# The share of each bar's space that stays empty, as a gap between bars.
_GAP_SHARE = 0.25


@dataclass(frozen=True)
class GrowthSpan:
    """The numbers of people who joined and left a list in a period."""

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
    """The bars for joins and departures in one period."""

    x: float
    width: float
    joined_y: float
    joined_height: float
    left_height: float


@dataclass(frozen=True)
class GrowthPlot:
    """The data of a growth chart, which a template draws as SVG.

    Attributes:
        total: the total numbers of joins and departures over all periods.
        zero: the vertical position of the zero line in the chart.
        most_joined: the highest number of joins in a period. The chart's upper edge stands for this
            number.
        most_left: the highest number of departures in a period. The chart's lower edge stands for
            this number.
        line: the points of the line that shows joins minus departures.
    """

    total: GrowthSpan
    spans: list[GrowthSpan]
    bars: list[PlottedBar]
    zero: float
    most_joined: int
    most_left: int
    line: str

    @property
    def marks(self) -> list[str]:
        """Return labels for the top, middle and bottom of the chart's vertical axis."""
        middle = (self.most_joined - self.most_left) / 2
        return [f"{value:,g}" for value in (self.most_joined, middle, -self.most_left or 0)]

    @property
    def days_of_span(self) -> int:
        return (self.spans[0].last - self.spans[0].first).days + 1


def build_growth_plot(days: Sequence[MemberFigures]) -> GrowthPlot:
    """Return the growth chart for ``days``, which must be in chronological order."""
    # Each bar covers one day, or whole weeks if there would be too many daily bars.
    size = 1 if len(days) <= _MAX_BARS else 7 * -(-len(days) // (7 * _MAX_BARS))
    spans = [GrowthSpan.of(days[first : first + size]) for first in range(0, len(days), size)]
    most_joined = max(each.joined for each in spans)
    most_left = max(each.left for each in spans)
    # The bars for joins and departures have the same scale, so that they can be compared. Without
    # any joins or departures, the zero line is in the middle of the chart.
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
