"""Calculates a chart that shows the growth of a list.

For each period, a bar above the zero line shows how many people joined, and a bar below the zero
line shows how many people left. The marks of the vertical axis are HTML next to the SVG. Positions
and sizes in the SVG are percentages, so that a narrow window doesn't distort the dates.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import count
from typing import Self

from services.subscriptions.daily_figures import MemberFigures

_MAX_BARS = 62
# The share of each bar's space that stays empty, as a gap between bars.
_GAP_SHARE = 0.25
_DAYS_PER_WEEK = 7
_MAX_DAYS_PER_YEAR = 366
# The maximum number of intervals between the marks of the vertical axis.
_MAX_MARK_STEPS = 6
# How many dates fit below the chart in a wide window, and on a phone.
_MAX_DATES = 13
_MAX_DATES_ON_PHONE = 5


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
class PlottedSpan:
    """The bars of one period, in percent of the chart's width and height.

    Attributes:
        start: the left edge of the period's space. ``space`` is the width of this space.
        x: the left edge of the bars, which are ``width`` wide.
        joined_y: the upper edge of the bar for people who joined.
    """

    span: GrowthSpan
    start: float
    space: float
    x: float
    width: float
    joined_y: float
    joined_height: float
    left_height: float


@dataclass(frozen=True)
class PlottedDate:
    """A date below the chart.

    Attributes:
        x: the position, in percent of the chart's width.
        is_extra: whether a narrow window has no space for the date.
    """

    label: str
    x: float
    is_extra: bool


@dataclass(frozen=True)
class GrowthPlot:
    """The data of a growth chart, which a template draws as SVG.

    Attributes:
        total: the total numbers of joins and departures over all periods.
        zero: the vertical position of the zero line, in percent of the chart's height.
        marks: the numbers of the vertical axis, from the upper edge to the lower edge of the chart.
            The numbers are evenly spaced. Negative numbers are departures.
        dates: the dates below the chart. Each date is the first day of a period.
    """

    total: GrowthSpan
    bars: list[PlottedSpan]
    zero: float
    marks: list[int]
    dates: list[PlottedDate]

    @property
    def spans(self) -> list[GrowthSpan]:
        return [bar.span for bar in self.bars]

    @property
    def days_of_span(self) -> int:
        span = self.bars[0].span
        return (span.last - span.first).days + 1


def build_growth_plot(days: Sequence[MemberFigures]) -> GrowthPlot:
    """Return the growth chart for ``days``, which must be in chronological order."""
    # Each bar covers one day, or whole weeks if there would be too many daily bars.
    size = 1
    if len(days) > _MAX_BARS:
        size = _DAYS_PER_WEEK * -(-len(days) // (_DAYS_PER_WEEK * _MAX_BARS))
    spans = [GrowthSpan.of(days[first : first + size]) for first in range(0, len(days), size)]
    marks = _choose_marks(max(each.joined for each in spans), max(each.left for each in spans))
    # The bars for joins and departures have the same scale, so that they can be compared.
    unit = 100 / (marks[0] - marks[-1])
    zero = marks[0] * unit
    space = 100 / len(spans)
    bars = [
        PlottedSpan(
            span=span,
            start=round(number * space, 2),
            space=round(space, 2),
            x=round((number + _GAP_SHARE / 2) * space, 2),
            width=round((1 - _GAP_SHARE) * space, 2),
            joined_y=round(zero - span.joined * unit, 2),
            joined_height=round(span.joined * unit, 2),
            left_height=round(span.left * unit, 2),
        )
        for number, span in enumerate(spans)
    ]
    bars_per_date = _DAYS_PER_WEEK if size == 1 else 1
    dates = _choose_dates(bars[::bars_per_date], has_years=len(days) > _MAX_DAYS_PER_YEAR)
    return GrowthPlot(GrowthSpan.of(days), bars, round(zero, 2), marks, dates)


def draw_member_line(member_count: int, growth: Sequence[int]) -> str | None:
    """Return the points of a line that shows the number of members at the end of each day.

    The points are in percent of the line's width and height, in the format of the SVG attribute
    ``points``. Return ``None`` if the number of members didn't change.

    Args:
        member_count: the current number of members.
        growth: the growth on each day, up to today.
    """
    counts = [member_count - sum(growth[number + 1 :]) for number in range(len(growth))]
    lowest, highest = min(counts), max(counts)
    if lowest == highest:
        return None
    step = 100 / (len(counts) - 1)
    height = highest - lowest
    return " ".join(
        f"{number * step:.1f},{100 * (highest - count) / height:.1f}"
        for number, count in enumerate(counts)
    )


def _choose_marks(most_joined: int, most_left: int) -> list[int]:
    """Return at least two evenly spaced round numbers, highest number first.

    The range of the numbers includes 0, ``most_joined`` and ``-most_left``.
    """
    for step in _generate_round_numbers():
        # Without any joins or departures, the zero line is the lower edge of the chart.
        above = -(-most_joined // step) or (not most_left)
        below = -(-most_left // step)
        if above + below <= _MAX_MARK_STEPS:
            break
    return [number * step for number in range(above, -below - 1, -1)]


def _generate_round_numbers() -> Iterator[int]:
    for exponent in count():
        for digit in (1, 2, 5):
            yield digit * 10**exponent


def _choose_dates(bars: Sequence[PlottedSpan], *, has_years: bool) -> list[PlottedDate]:
    bars = bars[:: -(-len(bars) // _MAX_DATES)]
    phone_step = -(-len(bars) // _MAX_DATES_ON_PHONE)
    dates = []
    for number, bar in enumerate(bars):
        first = bar.span.first
        label = f"{first:%b %Y}" if has_years else f"{first.day} {first:%b}"
        dates.append(
            PlottedDate(label, round(bar.start + bar.space / 2, 2), number % phone_step > 0)
        )
    return dates
