"""Daily figures of lists: how many people became active members, or ceased to be.

A trigger on ``subscriptions`` writes the differences of each statement. Maintenance adds them to
the figures of their day. Each figure here is a sum of the days and the remaining differences, so
that the figure is exact. The cost of a figure grows with the number of days.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, func, select, text

from core import clock
from core.errors.mailing import FIGURES_RANGE
from models import DAYS_AND_DELTAS, MailingList, Tier
from storage.replica_reads import ReplicaFailed
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# Three years. The answer has one row per day, and all are read at once.
MAX_DAYS = 1_100
_DEFAULT_DAYS = 30
_YEARS = range(1970, 3000)
_MAX_VERIFICATION = timedelta(hours=1)
_DAYS = DAYS_AND_DELTAS.c


class FiguresBy(StrEnum):
    DAY = "day"
    SOURCE = "source"
    TIER = "tier"


_KEYS: Mapping[FiguresBy, ColumnElement[Any]] = {
    FiguresBy.DAY: _DAYS.day,
    FiguresBy.SOURCE: _DAYS.source,
    FiguresBy.TIER: _DAYS.type,
}


@dataclass(frozen=True)
class MemberFigures:
    """How often people became active members, and how often they ceased to be.

    The figures include changes by the owner.
    """

    key: str
    joined: int = 0
    left: int = 0

    @property
    def net(self) -> int:
        return self.joined - self.left


@dataclass(frozen=True)
class DayRange:
    """Days (UTC), from the first to the last one."""

    first: date
    last: date

    @property
    def days(self) -> list[date]:
        count = (self.last - self.first).days + 1
        return [self.first + timedelta(days=number) for number in range(count)]


class SignUps(NamedTuple):
    """The number of confirmation requests that were mailed, and of confirmations."""

    asked: int
    confirmed: int


@dataclass(frozen=True)
class FiguresFault:
    """A list, source and tier whose figures don't add up to the number of active members."""

    list_id: int
    source: str
    tier: str
    active: int
    counted: int


def choose_days(first: date | None, last: date | None) -> DayRange:
    """Return the days asked for, by default the last thirty; raises ``figures.range``."""
    last = last or clock.now().date()
    if last.year in _YEARS:
        first = first or last - timedelta(days=_DEFAULT_DAYS - 1)
        if first.year in _YEARS and 0 <= (last - first).days < MAX_DAYS:
            return DayRange(first, last)
    raise FIGURES_RANGE(most=MAX_DAYS)


def read_figures(
    uow: UnitOfWork, list_id: int, days: DayRange, by: FiguresBy
) -> Sequence[MemberFigures]:
    """Return the list's figures by day, source or tier.

    By day, the result has every day in order. Otherwise it has the keys with any figures. By tier,
    a member who changes the tier leaves one tier and joins another.
    """
    joined_sum: ColumnElement[Any] = func.sum(_DAYS.joined)
    left_sum: ColumnElement[Any] = func.sum(_DAYS.gone)
    if by is FiguresBy.TIER:
        joined_sum += func.sum(_DAYS.moved_in)
        left_sum += func.sum(_DAYS.moved_out)
    query = (
        select(_KEYS[by], joined_sum, left_sum)
        .where(_DAYS.list_id == list_id, _DAYS.day.between(days.first, days.last))
        .group_by(_KEYS[by])
    )
    figures = {
        str(key): MemberFigures(str(key), int(joined_count), int(left_count))
        for key, joined_count, left_count in uow.session.execute(query)
    }
    if by is FiguresBy.DAY:
        return [figures.get(str(day)) or MemberFigures(str(day)) for day in days.days]
    in_order = [figures[key] for key in _in_order(figures, by)]
    return [each for each in in_order if each.joined or each.left]


_SIGN_UPS = text("""
SELECT count(*) FILTER (WHERE action = 'requested'), count(*) FILTER (WHERE action = 'confirmed')
FROM subscription_events
WHERE list_id = :list_id
    AND (action = 'confirmed' OR action = 'requested' AND status_after = 'pending')
    AND created_at >= CAST(:first AS timestamp) AT TIME ZONE 'UTC'
    AND created_at < CAST(:after AS timestamp) AT TIME ZONE 'UTC'
""")


def count_sign_ups(uow: UnitOfWork, list_id: int, days: DayRange) -> SignUps:
    """Count the list's sign-ups on these days (UTC). A confirmation counts on its own day."""
    values = {"list_id": list_id, "first": days.first, "after": days.last + timedelta(days=1)}
    return SignUps(*uow.session.execute(_SIGN_UPS, values).one())


def count_members(uow: UnitOfWork, list_id: int, by: FiguresBy) -> dict[str, int]:
    """Count the list's active members per source or tier; keys without members are missing."""
    count: ColumnElement[Any] = func.sum(_DAYS.joined - _DAYS.gone)
    if by is FiguresBy.TIER:
        count += func.sum(_DAYS.moved_in - _DAYS.moved_out)
    query = select(_KEYS[by], count).where(_DAYS.list_id == list_id).group_by(_KEYS[by])
    counts = {str(key): int(number) for key, number in uow.session.execute(query) if number}
    return {str(key): counts[key] for key in _in_order(counts, by)}


def owner_growth(uow: UnitOfWork, owner_id: int, days: int) -> int:
    """Return by how many active members the owner's lists have grown in these days (UTC)."""
    query = (
        select(func.sum(_DAYS.joined - _DAYS.gone))
        .join(MailingList, MailingList.id == _DAYS.list_id)
        .where(MailingList.user_id == owner_id, _DAYS.day >= _first_day(days))
    )
    return int(uow.session.scalar(query) or 0)


def list_growth(uow: UnitOfWork, list_ids: Collection[int], days: int) -> dict[int, int]:
    """Return by how many active members each list has grown in these days (UTC)."""
    query = (
        select(_DAYS.list_id, func.sum(_DAYS.joined - _DAYS.gone))
        .where(_DAYS.list_id.in_(list_ids), _DAYS.day >= _first_day(days))
        .group_by(_DAYS.list_id)
    )
    return {list_id: int(net) for list_id, net in uow.session.execute(query)}


_FAULTS = text("""
    SELECT list_id, source, type, CAST(sum(active) AS bigint), CAST(sum(counted) AS bigint)
    FROM (
        SELECT list_id, source, type, count(*) AS active, 0 AS counted
        FROM subscriptions WHERE status = 'active' GROUP BY list_id, source, type
        UNION ALL
        SELECT list_id, source, type, 0, joined - gone + moved_in - moved_out FROM member_days
        UNION ALL
        SELECT list_id, source, type, 0, joined - gone + moved_in - moved_out
        FROM member_day_deltas
    ) AS either
    GROUP BY list_id, source, type HAVING sum(active) <> sum(counted)
    ORDER BY list_id, source, type
    """)


def verify_figures(resources: Resources) -> list[FiguresFault]:
    """Compare the figures of all lists with their members, in one view of the database."""
    failures = 0
    while True:
        try:
            with resources.replica_reads.view(_MAX_VERIFICATION, failures=failures) as connection:
                return [FiguresFault(*row) for row in connection.execute(_FAULTS)]
        except ReplicaFailed:
            failures += 1


def _in_order(keys: Collection[str], by: FiguresBy) -> list[str]:
    """Return the keys of tiers from the lowest to the highest, and others alphabetically."""
    order: Iterable[str] = Tier if by is FiguresBy.TIER else sorted(keys)
    return [key for key in order if key in keys]


def _first_day(days: int) -> date:
    return clock.now().date() - timedelta(days=days - 1)
