"""Daily figures of lists: how many people became active members, or ceased to be."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, func, select, text

from core import clock
from core.errors.mailing import FIGURES_RANGE
from models import (
    DAYS_AND_DELTAS,
    MailingList,
    Tier,
)
from storage.long_reads import ReplicaFailed
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# Three years. A row for each day, and all are read at once.
MAX_DAYS = 1_100
_USUAL_DAYS = 30
_YEARS = range(1970, 3000)
_MAX_VERIFICATION = timedelta(hours=1)
_both = DAYS_AND_DELTAS.c


class FiguresBy(StrEnum):
    DAY = "day"
    SOURCE = "source"
    TIER = "tier"


_KEYS: Mapping[FiguresBy, ColumnElement[Any]] = {
    FiguresBy.DAY: _both.day,
    FiguresBy.SOURCE: _both.source,
    FiguresBy.TIER: _both.type,
}


@dataclass(frozen=True)
class MemberFigures:
    """How often a person became an active member, or ceased to be one, whoever wanted it."""

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
    """How often a person was asked by mail to confirm, and how often one did."""

    asked: int
    confirmed: int


@dataclass(frozen=True)
class FiguresFault:
    """Figures of all time that don't come to the list's active members of this source and tier."""

    list_id: int
    source: str
    tier: str
    active: int
    counted: int


def day_range(first: date | None, last: date | None) -> DayRange:
    """The days asked for: the last thirty unless told otherwise. Raises ``figures.range``."""
    last = last or clock.now().date()
    if last.year in _YEARS:
        first = first or last - timedelta(days=_USUAL_DAYS - 1)
        if first.year in _YEARS and 0 <= (last - first).days < MAX_DAYS:
            return DayRange(first, last)
    raise FIGURES_RANGE(most=MAX_DAYS)


def read(uow: UnitOfWork, list_id: int, days: DayRange, by: FiguresBy) -> Sequence[MemberFigures]:
    """The list's figures: of every day in order, or of the sources or tiers that have any.

    By tier, a member who gets another tier left the one and joined the other.
    """
    joined: ColumnElement[Any] = func.sum(_both.joined)
    left: ColumnElement[Any] = func.sum(_both.gone)
    if by is FiguresBy.TIER:
        joined, left = joined + func.sum(_both.moved_in), left + func.sum(_both.moved_out)
    query = (
        select(_KEYS[by], joined, left)
        .where(_both.list_id == list_id, _both.day.between(days.first, days.last))
        .group_by(_KEYS[by])
    )
    found = {
        str(key): MemberFigures(str(key), int(joined), int(left))
        for key, joined, left in uow.session.execute(query)
    }
    if by is FiguresBy.DAY:
        return [found.get(str(day)) or MemberFigures(str(day)) for day in days.days]
    return [each for key in _in_order(found, by) if (each := found[key]).joined or each.left]


def net_of_owner(uow: UnitOfWork, owner_id: int, days: int) -> int:
    """How many more active members all lists of the owner have than this many days ago (UTC)."""
    since = clock.now().date() - timedelta(days=days - 1)
    query = (
        select(func.sum(_both.joined - _both.gone))
        .join(MailingList, MailingList.id == _both.list_id)
        .where(MailingList.user_id == owner_id, _both.day >= since)
    )
    return int(uow.session.scalar(query) or 0)


def net_by_list(uow: UnitOfWork, list_ids: Collection[int], days: int) -> dict[int, int]:
    """Return how many more active members these lists have than this many days ago (UTC)."""
    since = clock.now().date() - timedelta(days=days - 1)
    query = (
        select(_both.list_id, func.sum(_both.joined - _both.gone))
        .where(_both.list_id.in_(list_ids), _both.day >= since)
        .group_by(_both.list_id)
    )
    return {list_id: int(net) for list_id, net in uow.session.execute(query)}


_SIGN_UPS = text("""
SELECT count(*) FILTER (WHERE action = 'requested'), count(*) FILTER (WHERE action = 'confirmed')
FROM subscription_events
WHERE list_id = :list_id
    AND (action = 'confirmed' OR action = 'requested' AND status_after = 'pending')
    AND created_at >= CAST(:first AS timestamp) AT TIME ZONE 'UTC'
    AND created_at < CAST(:after AS timestamp) AT TIME ZONE 'UTC'
""")


def sign_ups(uow: UnitOfWork, list_id: int, days: DayRange) -> SignUps:
    """The list's sign-ups of these days (UTC): a confirmation counts on its own day."""
    values = {"list_id": list_id, "first": days.first, "after": days.last + timedelta(days=1)}
    return SignUps(*uow.session.execute(_SIGN_UPS, values).one())


def members_by(uow: UnitOfWork, list_id: int, by: FiguresBy) -> dict[str, int]:
    """How many active members the list has now of each source or tier that has any."""
    count: ColumnElement[Any] = func.sum(_both.joined - _both.gone)
    if by is FiguresBy.TIER:
        count += func.sum(_both.moved_in - _both.moved_out)
    query = select(_KEYS[by], count).where(_both.list_id == list_id).group_by(_KEYS[by])
    found = {str(key): int(number) for key, number in uow.session.execute(query) if number}
    return {str(key): found[key] for key in _in_order(found, by)}


def _in_order(found: Collection[str], by: FiguresBy) -> list[str]:
    return [key for key in (Tier if by is FiguresBy.TIER else sorted(found)) if key in found]


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


def verify(resources: Resources) -> list[FiguresFault]:
    """Compare the figures of all lists with their members, in one view of the database."""
    failures = 0
    while True:
        try:
            with resources.long_reads.view(_MAX_VERIFICATION, failures=failures) as reading:
                return [FiguresFault(*row) for row in reading.execute(_FAULTS)]
        except ReplicaFailed:
            failures += 1
