"""Calculates charts that show how many people joined and left lists.

A ``GrowthPlot`` has two bars per period: people who joined are above the zero line, and people who
left are below the zero line. A ``NetGrowthPlot`` is a line that shows the net growth since the
first day. The bar chart and the line chart leave out imported members, because a single import can
be so large that all other changes become invisible.

The template writes the marks of the vertical axis as HTML next to the SVG. Positions and sizes in
the SVG are percentages, so that the chart fits any window, but the text in the SVG keeps its size.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import accumulate, count
from typing import Self

from services.subscriptions.daily_figures import MemberFigures

_MAX_BARS = 62
# The width of the gap between two bars, as a fraction of the width of a period's column.
_GAP_SHARE = 0.25
_DAYS_PER_WEEK = 7
_MAX_DAYS_PER_YEAR = 366
# The maximum number of intervals between the marks of the vertical axis.
_MAX_MARK_STEPS = 6
# The vertical axis of a line chart has fewer marks than the axis of a bar chart, because a line
# chart has a horizontal line at each mark.
_MAX_NET_MARK_STEPS = 4
# How many dates fit below the chart in a wide window, and on a phone.
_MAX_DATES = 13
_MAX_DATES_ON_PHONE = 5


@dataclass(frozen=True)
class GrowthSpan:
    """The numbers of people who joined and left a list in a period.

    ``joined``: how many people joined in other ways than by an import.
    """

    first: date
    last: date
    joined: int
    imported: int
    left: int

    @property
    def net(self) -> int:
        """Return the net growth without imported members."""
        return self.joined - self.left

    @classmethod
    def of(cls, days: Sequence[MemberFigures]) -> Self:
        return cls(
            date.fromisoformat(days[0].key),
            date.fromisoformat(days[-1].key),
            sum(each.joined - each.imported for each in days),
            sum(each.imported for each in days),
            sum(each.left for each in days),
        )


@dataclass(frozen=True)
class PlottedSpan:
    """The sizes and positions of one period's bars.

    Attributes:
        start, space: the left edge and the width of the period's column in the chart.
        x, width: the left edge and the width of the bars, which are narrower than the column.
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
    """A date below the chart. ``is_extra``: whether a narrow window has no space for the date."""

    label: str
    x: float
    is_extra: bool


@dataclass(frozen=True)
class GrowthPlot:
    """The data of a growth chart, which a template draws as SVG.

    Attributes:
        zero: the vertical position of the zero line.
        marks: evenly spaced numbers of people next to the vertical axis, from the upper edge to the
            lower edge of the chart. Negative numbers stand for people who left.
        dates: the dates below the chart, each of which is the first day of a bar's period.
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


@dataclass(frozen=True)
class PlottedDay:
    """A day in the line chart of net growth.

    Attributes:
        start, space: the left edge and the width of the day's column in the chart.
        x, y: the day's point on the line, in the middle of the column.
        net: the net growth from the first day of the chart to the end of this day, without imported
            members.
    """

    span: GrowthSpan
    start: float
    space: float
    x: float
    y: float
    net: int


@dataclass(frozen=True)
class NetGrowthPlot:
    """The data of a line chart of net growth, which a template draws as SVG.

    ``total.net`` is the net growth at the end of the line. A negative number in ``marks`` means a
    net loss of members.
    """

    total: GrowthSpan
    days: list[PlottedDay]
    zero: float
    marks: list[int]
    dates: list[PlottedDate]

    @property
    def points(self) -> str:
        return " ".join(f"{day.x},{day.y}" for day in self.days)

    @property
    def area(self) -> str:
        """Return the corners of the area between the line and the zero line."""
        return f"{self.days[0].x},{self.zero} {self.points} {self.days[-1].x},{self.zero}"


def build_growth_plot(days: Sequence[MemberFigures]) -> GrowthPlot:
    """Return the growth chart for ``days``, which must be in chronological order."""
    # Each bar covers one day, or whole weeks if there would be too many daily bars.
    size = 1
    if len(days) > _MAX_BARS:
        size = _DAYS_PER_WEEK * -(-len(days) // (_DAYS_PER_WEEK * _MAX_BARS))
    spans = [GrowthSpan.of(days[first : first + size]) for first in range(0, len(days), size)]
    marks = _choose_marks(max(each.joined for each in spans), max(each.left for each in spans))
    # The bars for joins and departures have the same scale, so that they can be compared.
    unit, zero = _compute_scale(marks)
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


def build_net_growth_plot(days: Sequence[MemberFigures]) -> NetGrowthPlot:
    """Return the chart of net growth for ``days``, which must be in chronological order."""
    spans = [GrowthSpan.of([day]) for day in days]
    net_by_day = list(accumulate(span.net for span in spans))
    marks = _choose_marks(
        max(0, *net_by_day), max(0, *(-net for net in net_by_day)), _MAX_NET_MARK_STEPS
    )
    unit, zero = _compute_scale(marks)
    space = 100 / len(days)
    plotted_days = [
        PlottedDay(
            span=span,
            start=round(number * space, 2),
            space=round(space, 2),
            x=round((number + 0.5) * space, 2),
            y=round(zero - net * unit, 2),
            net=net,
        )
        for number, (span, net) in enumerate(zip(spans, net_by_day, strict=True))
    ]
    dates = _choose_dates(plotted_days[::_DAYS_PER_WEEK], has_years=len(days) > _MAX_DAYS_PER_YEAR)
    return NetGrowthPlot(GrowthSpan.of(days), plotted_days, round(zero, 2), marks, dates)


def draw_growth_line(growth: Sequence[int]) -> str | None:
    """Return the points of a line that shows the net growth up to the end of each day.

    The points have the format of the SVG attribute ``points``. If the net growth never changes, the
    function returns ``None`` instead of a flat line.

    ``growth``: the net growth on each day, oldest day first.
    """
    net_by_day = list(accumulate(growth))
    highest = max(net_by_day)
    height = highest - min(net_by_day)
    if not height:
        return None
    step = 100 / (len(net_by_day) - 1)
    return " ".join(
        f"{number * step:.1f},{100 * (highest - net) / height:.1f}"
        for number, net in enumerate(net_by_day)
    )


def _compute_scale(marks: Sequence[int]) -> tuple[float, float]:
    """Return the height that a bar needs per person, and the vertical position of the zero line."""
    unit = 100 / (marks[0] - marks[-1])
    return unit, marks[0] * unit


def _choose_marks(highest: int, lowest: int, max_steps: int = _MAX_MARK_STEPS) -> list[int]:
    """Return at least two evenly spaced round numbers for the vertical axis, in descending order.

    Args:
        highest: the value that the top of the axis must at least reach.
        lowest: how far the axis must at least reach below zero, as a positive number.
    """
    for step in _generate_round_numbers():
        # If ``highest`` and ``lowest`` are 0, the zero line is the lower edge of the chart.
        above = -(-highest // step) or (not lowest)
        below = -(-lowest // step)
        if above + below <= max_steps:
            break
    return [number * step for number in range(above, -below - 1, -1)]


def _generate_round_numbers() -> Iterator[int]:
    for exponent in count():
        for digit in (1, 2, 5):
            yield digit * 10**exponent


def _choose_dates(
    bars: Sequence[PlottedSpan | PlottedDay], *, has_years: bool
) -> list[PlottedDate]:
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
