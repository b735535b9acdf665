"""Reads the daily figures of lists, which count members who joined or left.

Whenever the number of active members in a list changes, a database trigger stores the change.
Queries add the changes that ``count_merging`` hasn't merged yet, so the results are exact.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Text,
    and_,
    case,
    cast,
    func,
    literal,
    select,
    text,
    union_all,
)

from core import clock
from core.errors.mailing import FIGURES_RANGE
from core.ids import AccountId
from models import (
    DAYS_AND_DELTAS,
    IS_DEPARTURE,
    LANDINGS_AND_DELTAS,
    ORIGINS_AND_DELTAS,
    MailingList,
    SignUpView,
    SubscriptionEvent,
    Tier,
)
from services.subscriptions.members.changes import Via
from services.subscriptions.members.departures import (
    LEFT_REASON,
    STATED_REASON,
    LeftReason,
    StatedReason,
)
from storage.unit_of_work import UnitOfWork

# A query for daily figures may span at most this number of days, because the response contains one
# row per day.
MAX_DAYS = 1_100
# Figures can be grouped by a UTM tag of the sign-up, such as ``utm_source``, by the referrer, or by
# the page.
# Only the ``MAX_ORIGIN_KEYS`` most frequent values then have a row of their own.
MAX_ORIGIN_KEYS = 100
# The row with the key ``REST_KEY`` counts the members with a less frequent UTM tag or referrer.
REST_KEY = "other"
_DEFAULT_DAYS = 30
_YEARS = range(1970, 3000)
_DAYS = DAYS_AND_DELTAS.c
# The number of members who joined by an import.
_IMPORTED_SUM: ColumnElement[Any] = func.coalesce(
    func.sum(_DAYS.joined).filter(_DAYS.source == Via.IMPORT), 0
)
_SIGN_UP_COUNTS = (
    "count(*) FILTER (WHERE e.action = 'requested') AS asked, "
    "count(*) FILTER (WHERE e.action = 'confirmed') AS confirmed"
)
_IS_SIGN_UP = """e.list_id = :list_id
    AND (e.action = 'confirmed' OR e.action = 'requested' AND e.status_after = 'pending')
    AND e.created_at >= CAST(:first AS timestamp) AT TIME ZONE 'UTC'
    AND e.created_at < CAST(:after AS timestamp) AT TIME ZONE 'UTC'"""
_JOIN_MEMBER = "JOIN subscriptions AS m ON m.user_id = e.user_id AND m.list_id = e.list_id"
_SIGN_UPS_BY_KEY = f"""
SELECT {{key}} AS key, {_SIGN_UP_COUNTS} FROM subscription_events AS e {{join}}
WHERE {_IS_SIGN_UP} GROUP BY 1
"""  # noqa: S608
_SIGN_UPS_BY_ORIGIN = (
    text(f"""
SELECT coalesce(m.origin ->> :name, '') AS key, 0 AS joined, 0 AS gone,
    CAST(e.action = 'requested' AS int) AS asked, CAST(e.action = 'confirmed' AS int) AS confirmed
FROM subscription_events AS e {_JOIN_MEMBER} WHERE {_IS_SIGN_UP}
""")  # noqa: S608
    .columns(
        key=Text(),
        **dict.fromkeys(("joined", "gone", "asked", "confirmed"), BigInteger()),
    )
    .subquery("sign_ups")
)


class FiguresBy(StrEnum):
    DAY = "day"
    SOURCE = "source"
    TIER = "tier"
    UTM_SOURCE = "utm_source"
    UTM_MEDIUM = "utm_medium"
    UTM_CAMPAIGN = "utm_campaign"
    REFERRER = "referrer"
    LANDING = "landing"
    REASON = "reason"


_ORIGIN_KINDS = frozenset(
    {
        FiguresBy.UTM_SOURCE,
        FiguresBy.UTM_MEDIUM,
        FiguresBy.UTM_CAMPAIGN,
        FiguresBy.REFERRER,
        FiguresBy.LANDING,
    }
)
# The SQL for grouping sign-ups by day, source or tier: the expression that computes the day, source
# or tier of a sign-up, and the join that the expression needs.
_SIGN_UP_KEYS: Mapping[FiguresBy, Mapping[str, str]] = {
    FiguresBy.DAY: {
        "key": "CAST(e.created_at AT TIME ZONE 'UTC' AS date)",
        "join": "",
    },
    FiguresBy.SOURCE: {"key": "m.source", "join": _JOIN_MEMBER},
    FiguresBy.TIER: {"key": "m.type", "join": _JOIN_MEMBER},
}
_KEY_COLUMNS: Mapping[FiguresBy, ColumnElement[Any]] = {
    FiguresBy.DAY: _DAYS.day,
    FiguresBy.SOURCE: _DAYS.source,
    FiguresBy.TIER: _DAYS.type,
}


@dataclass(frozen=True)
class MemberFigures:
    """How many active members a list gained and lost, including changes by the owner.

    Members of an undone import count neither as joined nor as left.

    Attributes:
        seen: the number of requests for the sign-up page, or ``None`` except in figures of one list
            by day.
        asked: the number of sign-ups that required a confirmation.
        imported: how many of ``joined`` joined by an import, or 0 if grouped by origin.
        stated: how many members chose each reason for unsubscribing, or ``None`` except in the
            figures of unsubscribed members.
    """

    key: str
    joined: int = 0
    left: int = 0
    seen: int | None = None
    asked: int = 0
    confirmed: int = 0
    imported: int = 0
    stated: Mapping[str, int] | None = None

    @property
    def net(self) -> int:
        return self.joined - self.left


@dataclass(frozen=True)
class DayRange:
    """Days in UTC, including the first day and the last day."""

    first: date
    last: date

    @property
    def days(self) -> list[date]:
        count = (self.last - self.first).days + 1
        return [self.first + timedelta(days=number) for number in range(count)]


class SignUps(NamedTuple):
    asked: int
    confirmed: int


def choose_days(first: date | None, last: date | None) -> DayRange:
    """Return a range of days, by default the last thirty days."""
    last = last or clock.now().date()
    if last.year in _YEARS:
        first = first or last - timedelta(days=_DEFAULT_DAYS - 1)
        if first.year in _YEARS and 0 <= (last - first).days < MAX_DAYS:
            return DayRange(first, last)
    raise FIGURES_RANGE(most=MAX_DAYS)


def read_figures(
    uow: UnitOfWork, list_id: int, days: DayRange, by: FiguresBy
) -> Sequence[MemberFigures]:
    """Return how many members joined and left, per day, source, tier, origin or reason.

    Figures by day have a row for every day. Other figures omit rows whose numbers are all 0. A
    member who gets a new tier counts as left in the old tier and as joined in the new tier.
    Sign-ups are counted under the member's current source, tier or origin.

    Only the ``MAX_ORIGIN_KEYS`` most frequent referrers, pages or values of the UTM tag have their
    own row. The row ``REST_KEY`` counts the others. The last row has an empty key, and counts
    members of unknown origin.

    Figures by reason count members who left or whose mail a bounce turned off.
    """
    if by is FiguresBy.REASON:
        return _read_reason_figures(uow, list_id, days)
    if by in _ORIGIN_KINDS:
        return _read_origin_figures(uow, list_id, days, by)
    joined_sum: ColumnElement[Any] = func.sum(_DAYS.joined)
    left_sum: ColumnElement[Any] = func.sum(_DAYS.gone)
    if by is FiguresBy.TIER:
        joined_sum += func.sum(_DAYS.moved_in)
        left_sum += func.sum(_DAYS.moved_out)
    query = (
        select(_KEY_COLUMNS[by], joined_sum, left_sum, _IMPORTED_SUM)
        .where(_DAYS.list_id == list_id, _DAYS.day.between(days.first, days.last))
        .group_by(_KEY_COLUMNS[by])
    )
    changes = {
        str(key): (int(joined_count), int(left_count), int(imported_count))
        for key, joined_count, left_count, imported_count in uow.session.execute(query)
    }
    sign_ups = _count_sign_ups_by_key(uow, list_id, days, by)
    views = _count_views(uow, list_id, days) if by is FiguresBy.DAY else {}

    def build_figures(key: str) -> MemberFigures:
        view_count = views.get(key, 0) if by is FiguresBy.DAY else None
        joined_count, left_count, imported_count = changes.get(key, (0, 0, 0))
        return MemberFigures(
            key,
            joined_count,
            left_count,
            view_count,
            *sign_ups.get(key, (0, 0)),
            imported=imported_count,
        )

    if by is FiguresBy.DAY:
        return [build_figures(str(day)) for day in days.days]
    figures = [build_figures(key) for key in _sort_keys(changes.keys() | sign_ups.keys(), by)]
    return [each for each in figures if each.joined or each.left or each.asked or each.confirmed]


def count_sign_ups(uow: UnitOfWork, list_id: int, days: DayRange) -> SignUps:
    """Count confirmations on their own day, not on the day of the sign-up."""
    query = text(f"SELECT {_SIGN_UP_COUNTS} FROM subscription_events AS e WHERE {_IS_SIGN_UP}")  # noqa: S608
    return SignUps(*uow.session.execute(query, _build_range(list_id, days)).one())


def count_members(uow: UnitOfWork, list_id: int, by: FiguresBy) -> dict[str, int]:
    count: ColumnElement[Any] = func.sum(_DAYS.joined - _DAYS.gone)
    if by is FiguresBy.TIER:
        count += func.sum(_DAYS.moved_in - _DAYS.moved_out)
    query = (
        select(_KEY_COLUMNS[by], count).where(_DAYS.list_id == list_id).group_by(_KEY_COLUMNS[by])
    )
    counts = {str(key): int(number) for key, number in uow.session.execute(query) if number}
    return {str(key): counts[key] for key in _sort_keys(counts, by)}


def read_owner_figures(
    uow: UnitOfWork, account_id: AccountId, days: DayRange
) -> Sequence[MemberFigures]:
    """Omit archived lists, because the limit of members in the plan ignores them too."""
    query = (
        select(_DAYS.day, func.sum(_DAYS.joined), func.sum(_DAYS.gone), _IMPORTED_SUM)
        .join(MailingList, MailingList.id == _DAYS.list_id)
        .where(
            MailingList.user_id == account_id,
            MailingList.archived_at.is_(None),
            _DAYS.day.between(days.first, days.last),
        )
        .group_by(_DAYS.day)
    )
    figures = {
        day: MemberFigures(
            str(day), int(joined_count), int(left_count), imported=int(imported_count)
        )
        for day, joined_count, left_count, imported_count in uow.session.execute(query)
    }
    return [figures.get(day) or MemberFigures(str(day)) for day in days.days]


def read_list_growth(uow: UnitOfWork, list_ids: Collection[int], days: int) -> dict[int, list[int]]:
    """Map list ids to the growth of each day in UTC up to today, oldest day first.

    Imported members aren't counted, so that a large import doesn't hide the growth by sign-ups.
    """
    first_day = clock.now().date() - timedelta(days=days - 1)
    net = func.sum(_DAYS.joined - _DAYS.gone) - _IMPORTED_SUM
    query = (
        select(_DAYS.list_id, _DAYS.day, net)
        .where(_DAYS.list_id.in_(list_ids), _DAYS.day >= first_day)
        .group_by(_DAYS.list_id, _DAYS.day)
    )
    growth = {list_id: [0] * days for list_id in list_ids}
    for list_id, day, change in uow.session.execute(query):
        growth[list_id][min((day - first_day).days, days - 1)] += int(change)
    return growth


def _read_origin_figures(
    uow: UnitOfWork, list_id: int, days: DayRange, by: FiguresBy
) -> Sequence[MemberFigures]:
    """Return a row per origin. The row of unknown origin is the total without known origins."""
    origins = LANDINGS_AND_DELTAS.c if by is FiguresBy.LANDING else ORIGINS_AND_DELTAS.c
    no_value = literal("", Text)
    zero = literal(0, BigInteger)
    of_list = origins.list_id == list_id, origins.day.between(days.first, days.last)
    of_all_members = _DAYS.list_id == list_id, _DAYS.day.between(days.first, days.last)
    by_origin = select(
        cast(origins[by.value], Text).label("key"),
        origins.joined,
        origins.gone,
        zero.label("asked"),
        zero.label("confirmed"),
    )
    changes = union_all(
        by_origin.where(*of_list),
        select(no_value, _DAYS.joined, _DAYS.gone, zero, zero).where(*of_all_members),
        select(no_value, -origins.joined, -origins.gone, zero, zero).where(*of_list),
        select(*_SIGN_UPS_BY_ORIGIN.c),
    ).subquery()
    sums = [func.sum(each).label(each.key) for each in changes.c if each.key != "key"]
    joined_sum, gone_sum, asked_sum, _ = sums
    sizes = [each.desc() for each in (joined_sum, asked_sum, gone_sum)]
    place = func.row_number().over(order_by=[changes.c.key == "", *sizes, changes.c.key])
    keys = select(changes.c.key, *sums, place.label("place")).group_by(changes.c.key).subquery()
    is_small = and_(keys.c.place > MAX_ORIGIN_KEYS, keys.c.key != "")
    shown_key = case((is_small, REST_KEY), else_=keys.c.key).label("key")
    totals = [cast(func.sum(keys.c[each.key]), BigInteger) for each in sums]
    query = select(shown_key, *totals).group_by(shown_key)
    # Sort the row with the key ``REST_KEY`` last but one, and the row with the empty key last.
    query = query.order_by(
        func.bool_or(keys.c.key == ""), func.bool_or(is_small), func.min(keys.c.place)
    )
    parameters = {**_build_range(list_id, days), "name": by.value}
    figures = [
        MemberFigures(key, joined_count, left_count, None, *sign_ups)
        for key, joined_count, left_count, *sign_ups in uow.session.execute(query, parameters)
    ]
    return [each for each in figures if each.joined or each.left or each.asked or each.confirmed]


def _read_reason_figures(uow: UnitOfWork, list_id: int, days: DayRange) -> Sequence[MemberFigures]:
    left_reason = LEFT_REASON.label("left_reason")
    stated_reason = STATED_REASON.label("stated_reason")
    begin = datetime.combine(days.first, time(), UTC)
    end = datetime.combine(days.last + timedelta(days=1), time(), UTC)
    query = (
        select(left_reason, stated_reason, func.count())
        .where(
            SubscriptionEvent.list_id == list_id,
            SubscriptionEvent.created_at >= begin,
            SubscriptionEvent.created_at < end,
            text(IS_DEPARTURE),
        )
        .group_by(left_reason, stated_reason)
    )
    counts: dict[str, Counter[str | None]] = defaultdict(Counter)
    for key, stated, count in uow.session.execute(query):
        counts[key][stated] += count
    return [
        MemberFigures(
            reason.value,
            left=counts[reason.value].total(),
            stated={
                each.value: counts[reason.value][each.value]
                for each in StatedReason
                if each.value in counts[reason.value]
            }
            if reason is LeftReason.UNSUBSCRIBED
            else None,
        )
        for reason in LeftReason
        if reason.value in counts
    ]


def _count_sign_ups_by_key(
    uow: UnitOfWork, list_id: int, days: DayRange, by: FiguresBy
) -> dict[str, SignUps]:
    query = text(_SIGN_UPS_BY_KEY.format(**_SIGN_UP_KEYS[by]))
    return {
        str(row.key): SignUps(row.asked, row.confirmed)
        for row in uow.session.execute(query, _build_range(list_id, days))
    }


def _count_views(uow: UnitOfWork, list_id: int, days: DayRange) -> dict[str, int]:
    query = select(SignUpView.day, SignUpView.seen).where(
        SignUpView.list_id == list_id, SignUpView.day.between(days.first, days.last)
    )
    return {str(day): seen for day, seen in uow.session.execute(query)}


def _build_range(list_id: int, days: DayRange) -> dict[str, Any]:
    return {"list_id": list_id, "first": days.first, "after": days.last + timedelta(days=1)}


def _sort_keys(keys: Collection[str], by: FiguresBy) -> list[str]:
    all_keys: Iterable[str] = Tier if by is FiguresBy.TIER else sorted(keys)
    return [key for key in all_keys if key in keys]
