"""The figure of growth shows each number in its place."""

from datetime import date, timedelta

import pytest

from api.console.of_lists.growth_plots import HEIGHT, WIDTH, GrowthPlot, growth_plot
from services.mailing.member_figures import MemberFigures


def plotted(*numbers: tuple[int, int]) -> GrowthPlot:
    first = date(2026, 1, 1)
    return growth_plot(
        [
            MemberFigures(str(first + timedelta(days=day)), joined, left)
            for day, (joined, left) in enumerate(numbers)
        ]
    )


def test_bars_stand_on_the_zero_line_on_one_scale() -> None:
    plot = plotted((30, 0), (15, 10), (0, 0))
    assert (plot.most_joined, plot.most_left) == (30, 10)
    assert plot.zero == HEIGHT * 30 / 40
    tall, half, none = plot.bars
    assert (tall.joined_y, tall.joined_height, tall.left_height) == (0, plot.zero, 0)
    assert half.joined_height * 2 == tall.joined_height
    assert half.joined_y + half.joined_height == plot.zero
    assert plot.zero + half.left_height == HEIGHT
    assert (none.joined_height, none.left_height) == (0, 0)
    assert none.x + none.width <= WIDTH


def test_sums_are_those_of_all_days() -> None:
    plot = plotted((3, 1), (0, 4))
    assert (plot.joined, plot.left, plot.net) == (3, 5, -2)


@pytest.mark.parametrize(("days", "size"), [(30, 1), (62, 1), (63, 7), (365, 7), (1_095, 21)])
def test_many_days_make_spans_of_whole_weeks(days: int, size: int) -> None:
    plot = plotted(*[(1, 0)] * days)
    assert plot.days_of_span == size
    assert len(plot.spans) <= 62
    assert sum(each.joined for each in plot.spans) == days
    assert plot.spans[-1].last == date(2026, 1, 1) + timedelta(days=days - 1)


def test_a_list_to_which_nothing_happened_has_a_line_in_the_middle() -> None:
    plot = plotted((0, 0), (0, 0))
    assert plot.zero == HEIGHT / 2
    assert {point.split(",")[1] for point in plot.line.split()} == {str(plot.zero)}
