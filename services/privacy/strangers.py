"""Purges abandoned orders, unconfirmed subscription requests and unused person records every hour.

Orders and subscription requests require no account, so anybody could fill the database with them.
When a request expires, a new reader's subscription is deleted, and a former member's subscription
returns to its earlier status.

A stranger is a person who can't log in and has no data except events about unconfirmed subscription
requests. These events are deleted together with the stranger.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import ColumnElement, any_, delete, exists, func, not_, select
from sqlalchemy.orm import InstrumentedAttribute

from core.settings.notations import Retained
from models import Plan, Subscription, SubscriptionEvent, SubscriptionStatus, User
from services.accounts import accounts
from services.credits import orders
from services.jobs import maintenance
from services.jobs.maintenance import register_maintenance
from services.privacy.purge_runs import PurgeRun, TablePurge
from services.privacy.retention import REQUESTED_AT
from services.subscriptions.consent import history
from services.subscriptions.members import pending_requests
from services.subscriptions.members.changes import Actor, ActorKind, Via
from services.subscriptions.members.pending_requests import IS_MORE_THAN_REQUEST
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

PURGE_STRANGERS = register_maintenance(
    "maintenance.strangers",
    every=timedelta(hours=1),
    run=lambda resources, began_at: purge_strangers(resources, now=began_at),
)
_MAX_BATCH_ROWS = 1_000
_MAX_BATCH_PEOPLE = 5_000
# The maximum number of batches per run of the purge. A run with this many batches checks half a
# million people. The next run continues after the last checked person.
_MAX_BATCHES = 100

_PENDING = SubscriptionStatus.PENDING
_STRANGER = Actor(ActorKind.STRANGER, Via.CHALLENGE)


def purge_strangers(resources: Resources, *, now: datetime) -> int:
    age = timedelta(days=resources.settings.retention[Retained.STRANGERS])
    purge = PurgeRun(resources)
    purge.purge_tables(
        TablePurge("payment_orders", partial(orders.purge_abandoned_orders, now), _MAX_BATCH_ROWS),
        TablePurge("subscriptions", partial(_purge_requests, age), _MAX_BATCH_ROWS),
    )
    purge.attempt("users", partial(_purge_next_people, resources, age))
    return purge.end()


def _purge_requests(age: timedelta, uow: UnitOfWork, limit: int) -> int:
    """Delete expired subscription requests, and the records of strangers who sent the requests.

    Every transaction that writes about a person locks the person's row. A purge locks the rows of
    people before deleting them, and skips rows that are already locked.
    """
    is_over = (Subscription.status == _PENDING, func.now() - age > REQUESTED_AT)
    oldest = select(Subscription.user_id).where(*is_over).order_by(REQUESTED_AT).limit(limit)
    array = func.array(oldest.scalar_subquery())
    people = _lock_people(uow, User.id == any_(array))
    records = select(Subscription.id).where(Subscription.user_id.in_(people), *is_over)
    # Skip locked subscriptions to prevent a deadlock. Undoing an import locks subscriptions but not
    # people.
    requests = uow.session.scalars(records.with_for_update(skip_locked=True)).all()
    pending_requests.end_requests(uow, requests, _STRANGER)
    _purge_people(uow, people, age)
    return len(requests)


def _purge_next_people(resources: Resources, age: timedelta) -> int:
    """Check the next 500,000 people in id order, and delete those who are strangers."""
    total = 0
    for _ in range(_MAX_BATCHES):
        with resources.unit_of_work() as uow:
            after = maintenance.read_bookmark(uow, PURGE_STRANGERS) or 0
            following = select(User.id).where(User.id > after).order_by(User.id)
            # ``last`` is ``None`` if the batch includes the last person in the table ``users``.
            last = uow.session.scalar(following.offset(_MAX_BATCH_PEOPLE - 1).limit(1))
            # First find the people who are on a list, because they aren't strangers. Almost
            # everybody is on a list, so the other checks are needed for only a few people.
            on_lists = select(Subscription.user_id).where(
                *_between(after, Subscription.user_id, last)
            )
            unlisted = select(User.id).where(*_between(after, User.id, last)).except_(on_lists)
            if ids := uow.session.scalars(unlisted).all():
                people = _lock_people(uow, User.id.in_(ids), *_is_stranger(age))
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
    rows = select(User.id).where(*conditions).with_for_update(skip_locked=True)
    return uow.session.scalars(rows).all()


def _purge_people(uow: UnitOfWork, people: Sequence[int], age: timedelta) -> int:
    """Delete the strangers among people whose rows are locked."""
    # The people's rows are locked, so that none of them can join a list between this query and the
    # deletion.
    strangers = select(User.id).where(User.id.in_(people), *_is_stranger(age))
    ids = uow.session.scalars(strangers).all()
    uow.session.execute(delete(SubscriptionEvent).where(SubscriptionEvent.user_id.in_(ids)))
    uow.session.execute(delete(User).where(User.id.in_(ids)))
    history.erase_history(uow, ids)
    return len(ids)


def _is_stranger(age: timedelta) -> list[ColumnElement[bool]]:
    events = SubscriptionEvent.__table__.c.user_id
    references = (column for column in accounts.user_id_columns() if column is not events)
    return [
        User.password_hash.is_(None),
        User.erased_at.is_(None),
        User.plan == Plan.FREE,
        User.created_at < func.now() - age,
        *(not_(exists().where(column == User.id)) for column in references),
        not_(exists().where(SubscriptionEvent.user_id == User.id, IS_MORE_THAN_REQUEST)),
    ]
