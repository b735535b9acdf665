"""Calculates charts that show how many people joined and left lists.

A chart is a line, or it has one or two bars per period: an upper bar above the zero line, and a
lower bar below the zero line. Only the line of a list's members includes imported members, because
a single import can be so large that all other changes become invisible.

The template writes the marks of the vertical axis as HTML next to the SVG. Positions and sizes in
the SVG are percentages, so that the chart fits any window, but the text in the SVG keeps its size.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from enum import StrEnum
from itertools import accumulate, count
from typing import Self

from api.console.console_display import format_change, format_count, format_day
from services.subscriptions.daily_figures import MemberFigures

_MAX_BARS = 62
# The width of the gap between two bars, as a fraction of the width of a period's column.
_GAP_SHARE = 0.25
# The height of the bar for 0 %, in percent of the chart. A rate without a bar is unknown.
_MIN_RATE_HEIGHT = 1
_DAYS_PER_WEEK = 7
_MAX_DAYS_PER_YEAR = 366
# The maximum number of intervals between the marks of the vertical axis.
_MAX_MARK_STEPS = 6
# The vertical axis of a line chart has fewer marks than the axis of a bar chart, because a line
# chart has a horizontal line at each mark.
_MAX_LINE_MARK_STEPS = 4
# How many dates fit below the chart in a wide window, and on a phone.
_MAX_DATES = 13
_MAX_DATES_ON_PHONE = 5


class Figure(StrEnum):
    """A figure of a list that the list's page can show as a chart."""

    MEMBERS = "members"
    JOINED = "joined"
    LEFT = "left"
    CONFIRMED = "confirmed"


@dataclass(frozen=True)
class GrowthSpan:
    """The numbers of people who joined and left a list in a period.

    Attributes:
        joined: how many people joined in other ways than by an import.
        asked, confirmed: the numbers of sign-ups that needed a confirmation, and of confirmations.
        members: the number of members at the end of the period, or 0 if the chart doesn't need it.
        has_confirmations: whether ``asked`` and ``confirmed`` are known. Their events are deleted
            after the retention period.
    """

    first: date
    last: date
    joined: int
    imported: int
    left: int
    asked: int
    confirmed: int
    members: int = 0
    has_confirmations: bool = True

    @property
    def net(self) -> int:
        """Return the net growth without imported members."""
        return self.joined - self.left

    @property
    def confirmed_percentage(self) -> int | None:
        """Return at most 100, although some confirmations belong to earlier sign-ups."""
        if not self.has_confirmations or not self.asked:
            return None
        return min(round(100 * self.confirmed / self.asked), 100)

    @classmethod
    def of(cls, days: Sequence[MemberFigures]) -> Self:
        return cls(
            date.fromisoformat(days[0].key),
            date.fromisoformat(days[-1].key),
            sum(each.joined - each.imported for each in days),
            sum(each.imported for each in days),
            sum(each.left for each in days),
            sum(each.asked for each in days),
            sum(each.confirmed for each in days),
        )


@dataclass(frozen=True)
class PlottedSpan:
    """A period's column in the chart.

    Attributes:
        words: the period and its numbers.
        start, space: the left edge and the width of the column.
        bar_start, bar_width: the same of the bars, which are narrower than the column.
        value: the number that the line or the upper bar shows, or ``None`` for an unknown rate.
        y: the point on the line, or the upper edge of the upper bar.
    """

    span: GrowthSpan
    words: str
    start: float
    space: float
    bar_start: float
    bar_width: float
    value: int | None
    y: float
    upper_height: float
    lower_height: float

    @property
    def centre(self) -> float:
        return round(self.start + self.space / 2, 2)


@dataclass(frozen=True)
class PlottedDate:
    """A date below the chart. ``is_extra``: whether a narrow window has no space for the date."""

    label: str
    x: float
    is_extra: bool


@dataclass(frozen=True)
class GrowthPlot:
    """The data of a chart, which a template draws as SVG.

    Attributes:
        figure: what the chart shows, or ``None`` for the net growth.
        zero: the vertical position of the zero line.
        marks: evenly spaced numbers next to the vertical axis, from the upper edge to the lower
            edge of the chart. Negative numbers stand for people who left, or for a net loss.
        labels, mark_heights: the texts and the vertical positions of the marks.
        dates: the dates below the chart, each of which is the first day of a column's period.
        has_numbers: whether there is anything to draw.
    """

    figure: Figure | None
    total: GrowthSpan
    columns: list[PlottedSpan]
    zero: float
    marks: list[int]
    labels: list[str]
    mark_heights: list[float]
    dates: list[PlottedDate]
    has_numbers: bool

    @property
    def has_line(self) -> bool:
        return self.figure in (None, Figure.MEMBERS)

    @property
    def heads(self) -> list[tuple[str, str]]:
        """Return the columns of the table below the chart: labels and attributes of spans."""
        if self.figure is Figure.CONFIRMED:
            return [("Requests", "asked"), ("Confirmed", "confirmed")]
        heads = [("Joined", "joined"), ("Left", "left"), ("Net", "net")]
        if self.total.imported:
            heads.append(("Imported", "imported"))
        if self.figure is Figure.MEMBERS:
            heads.append(("Members", "members"))
        return heads

    @property
    def spans(self) -> list[GrowthSpan]:
        return [column.span for column in self.columns]

    @property
    def days_of_span(self) -> int:
        span = self.columns[0].span
        return (span.last - span.first).days + 1

    @property
    def points(self) -> str:
        return " ".join(f"{column.centre},{column.y}" for column in self.columns)

    @property
    def area(self) -> str:
        """Return the corners of the area between the line and the zero line or the lower edge."""
        base = min(self.zero, 100)
        first = self.columns[0].centre
        last = self.columns[-1].centre
        return f"{first},{base} {self.points} {last},{base}"


def build_growth_plot(
    days: Sequence[MemberFigures],
    figure: Figure = Figure.JOINED,
    members: int = 0,
    first_stored: date = date.min,
) -> GrowthPlot:
    """Return the chart of a figure for ``days``, which must be in chronological order.

    Args:
        members: the number of members at the end of the last day.
        first_stored: the first day whose confirmations are still stored.
    """
    # Each column covers one day, or whole weeks if there would be too many columns. Rates are
    # always for whole weeks, because many people confirm on a later day.
    size = 1
    if len(days) > _MAX_BARS or figure is Figure.CONFIRMED:
        size = _DAYS_PER_WEEK * -(-len(days) // (_DAYS_PER_WEEK * _MAX_BARS))
    spans = [GrowthSpan.of(days[first : first + size]) for first in range(0, len(days), size)]
    # Count back from the current number of members.
    losses = (-each.net - each.imported for each in reversed(spans[1:]))
    members_by_span = [*accumulate(losses, initial=members)][::-1]
    spans = [
        replace(span, members=number, has_confirmations=span.first >= first_stored)
        for span, number in zip(spans, members_by_span, strict=True)
    ]
    total = replace(GrowthSpan.of(days), members=members)
    values, lower_values = _choose_values(spans, figure)
    words = [_describe_figure(span, figure) for span in spans]
    return _build_plot(figure, total, spans, values, words, lower_values)


def build_net_growth_plot(days: Sequence[MemberFigures]) -> GrowthPlot:
    """Return the chart of net growth since the first day, without imported members.

    ``total.net`` is the net growth at the end of the line.
    """
    spans = [GrowthSpan.of([day]) for day in days]
    values = [*accumulate(span.net for span in spans)]
    words = [_describe_figure(span, Figure.JOINED) for span in spans]
    return _build_plot(None, GrowthSpan.of(days), spans, values, words)


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


def _choose_values(
    spans: Sequence[GrowthSpan], figure: Figure
) -> tuple[Sequence[int | None], list[int]]:
    """Return the values of the line or the upper bars, and the values of the lower bars.

    An unknown rate is ``None``.
    """
    no_values = [0] * len(spans)
    match figure:
        case Figure.MEMBERS:
            return [span.members for span in spans], no_values
        case Figure.JOINED:
            return [span.joined for span in spans], [span.left for span in spans]
        case Figure.LEFT:
            return [span.left for span in spans], no_values
        case Figure.CONFIRMED:
            return [span.confirmed_percentage for span in spans], no_values


def _describe_figure(span: GrowthSpan, figure: Figure) -> str:
    match figure:
        case Figure.MEMBERS:
            return format_count(span.members, "member")
        case Figure.JOINED:
            imported = f"{span.imported:,} imported, " if span.imported else ""
            return f"{span.joined:,} joined, {imported}{span.left:,} left"
        case Figure.LEFT:
            return f"{span.left:,} left"
        case Figure.CONFIRMED if not span.has_confirmations:
            return "no longer stored"
        case Figure.CONFIRMED:
            return f"{span.asked:,} asked, {span.confirmed:,} confirmed"


def _build_plot(
    figure: Figure | None,
    total: GrowthSpan,
    spans: Sequence[GrowthSpan],
    values: Sequence[int | None],
    words: Sequence[str],
    lower_values: Sequence[int] | None = None,
) -> GrowthPlot:
    has_line = figure in (None, Figure.MEMBERS)
    lower_values = lower_values or [0] * len(spans)
    numbers = [value or 0 for value in values]
    if figure is not Figure.MEMBERS:
        numbers += [0, *(-each for each in lower_values)]
    if figure is Figure.CONFIRMED:
        numbers.append(100)
    marks = _choose_marks(
        min(numbers), max(numbers), _MAX_LINE_MARK_STEPS if has_line else _MAX_MARK_STEPS
    )
    # The upper and the lower bars have the same scale, so that they can be compared.
    unit = 100 / (marks[0] - marks[-1])
    zero = marks[0] * unit
    space = 100 / len(spans)
    min_height = _MIN_RATE_HEIGHT if figure is Figure.CONFIRMED else -math.inf
    heights = [0 if value is None else max(value * unit, min_height) for value in values]
    columns = [
        PlottedSpan(
            span=span,
            words=f"{_describe_days(span)}: {text}",
            start=round(number * space, 2),
            space=round(space, 2),
            bar_start=round((number + _GAP_SHARE / 2) * space, 2),
            bar_width=round((1 - _GAP_SHARE) * space, 2),
            value=value,
            y=round(zero - height, 2),
            upper_height=0 if has_line else round(height, 2),
            lower_height=round(lower_value * unit, 2),
        )
        for number, (span, value, height, lower_value, text) in enumerate(
            zip(spans, values, heights, lower_values, words, strict=True)
        )
    ]
    has_years = (total.last - total.first).days >= _MAX_DAYS_PER_YEAR
    is_daily = spans[0].first == spans[0].last
    dates = _choose_dates(columns[:: _DAYS_PER_WEEK if is_daily else 1], has_years=has_years)
    return GrowthPlot(
        figure,
        total,
        columns,
        round(zero, 2),
        marks,
        _write_labels(marks, figure),
        mark_heights=[round((marks[0] - mark) * unit, 2) for mark in marks],
        dates=dates,
        has_numbers=has_line or any(each.upper_height or each.lower_height for each in columns),
    )


def _describe_days(span: GrowthSpan) -> str:
    first = format_day(span.first)
    last = format_day(span.last)
    return first if first == last else f"{first} to {last}"


def _write_labels(marks: Sequence[int], figure: Figure | None) -> list[str]:
    labels = [format_change(mark) if figure is None else f"{abs(mark):,}" for mark in marks]
    if figure is Figure.CONFIRMED:
        labels = [f"{label} %" for label in labels]
    if figure is Figure.JOINED:
        # Words instead of a sign say what the bars above and below the zero line count.
        if marks[0] > 0:
            labels[0] += " joined"
        if marks[-1] < 0:
            labels[-1] += " left"
    return labels


def _choose_marks(lowest: int, highest: int, max_steps: int) -> list[int]:
    """Return at least two evenly spaced round numbers that span both values, highest first."""
    for step in _generate_round_numbers():
        first = lowest // step
        # Two equal values have a mark above them.
        last = max(-(-highest // step), first + 1)
        if last - first <= max_steps:
            break
    return [number * step for number in range(last, first - 1, -1)]


def _generate_round_numbers() -> Iterator[int]:
    for exponent in count():
        for digit in (1, 2, 5):
            yield digit * 10**exponent


def _choose_dates(columns: Sequence[PlottedSpan], *, has_years: bool) -> list[PlottedDate]:
    columns = columns[:: -(-len(columns) // _MAX_DATES)]
    phone_step = -(-len(columns) // _MAX_DATES_ON_PHONE)
    dates = []
    for number, column in enumerate(columns):
        first = column.span.first
        label = f"{first:%b %Y}" if has_years else f"{first.day} {first:%b}"
        dates.append(PlottedDate(label, column.centre, number % phone_step > 0))
    return dates
