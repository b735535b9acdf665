"""Numbers of active subscribers: a count for each list, and differences not yet added to it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, exists, func, select, text

from core import clock
from core.errors.mailing import FIGURES_RANGE
from core.settings.notations import PlanQuota
from models import (
    COUNTS_AND_DELTAS,
    DAYS_AND_DELTAS,
    AccountMail,
    MailingList,
    Tier,
    User,
    active_count,
)
from services.access import quotas
from services.accounts import account_mails
from services.accounts.account_mails import MailKind
from services.jobs.maintenance import register_maintenance
from storage.long_reads import ReplicaFailed
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# A trigger on ``subscriptions`` notes what each statement did, and maintenance adds it to its day.
# The figures are exact whatever changed the rows, and their cost grows with the days asked for.

# Three years. A row for each day, and all are read at once.
MAX_DAYS = 1_100
_USUAL_DAYS = 30
_YEARS = range(1970, 3000)
_MAX_VERIFICATION = timedelta(hours=1)


class FiguresBy(StrEnum):
    DAY = "day"
    SOURCE = "source"
    TIER = "tier"


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


def day_range(first: date | None, last: date | None) -> DayRange:
    """The days asked for: the last thirty unless told otherwise. Raises ``figures.range``."""
    last = last or clock.now().date()
    if last.year in _YEARS:
        first = first or last - timedelta(days=_USUAL_DAYS - 1)
        if first.year in _YEARS and 0 <= (last - first).days < MAX_DAYS:
            return DayRange(first, last)
    raise FIGURES_RANGE(most=MAX_DAYS)


_both = DAYS_AND_DELTAS.c
_KEYS: Mapping[FiguresBy, ColumnElement[Any]] = {
    FiguresBy.DAY: _both.day,
    FiguresBy.SOURCE: _both.source,
    FiguresBy.TIER: _both.type,
}


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


def _in_order(found: Collection[str], by: FiguresBy) -> list[str]:
    return [key for key in (Tier if by is FiguresBy.TIER else sorted(found)) if key in found]


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


class SignUps(NamedTuple):
    """How often a person was asked by mail to confirm, and how often one did."""

    asked: int
    confirmed: int


def sign_ups(uow: UnitOfWork, list_id: int, days: DayRange) -> SignUps:
    """The list's sign-ups of these days (UTC): a confirmation counts on its own day."""
    values = {"list_id": list_id, "first": days.first, "after": days.last + timedelta(days=1)}
    return SignUps(*uow.session.execute(_SIGN_UPS, values).one())


_SIGN_UPS = text("""
SELECT count(*) FILTER (WHERE action = 'requested'), count(*) FILTER (WHERE action = 'confirmed')
FROM subscription_events
WHERE list_id = :list_id
    AND (action = 'confirmed' OR action = 'requested' AND status_after = 'pending')
    AND created_at >= CAST(:first AS timestamp) AT TIME ZONE 'UTC'
    AND created_at < CAST(:after AS timestamp) AT TIME ZONE 'UTC'
""")


def members_by(uow: UnitOfWork, list_id: int, by: FiguresBy) -> dict[str, int]:
    """How many active members the list has now of each source or tier that has any."""
    count: ColumnElement[Any] = func.sum(_both.joined - _both.gone)
    if by is FiguresBy.TIER:
        count += func.sum(_both.moved_in - _both.moved_out)
    query = select(_KEYS[by], count).where(_both.list_id == list_id).group_by(_KEYS[by])
    found = {str(key): int(number) for key, number in uow.session.execute(query) if number}
    return {str(key): found[key] for key in _in_order(found, by)}


# By an array, as counts are folded.
_FOLD_FIGURES = text("""
    WITH taken AS (
        DELETE FROM member_day_deltas WHERE id = ANY (ARRAY(
            SELECT id FROM member_day_deltas ORDER BY id LIMIT :max_deltas FOR UPDATE SKIP LOCKED
        ))
        RETURNING list_id, day, source, type, joined, gone, moved_in, moved_out
    ), folded AS (
        INSERT INTO member_days AS m
            (list_id, day, source, type, joined, gone, moved_in, moved_out)
        SELECT list_id, day, source, type, sum(joined), sum(gone), sum(moved_in), sum(moved_out)
        FROM taken GROUP BY list_id, day, source, type ORDER BY list_id, day, source, type
        ON CONFLICT (list_id, day, source, type) DO UPDATE SET
            joined = m.joined + excluded.joined, gone = m.gone + excluded.gone,
            moved_in = m.moved_in + excluded.moved_in, moved_out = m.moved_out + excluded.moved_out
    )
    SELECT count(*) FROM taken
    """)


def fold(uow: UnitOfWork, *, max_deltas: int) -> int:
    """Add the oldest differences to their days; returns how many were added."""
    return uow.session.scalar(_FOLD_FIGURES, {"max_deltas": max_deltas}) or 0


@dataclass(frozen=True)
class FiguresFault:
    """Figures of all time that don't come to the list's active members of this source and tier."""

    list_id: int
    source: str
    tier: str
    active: int
    counted: int


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


FOLD_COUNTS = register_maintenance(
    "maintenance.fold_counts",
    every=timedelta(seconds=30),
    run=lambda resources, _: fold_all(resources),
)
_MAX_FOLDED_DELTAS = 10_000


def count_subscribers(uow: UnitOfWork, list_ids: Collection[int]) -> dict[int, int]:
    """The number of active subscribers of each list."""
    query = (
        select(COUNTS_AND_DELTAS.c.list_id, func.sum(COUNTS_AND_DELTAS.c.active))
        .where(COUNTS_AND_DELTAS.c.list_id.in_(list_ids))
        .group_by(COUNTS_AND_DELTAS.c.list_id)
    )
    found = {list_id: int(total) for list_id, total in uow.session.execute(query)}
    return {list_id: found.get(list_id, 0) for list_id in list_ids}


# By an array: the table is nearly empty at most times, and a join that Postgres plans for a few
# rows reads ten thousand as often as there are any.
_FOLD = text("""
    WITH taken AS (
        DELETE FROM subscriber_deltas WHERE id = ANY (ARRAY(
            SELECT id FROM subscriber_deltas ORDER BY id LIMIT :max_deltas FOR UPDATE SKIP LOCKED
        ))
        RETURNING list_id, active
    ), folded AS (
        INSERT INTO subscriber_counts (list_id, active)
        SELECT list_id, sum(active) FROM taken GROUP BY list_id ORDER BY list_id
        ON CONFLICT (list_id) DO UPDATE SET active = subscriber_counts.active + excluded.active
    )
    SELECT count(*), array(SELECT list_id FROM taken GROUP BY list_id HAVING sum(active) > 0)
    FROM taken
    """)


def fold_all(resources: Resources) -> int:
    """Add all differences to their lists' counts and days, the oldest first, batch by batch.

    The owners of lists that have grown beyond a quota are told. Returns how many differences were
    added. Reading a list's count or its figures stays quick while few are left beside them.
    """
    total = 0
    for fold_batch in (fold_deltas, fold):
        folded = _MAX_FOLDED_DELTAS
        while folded == _MAX_FOLDED_DELTAS:
            with resources.unit_of_work() as uow:
                folded = fold_batch(uow, max_deltas=_MAX_FOLDED_DELTAS)
            total += folded
    return total


def fold_deltas(uow: UnitOfWork, *, max_deltas: int) -> int:
    """Add the oldest differences to their lists' counts; returns how many were added.

    Readers' own acts are always done, so they alone can bring an owner over a quota. The mail that
    says so is written in the same transaction, so it is sent whatever is killed.
    """
    folded, grown = uow.session.execute(_FOLD, {"max_deltas": max_deltas}).one()
    _tell_owners(uow, grown)
    return int(folded)


MIN_NOTICE_INTERVAL = timedelta(days=1)
# Two processes that add up at the same moment must not both find an owner who was not told.
_ALONE = text("SELECT pg_advisory_xact_lock(hashtext('quota.notice'), 0)")


def _tell_owners(uow: UnitOfWork, list_ids: Collection[int]) -> None:
    """Mail each owner of these lists who has too many members, unless they were told in a day."""
    if not list_ids:
        return
    owners = select(MailingList.user_id).where(MailingList.id.in_(list_ids))
    told = exists().where(
        AccountMail.user_id == User.id,
        AccountMail.kind == MailKind.MEMBERS_OVER_QUOTA,
        AccountMail.created_at > func.now() - MIN_NOTICE_INTERVAL,
    )
    query = (
        select(User, func.sum(active_count(MailingList.id)))
        .join(MailingList, MailingList.user_id == User.id)
        .where(User.id.in_(owners), MailingList.archived_at.is_(None), ~told)
        .group_by(User.id)
        .order_by(User.id)
    )
    uow.session.execute(_ALONE)
    for owner, members in uow.session.execute(query):
        limit = quotas.limit_of(uow.settings, owner.plan, PlanQuota.MEMBERS)
        if limit is not None and members > limit:
            detail = f"{members} members, and your plan has room for {limit}"
            account_mails.mail_person(uow, MailKind.MEMBERS_OVER_QUOTA, owner, detail)
