"""Purges what strangers left behind, every hour."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import (
    ColumnElement,
    any_,
    delete,
    exists,
    func,
    not_,
    or_,
    select,
    text,
)
from sqlalchemy.orm import InstrumentedAttribute

from core.settings.notations import Retained
from models import (
    Plan,
    Subscription,
    SubscriptionEvent,
    SubscriptionStatus,
    User,
)
from services.accounts import accounts
from services.credits import orders
from services.jobs import maintenance
from services.privacy.kept import REQUESTED_AT
from services.privacy.purge_runs import Purge, TablePurge
from services.subscriptions.consent import history
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

PURGE_STRANGERS = maintenance.register(
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
        TablePurge("payment_orders", partial(orders.purge, now), _MAX_AT_ONCE),
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
            after = maintenance.bookmark(uow, PURGE_STRANGERS) or 0
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
            maintenance.set_bookmark(uow, PURGE_STRANGERS, last)
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
    history.erase(uow, ids)
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
