"""The purge: each hour what is past its time is deleted, in short transactions of one table each.

The tables take turns, so that a large one keeps none of the others waiting. A table that fails
stops no other: the purge goes on without it, and then says so.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache, partial

import psycopg2.errors
from sqlalchemy import (
    ColumnElement,
    Interval,
    Select,
    and_,
    any_,
    bindparam,
    delete,
    exists,
    func,
    literal,
    not_,
    or_,
    select,
    text,
    union_all,
)
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.orm import InstrumentedAttribute

from core.logging import get_logger
from core.settings.notations import Retained
from models import (
    FeedEvent,
    Plan,
    RecordedEvent,
    Subscription,
    SubscriptionEvent,
    SubscriptionStatus,
    User,
)
from services.accounts import accounts
from services.credits import orders
from services.jobs import maintenance
from services.jobs.maintenance import register_maintenance
from services.privacy.kept import REQUESTED_AT, RULES, Rule, past
from services.subscriptions import consent
from storage.database import Statement
from storage.purge import purge as purge_rows
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

PURGE = register_maintenance(
    "maintenance.purge",
    every=timedelta(hours=1),
    run=lambda resources, _: purge_outlived(resources),
)
# A run that would take longer leaves the rest to the next one, well before it loses its lease.
_MAX_RUN_SECONDS = 45 * 60.0
# A batch that takes longer makes the next one smaller: the database ends it after ten seconds. Most
# take a fraction of a second.
_MAX_BATCH_SECONDS = 2.0
_MAX_BATCH_ROWS = 10_000
_MIN_BATCH_ROWS = 10

# Deletes some rows, as many as it is told at most, and returns their number.
Batch = Callable[[UnitOfWork, int], int]

# The role of our processes may delete no event. These functions of the owner's delete old ones.
_BY_THE_OWNER = {
    RecordedEvent: text("SELECT purge_events(:most, :days)"),
    FeedEvent: text("SELECT purge_feed_events(:most, :days)"),
}


class TablesNotPurged(Exception):
    """Some tables could not be purged, and why; all others were."""


@dataclass
class TablePurge:
    """The purge of one table, batch by batch."""

    name: str
    batch: Batch
    rows: int
    has_more: bool = True

    def go_on(self, resources: Resources) -> int:
        """Purge one batch; returns its number of rows. Raises ``SQLAlchemyError``."""
        begun_at = time.monotonic()
        try:
            with resources.unit_of_work() as uow:
                purged = self.batch(uow, self.rows)
        except OperationalError as error:
            is_slow = isinstance(error.orig, psycopg2.errors.QueryCanceled)
            if not is_slow or self.rows <= _MIN_BATCH_ROWS:
                raise
            self.rows = max(self.rows // 10, _MIN_BATCH_ROWS)
            return 0
        self.has_more = purged >= self.rows
        if time.monotonic() - begun_at > _MAX_BATCH_SECONDS:
            self.rows = max(self.rows // 2, _MIN_BATCH_ROWS)
        return purged


@dataclass
class Purge:
    """A run of the purge, and what came of it."""

    resources: Resources
    purged: int = 0
    failed: dict[str, str] = field(default_factory=dict)

    def work_off(self, *tables: TablePurge) -> None:
        """Purge the tables in turns, until nothing is left or the time is over."""
        ends_at = time.monotonic() + _MAX_RUN_SECONDS
        waiting = list(tables)
        while waiting and time.monotonic() < ends_at:
            for table in waiting:
                self.attempt(table.name, partial(table.go_on, self.resources))
            waiting = [each for each in waiting if each.has_more and each.name not in self.failed]

    def attempt(self, name: str, work: Callable[[], int]) -> None:
        """Do the work and count its rows, or note why it failed."""
        try:
            self.purged += work()
        except SQLAlchemyError as error:
            log.exception("retention.failed", table=name)
            self.failed[name] = type(getattr(error, "orig", None) or error).__name__

    def end(self) -> int:
        """Return how many rows were purged; raises ``TablesNotPurged``."""
        if self.failed:
            why = ", ".join(f"{name} ({reason})" for name, reason in self.failed.items())
            raise TablesNotPurged(f"{why}; {self.purged} rows of others were purged")
        return self.purged


def purge_outlived(resources: Resources) -> int:
    """Delete what is past its time; how many rows they were. Raises ``TablesNotPurged``."""
    purge = Purge(resources)
    batches = {
        rule.name: partial(_delete_past, rule, rule.age(resources.settings))
        for rule in RULES
        if rule.is_purged
    }
    purge.work_off(*(TablePurge(name, each, _MAX_BATCH_ROWS) for name, each in batches.items()))
    return purge.end()


def _delete_past(rule: Rule, age: timedelta, uow: UnitOfWork, limit: int) -> int:
    if rule.model in _BY_THE_OWNER:
        values = {"most": limit, "days": age.days}
        return int(uow.session.scalars(_BY_THE_OWNER[rule.model], values).one())
    places, conditions = past(rule, age, limit=limit)
    return purge_rows(uow, rule.model, places, *conditions)


# It is enough to show from where a person agreed, and too little to find them.

SHORTEN_IP_ADDRESSES = register_maintenance(
    "maintenance.shorten_ips", every=timedelta(hours=1), run=lambda resources, _: shorten(resources)
)

# Ids rise with time, so the old events are the first ones behind the bookmark.
_LAST_OLD_EVENT = text("""
WITH batch AS (
    SELECT id, created_at FROM subscription_events WHERE id > :after ORDER BY id LIMIT :limit
)
SELECT max(id) FROM batch WHERE id < coalesce(
    (SELECT min(id) FROM batch WHERE created_at >= now() - :age), 9223372036854775807)
""")
_SHORTEN = text("""
UPDATE subscription_events SET ip = CASE WHEN pg_input_is_valid(ip, 'inet') THEN
    text(network(set_masklen(ip::inet, CASE family(ip::inet) WHEN 4 THEN 24 ELSE 64 END))) END
WHERE id > :after AND id <= :last AND ip IS NOT NULL AND strpos(ip, '/') = 0
RETURNING 1
""")


# Rows of consent, which the application may not change, are found by an index of whole addresses.
_SHORTEN_CONSENT = text("SELECT shorten_consent_ips(:days, :most)")


def shorten(resources: Resources) -> int:
    """Cut old IP addresses to their /24 (of IPv6: /64, of consent /48); how many they were."""
    days, total = resources.settings.retention[Retained.IP_ADDRESSES], 0
    while True:
        with resources.unit_of_work() as uow:
            after = maintenance.read_bookmark(uow, SHORTEN_IP_ADDRESSES) or 0
            bounds = {"after": after, "limit": _MAX_BATCH_ROWS, "age": timedelta(days=days)}
            last = uow.session.scalar(_LAST_OLD_EVENT, bounds)
            if last is None:
                break
            shortened = uow.session.execute(_SHORTEN, {"after": after, "last": last})
            total += len(shortened.all())
            maintenance.write_bookmark(uow, SHORTEN_IP_ADDRESSES, last)
    batch = {"days": days, "most": _MAX_BATCH_ROWS}
    while True:
        with resources.unit_of_work() as uow:
            entries = uow.session.scalar(_SHORTEN_CONSENT, batch) or 0
        total += entries
        if not entries:
            return total


# A stranger can make each of them, any number of times. A request to subscribe that nobody
# confirmed lapses: a new record goes, and a record of a member whom the list had before gets its
# status back. A person counts as without a trace when they can't log in, no row of any table
# refers to them, and their history is of such requests alone: no subscription, no opt-out, no
# credits. Their history goes with them.

PURGE_STRANGERS = register_maintenance(
    "maintenance.strangers",
    every=timedelta(hours=1),
    run=lambda resources, began_at: purge(resources, now=began_at),
)
# Orders, and requests.
_MAX_AT_ONCE = 1_000
_MAX_PEOPLE_AT_ONCE = 5_000
# Each run goes on where the last one ended, so that no run reads millions of people.
_MAX_BATCHES = 100

_PENDING = SubscriptionStatus.PENDING
# Something happened to a member beyond requests that nobody confirmed.
_TELLING = or_(
    SubscriptionEvent.status_before != _PENDING, SubscriptionEvent.status_after != _PENDING
)
_LAPSE = text("""
WITH lapsed AS (
    UPDATE subscriptions AS m SET updated_at = clock_timestamp(), submitted = NULL,
    status = coalesce((
        SELECT e.status_before FROM subscription_events AS e
        WHERE e.list_id = m.list_id AND e.user_id = m.user_id AND e.status_after = 'pending'
            AND e.status_before IN ('unsubscribed', 'removed')
        ORDER BY e.id DESC LIMIT 1), 'removed')
    WHERE m.id = ANY(:ids) RETURNING *
)
INSERT INTO subscription_events (list_id, user_id, action, actor, via, status_before, status_after,
    email_enabled_before, email_enabled_after)
SELECT list_id, user_id, 'lapsed', 'stranger', 'challenge', 'pending', status, email_enabled,
    email_enabled
FROM lapsed
""")


def purge(resources: Resources, *, now: datetime) -> int:
    """Purge abandoned orders, unconfirmed requests and strangers; raises ``TablesNotPurged``."""
    age = timedelta(days=resources.settings.retention[Retained.STRANGERS])
    purge = Purge(resources)
    purge.work_off(
        TablePurge("payment_orders", partial(orders.purge_abandoned, now), _MAX_AT_ONCE),
        TablePurge("subscriptions", partial(_end_requests, age), _MAX_AT_ONCE),
    )
    purge.attempt("users", partial(_look_for_people, resources, age))
    return purge.end()


def _end_requests(age: timedelta, uow: UnitOfWork, limit: int) -> int:
    """End requests that nobody confirmed, and purge people who made no other.

    A transaction that writes about a person holds their row: such a person is passed over. No other
    one begins to while their row is locked here.
    """
    is_over = (Subscription.status == _PENDING, func.now() - age > REQUESTED_AT)
    oldest = select(Subscription.user_id).where(*is_over).order_by(REQUESTED_AT).limit(limit)
    array = func.array(oldest.scalar_subquery())
    people = _lock_people(uow, User.id == any_(array))
    theirs = select(Subscription.id).where(Subscription.user_id.in_(people), *is_over)
    # An undo of an import holds the records alone.
    requests = uow.session.scalars(theirs.with_for_update(skip_locked=True)).all()
    of_member = (
        SubscriptionEvent.list_id == Subscription.list_id,
        SubscriptionEvent.user_id == Subscription.user_id,
    )
    was_more = or_(Subscription.import_id.is_not(None), exists().where(*of_member, _TELLING))
    mine = Subscription.id.in_(requests)
    known = uow.session.scalars(select(Subscription.id).where(mine, was_more)).all()
    uow.session.execute(_LAPSE, {"ids": known})
    uow.session.execute(delete(Subscription).where(mine, Subscription.id.not_in(known)))
    _purge_people(uow, people, age)
    return len(requests)


def _look_for_people(resources: Resources, age: timedelta) -> int:
    """Purge the people without a trace among the next half a million."""
    total = 0
    for _ in range(_MAX_BATCHES):
        with resources.unit_of_work() as uow:
            after = maintenance.read_bookmark(uow, PURGE_STRANGERS) or 0
            following = select(User.id).where(User.id > after).order_by(User.id)
            # `None` when these are the last ones.
            last = uow.session.scalar(following.offset(_MAX_PEOPLE_AT_ONCE - 1).limit(1))
            # Almost all are on a list: one walk along an index says so, and the rest are few.
            on_lists = select(Subscription.user_id).where(
                *_between(after, Subscription.user_id, last)
            )
            unlisted = select(User.id).where(*_between(after, User.id, last)).except_(on_lists)
            if few := uow.session.scalars(unlisted).all():
                people = _lock_people(uow, User.id.in_(few), *_without_a_trace(age))
                total += _purge_people(uow, people, age)
            maintenance.write_bookmark(uow, PURGE_STRANGERS, last)
        if last is None:
            break
    return total


def _between(
    after: int, key: InstrumentedAttribute[int], last: int | None
) -> list[ColumnElement[bool]]:
    return [key > after, *([] if last is None else [key <= last])]


def _lock_people(uow: UnitOfWork, *conditions: ColumnElement[bool]) -> Sequence[int]:
    locked = select(User.id).where(*conditions).with_for_update(skip_locked=True)
    return uow.session.scalars(locked).all()


def _purge_people(uow: UnitOfWork, people: Sequence[int], age: timedelta) -> int:
    """Delete those of these locked people who are without a trace; how many they were."""
    # Asked once more, which then stays true.
    unknown = select(User.id).where(User.id.in_(people), *_without_a_trace(age))
    ids = uow.session.scalars(unknown).all()
    uow.session.execute(delete(SubscriptionEvent).where(SubscriptionEvent.user_id.in_(ids)))
    uow.session.execute(delete(User).where(User.id.in_(ids)))
    # How they asked for lists goes with them.
    consent.erase(uow, ids)
    return len(ids)


def _without_a_trace(age: timedelta) -> list[ColumnElement[bool]]:
    history = SubscriptionEvent.__table__.c.user_id
    references = (each for each in accounts.columns_of_people() if each is not history)
    return [
        User.password_hash.is_(None),
        User.erased_at.is_(None),
        User.plan == Plan.FREE,
        User.created_at < func.now() - age,
        *(not_(exists().where(each == User.id)) for each in references),
        not_(exists().where(SubscriptionEvent.user_id == User.id, _TELLING)),
    ]


_MAX_COUNTED = 1_000
_SLACK = 2 * PURGE.every
# By the names of their ages in the statement.
_RULES: Mapping[str, Rule] = {
    f"age_{number}": rule for number, rule in enumerate(RULES) if rule.moment is not None
}


def count_overdue(resources: Resources) -> Mapping[str, int]:
    """Count overdue rows by their rule, each up to a thousand, and read no more of a table.

    Raises ``psycopg2.Error``.
    """
    ages = {name: rule.age(resources.settings) + _SLACK for name, rule in _RULES.items()}
    return dict(resources.database.rows(_counts(), **ages))


@cache
def _counts() -> Statement:
    """To write it takes longer than to run it."""
    return Statement(union_all(*(_count(name, rule) for name, rule in _RULES.items())))


def _count(age: str, rule: Rule) -> Select[str, int]:
    """Return, of the oldest rows of a rule, as many as are past their time."""
    assert rule.moment is not None
    is_past = and_(rule.moment < func.now() - bindparam(age, type_=Interval), *rule.only)
    query = select(is_past.label("is_past")).select_from(rule.model)
    # The order is that of an index, so that nothing else is read, whatever the planner takes the
    # table to hold.
    if rule.oldest_by:
        query = query.where(*rule.oldest_from).order_by(*rule.oldest_by)
    else:
        query = query.where(is_past).order_by(rule.moment)
    oldest = query.limit(_MAX_COUNTED).subquery()
    return select(literal(rule.name), func.count()).where(oldest.c.is_past)
