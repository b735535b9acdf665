"""The console page with the growth of a list: a chart, and where members came from and went."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import orjson
from fastapi.responses import Response

from api.console.assets import CONSOLE_PATH
from api.console.console_display import (
    LEFT_REASONS,
    SOURCES,
    TIERS,
    format_change,
    format_number,
)
from api.console.growth import Figure, GrowthSpan, build_growth_plot
from api.console.navigation import get_list_path
from api.console.plan_notices import can_import
from api.console.requests import (
    FiguresPage,
    build_router,
)
from api.record_ids import ListId
from api.responses.lists import describe_list
from api.state import Transaction
from core import clock
from core.settings.notations import Retained
from services.paging import PageRequest
from services.subscriptions import daily_figures, joins_by_origin, mailings
from services.subscriptions.daily_figures import DayRange, FiguresBy
from services.subscriptions.mailings import Outcome
from storage.unit_of_work import UnitOfWork

router = build_router(f"{CONSOLE_PATH}/lists")

# Maps each period of the growth chart, in days, to a short label and a full label.
_PERIOD_LABELS = {
    "30": ("30 d", "30 days"),
    "90": ("90 d", "90 days"),
    "365": ("1 y", "1 year"),
    "1095": ("3 y", "3 years"),
}
_USUAL_PERIOD = "30"
# Maps each kind of origin to its label.
_ORIGIN_LABELS: Mapping[str, str] = {
    FiguresBy.UTM_SOURCE.value: "Source",
    FiguresBy.UTM_CAMPAIGN.value: "Campaign",
    FiguresBy.LANDING.value: "Page",
}
_MAX_ORIGINS_ON_PAGE = 10
_MAILINGS_ON_PAGE = 5


@dataclass(frozen=True)
class Tile:
    """A figure whose chart the page can show.

    ``change``: the growth of ``MEMBERS`` in the period. For other figures, the difference from the
    period before, or empty if there is nothing to compare with.
    """

    figure: Figure
    number: str
    change: str


@dataclass(frozen=True)
class PanelRow:
    """A row of a panel. ``percentage``: the length of the bar behind the row."""

    label: str
    path: str
    numbers: tuple[int, ...]
    percentage: float


@dataclass(frozen=True)
class OriginPanel:
    """Where new members came from.

    Attributes:
        by: the kind of origin, a key of ``_ORIGIN_LABELS``.
        other: how many people joined from origins that ``rows`` omits.
        unknown: how many joined without an origin.
    """

    by: str
    rows: list[PanelRow]
    other: int
    unknown: int


@router.get("/{list_id}")
def show_list(
    console: FiguresPage,
    uow: Transaction,
    list_id: ListId,
    days: str = _USUAL_PERIOD,
    figure: str = Figure.MEMBERS.value,
    by: str = FiguresBy.UTM_SOURCE.value,
) -> Response:
    period = days if days in _PERIOD_LABELS else _USUAL_PERIOD
    shown_figure = Figure(figure) if figure in [*Figure] else Figure.MEMBERS
    origin_kind = FiguresBy(by if by in _ORIGIN_LABELS else FiguresBy.UTM_SOURCE)
    day_count = int(period)
    today = clock.now().date()
    day_range = DayRange(today - timedelta(days=day_count - 1), today)
    mailing_list = console.get_own_list(uow, list_id)
    record = describe_list(uow, console.state, mailing_list)
    # The chart shows the second half of the days. The first half is the period before.
    compared_days = DayRange(today - timedelta(days=2 * day_count - 1), today)
    figures = daily_figures.read_figures(uow, mailing_list.id, compared_days, FiguresBy.DAY)
    period_figures = figures[day_count:]
    kept_days = console.state.resources.settings.retention[Retained.SUBSCRIPTION_EVENTS]
    first_kept_day = today - timedelta(days=kept_days)
    # Without a whole period before, a comparison would show growth that never happened.
    has_period_before = mailing_list.created_at.date() <= compared_days.first
    before = GrowthSpan.of(figures[:day_count]) if has_period_before else None
    plot = build_growth_plot(period_figures, shown_figure, record.subscriber_count, first_kept_day)
    reasons, stated_reasons = _list_reasons(uow, mailing_list.id, day_range)
    return console.render_page(
        "list.html",
        list=record,
        plot=plot,
        tiles=_build_tiles(
            plot.total, before, has_confirmations=compared_days.first >= first_kept_day
        ),
        seen=sum(each.seen or 0 for each in period_figures),
        origins=_list_origins(uow, mailing_list.id, day_range, origin_kind, plot.total.joined),
        origin_labels=_ORIGIN_LABELS,
        reasons=reasons,
        stated_reasons=stated_reasons,
        tiers=_list_members(uow, mailing_list.id, FiguresBy.TIER, "type", TIERS),
        sources=_list_members(uow, mailing_list.id, FiguresBy.SOURCE, "source", SOURCES),
        mailings=_list_newest_mailings(uow, mailing_list.id),
        can_import=can_import(uow, console.account_id),
        period=period,
        periods=_PERIOD_LABELS,
    )


def _build_tiles(
    total: GrowthSpan, before: GrowthSpan | None, *, has_confirmations: bool
) -> list[Tile]:
    """``has_confirmations`` says whether the confirmations of ``before`` are still stored."""
    percentage = total.confirmed_percentage
    changes = dict.fromkeys((Figure.JOINED, Figure.LEFT, Figure.CONFIRMED), "")
    if before is not None:
        changes[Figure.JOINED] = format_change(total.joined - before.joined)
        changes[Figure.LEFT] = format_change(total.left - before.left)
        former_percentage = before.confirmed_percentage
        if has_confirmations and percentage is not None and former_percentage is not None:
            changes[Figure.CONFIRMED] = f"{format_change(percentage - former_percentage)} points"
    return [
        Tile(
            Figure.MEMBERS,
            format_number(total.members),
            format_change(total.net + total.imported),
        ),
        Tile(Figure.JOINED, format_number(total.joined), changes[Figure.JOINED]),
        Tile(Figure.LEFT, format_number(total.left), changes[Figure.LEFT]),
        Tile(
            Figure.CONFIRMED,
            "–" if percentage is None else f"{percentage} %",
            changes[Figure.CONFIRMED],
        ),
    ]


def _list_origins(
    uow: UnitOfWork, list_id: int, days: DayRange, by: FiguresBy, joined: int
) -> OriginPanel:
    """Return the most frequent origins. ``joined``: how many joined without an import."""
    origins = joins_by_origin.read_joins_by_origin(uow, list_id, days, by, _MAX_ORIGINS_ON_PAGE)
    rows = _build_rows(
        (
            each.key,
            _build_members_path(list_id, each.by, each.key),
            (each.joined, each.left),
        )
        for each in origins.largest
    )
    other = origins.joined - sum(each.joined for each in origins.largest)
    return OriginPanel(by, rows, other, max(joined - origins.joined, 0))


def _list_reasons(
    uow: UnitOfWork, list_id: int, days: DayRange
) -> tuple[list[PanelRow], list[PanelRow]]:
    """Return how members left, and the reasons that people chose, most frequent first."""
    figures = daily_figures.read_figures(uow, list_id, days, FiguresBy.REASON)
    left_by_reason = {each.key: each.left for each in figures}
    stated = [each.stated for each in figures if each.stated]
    reasons, stated_reasons = (
        _build_rows(
            (
                LEFT_REASONS[reason].capitalize(),
                _build_members_path(list_id, "left_reason", reason),
                (count,),
            )
            for reason, count in sorted(counts.items(), key=lambda pair: -pair[1])
        )
        for counts in (left_by_reason, stated[0] if stated else {})
    )
    return reasons, stated_reasons


def _list_members(
    uow: UnitOfWork, list_id: int, by: FiguresBy, field: str, labels: Mapping[str, str]
) -> list[PanelRow]:
    counts = daily_figures.count_members(uow, list_id, by)
    return _build_rows(
        (labels.get(key, key), _build_members_path(list_id, field, key), (count,))
        for key, count in sorted(counts.items(), key=lambda pair: -pair[1])
    )


def _list_newest_mailings(uow: UnitOfWork, list_id: int) -> list[PanelRow]:
    page = mailings.list_mailings(uow, list_id, PageRequest(_MAILINGS_ON_PAGE))
    return _build_rows(
        (
            mailings.get_name(row),
            f"{get_list_path(list_id)}/mailings/{row.id}",
            (issue.counts[Outcome.LEFT], row.rows),
        )
        for row, issue in zip(page.rows, mailings.describe_mailings(uow, page.rows), strict=True)
    )


def _build_rows(entries: Iterable[tuple[str, str, tuple[int, ...]]]) -> list[PanelRow]:
    """Return rows for triples of a label, a path and numbers. The first number sizes the bar."""
    entries = [*entries]
    largest = max((numbers[0] for _, _, numbers in entries), default=0) or 1
    return [
        PanelRow(label, path, numbers, round(100 * max(numbers[0], 0) / largest, 1))
        for label, path, numbers in entries
    ]


def _build_members_path(list_id: int, field: str, value: str) -> str:
    return f"{get_list_path(list_id)}/members?{build_members_query(field, value)}"


def build_members_query(field: str, *values: str | int) -> str:
    """Return the query of the members page for members whose field has one of the values."""
    condition = {"is": values[0]} if len(values) == 1 else {"in": values}
    return build_filter_query({"field": field, **condition})


def build_filter_query(member_filter: Mapping[str, Any]) -> str:
    """Return the query of the members page for members who match a filter."""
    return urlencode({"filter": orjson.dumps(member_filter).decode()})
