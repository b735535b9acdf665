"""Reads the daily figures of lists, which count members who joined or left.

Whenever the number of active members in a list changes, a database trigger stores the change as a
row in a separate table. A maintenance job regularly merges the stored changes into the daily
figures. Queries add the changes that aren't merged yet, so the results are exact.
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

# A query for daily figures may span at most this number of days, because the response contains one
# row per day.
MAX_DAYS = 1_100
_DEFAULT_DAYS = 30
_YEARS = range(1970, 3000)
_MAX_VERIFICATION_DURATION = timedelta(hours=1)
_DAYS = DAYS_AND_DELTAS.c
_COUNT_SIGN_UPS = text("""
SELECT count(*) FILTER (WHERE action = 'requested'), count(*) FILTER (WHERE action = 'confirmed')
FROM subscription_events
WHERE list_id = :list_id
    AND (action = 'confirmed' OR action = 'requested' AND status_after = 'pending')
    AND created_at >= CAST(:first AS timestamp) AT TIME ZONE 'UTC'
    AND created_at < CAST(:after AS timestamp) AT TIME ZONE 'UTC'
""")
_FIND_FAULTS = text("""
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


class FiguresBy(StrEnum):
    DAY = "day"
    SOURCE = "source"
    TIER = "tier"


_KEY_COLUMNS: Mapping[FiguresBy, ColumnElement[Any]] = {
    FiguresBy.DAY: _DAYS.day,
    FiguresBy.SOURCE: _DAYS.source,
    FiguresBy.TIER: _DAYS.type,
}


@dataclass(frozen=True)
class MemberFigures:
    """How many active members a list gained and lost.

    Members that the list's owner added or removed are included in the daily figures. Members of
    an undone import count neither as joined nor as left.
    """

    key: str
    joined: int = 0
    left: int = 0

    @property
    def net(self) -> int:
        return self.joined - self.left


@dataclass(frozen=True)
class DayRange:
    """A range of days in UTC, including the first day and the last day."""

    first: date
    last: date

    @property
    def days(self) -> list[date]:
        count = (self.last - self.first).days + 1
        return [self.first + timedelta(days=number) for number in range(count)]


class SignUps(NamedTuple):
    """How many sign-ups required a confirmation, and how many sign-ups were confirmed.

    Attributes:
        asked: the number of sign-ups that required a confirmation.
    """

    asked: int
    confirmed: int


@dataclass(frozen=True)
class FiguresFault:
    """A wrong number of active members in the daily figures, for one list, source and tier.

    Attributes:
        active: the number of active members in the table ``subscriptions``.
        counted: the number of active members that follows from the daily figures.
    """

    list_id: int
    source: str
    tier: str
    active: int
    counted: int


def choose_days(first: date | None, last: date | None) -> DayRange:
    """Return the days from ``first`` to ``last``. The default is the last thirty days.

    Raises ``figures.range``.
    """
    last = last or clock.now().date()
    if last.year in _YEARS:
        first = first or last - timedelta(days=_DEFAULT_DAYS - 1)
        if first.year in _YEARS and 0 <= (last - first).days < MAX_DAYS:
            return DayRange(first, last)
    raise FIGURES_RANGE(most=MAX_DAYS)


def read_figures(
    uow: UnitOfWork, list_id: int, days: DayRange, by: FiguresBy
) -> Sequence[MemberFigures]:
    """Return the list's daily figures, grouped by day, source or tier.

    The result includes days without changes, but omits sources and tiers without changes. If the
    figures are grouped by tier, a member who gets a new tier leaves the old tier and joins the new
    tier.
    """
    joined_sum: ColumnElement[Any] = func.sum(_DAYS.joined)
    left_sum: ColumnElement[Any] = func.sum(_DAYS.gone)
    if by is FiguresBy.TIER:
        joined_sum += func.sum(_DAYS.moved_in)
        left_sum += func.sum(_DAYS.moved_out)
    query = (
        select(_KEY_COLUMNS[by], joined_sum, left_sum)
        .where(_DAYS.list_id == list_id, _DAYS.day.between(days.first, days.last))
        .group_by(_KEY_COLUMNS[by])
    )
    figures = {
        str(key): MemberFigures(str(key), int(joined_count), int(left_count))
        for key, joined_count, left_count in uow.session.execute(query)
    }
    if by is FiguresBy.DAY:
        return [figures.get(str(day)) or MemberFigures(str(day)) for day in days.days]
    sorted_figures = [figures[key] for key in _sort_keys(figures, by)]
    return [each for each in sorted_figures if each.joined or each.left]


def count_sign_ups(uow: UnitOfWork, list_id: int, days: DayRange) -> SignUps:
    """Count the list's sign-ups and confirmations in a range of days.

    A confirmation is counted on the day of the confirmation, not on the day of the sign-up.
    """
    values = {"list_id": list_id, "first": days.first, "after": days.last + timedelta(days=1)}
    return SignUps(*uow.session.execute(_COUNT_SIGN_UPS, values).one())


def count_members(uow: UnitOfWork, list_id: int, by: FiguresBy) -> dict[str, int]:
    """Count the list's active members by source or tier.

    The result omits sources and tiers without active members.
    """
    count: ColumnElement[Any] = func.sum(_DAYS.joined - _DAYS.gone)
    if by is FiguresBy.TIER:
        count += func.sum(_DAYS.moved_in - _DAYS.moved_out)
    query = (
        select(_KEY_COLUMNS[by], count).where(_DAYS.list_id == list_id).group_by(_KEY_COLUMNS[by])
    )
    counts = {str(key): int(number) for key, number in uow.session.execute(query) if number}
    return {str(key): counts[key] for key in _sort_keys(counts, by)}


def read_owner_figures(uow: UnitOfWork, owner_id: int, days: DayRange) -> Sequence[MemberFigures]:
    """Return an owner's figures for each day, added up over all unarchived lists.

    Days without changes are included. Archived lists are left out, because the owner's number of
    members doesn't include their members.
    """
    query = (
        select(_DAYS.day, func.sum(_DAYS.joined), func.sum(_DAYS.gone))
        .join(MailingList, MailingList.id == _DAYS.list_id)
        .where(
            MailingList.user_id == owner_id,
            MailingList.archived_at.is_(None),
            _DAYS.day.between(days.first, days.last),
        )
        .group_by(_DAYS.day)
    )
    figures = {
        day: MemberFigures(str(day), int(joined_count), int(left_count))
        for day, joined_count, left_count in uow.session.execute(query)
    }
    return [figures.get(day) or MemberFigures(str(day)) for day in days.days]


def read_list_growth(uow: UnitOfWork, list_ids: Collection[int], days: int) -> dict[int, list[int]]:
    """Map list ids to the growth in active members on each day, oldest day first.

    ``days``: the number of days to include. The last day is today in UTC.
    """
    first_day = _compute_first_day(days)
    query = (
        select(_DAYS.list_id, _DAYS.day, func.sum(_DAYS.joined - _DAYS.gone))
        .where(_DAYS.list_id.in_(list_ids), _DAYS.day >= first_day)
        .group_by(_DAYS.list_id, _DAYS.day)
    )
    growth = {list_id: [0] * days for list_id in list_ids}
    for list_id, day, net in uow.session.execute(query):
        growth[list_id][min((day - first_day).days, days - 1)] += int(net)
    return growth


def verify_figures(resources: Resources) -> list[FiguresFault]:
    """Return the combinations of list, source and tier whose daily figures are wrong.

    The function compares the daily figures with the number of active members in a single database
    snapshot.
    """
    failures = 0
    while True:
        try:
            with resources.replica_reads.view(
                _MAX_VERIFICATION_DURATION, failures=failures
            ) as connection:
                return [FiguresFault(*row) for row in connection.execute(_FIND_FAULTS)]
        except ReplicaFailed:
            failures += 1


def _sort_keys(keys: Collection[str], by: FiguresBy) -> list[str]:
    """Sort tiers from lowest to highest, and sources alphabetically."""
    all_keys: Iterable[str] = Tier if by is FiguresBy.TIER else sorted(keys)
    return [key for key in all_keys if key in keys]


def _compute_first_day(days: int) -> date:
    return clock.now().date() - timedelta(days=days - 1)
