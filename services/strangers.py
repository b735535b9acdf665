"""The purge of what strangers leave behind: unpaid orders, and people without a trace.

A stranger can make both, any number of them. A person counts as without a trace when they can't log
in and no row of any table refers to them: no subscription of any status, no opt-out, no credits.
"""

from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, delete, exists, not_, select

from core.lanes import Lane
from models import Plan, User
from models.declarative import Model
from services.jobs import upkeep
from services.money.topups import abandoned
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

PURGE_STRANGERS = upkeep.register(
    upkeep.UpkeepKind("maintenance.strangers", every=timedelta(hours=1), lane=Lane.UPKEEP)
)
STRANGER_RETENTION = timedelta(days=30)
_MAX_ORDERS_AT_ONCE = 1_000
_MAX_PEOPLE_AT_ONCE = 5_000
# Each run goes on where the last one ended, so that no run reads millions of people.
_MAX_BATCHES = 100


def purge(resources: Resources, *, now: datetime) -> int:
    """Delete abandoned orders, then people without a trace; how many they were."""
    total = 0
    while purged := _purge_orders(resources, now):
        total += purged
    for _ in range(_MAX_BATCHES):
        with resources.unit_of_work() as uow:
            after = upkeep.bookmark(uow, PURGE_STRANGERS) or 0
            last = _last_of_batch(uow, after)
            total += _purge_people(uow, now, after, last)
            upkeep.set_bookmark(uow, PURGE_STRANGERS, last)
        if last is None:
            break
    return total


def _purge_orders(resources: Resources, now: datetime) -> int:
    with resources.unit_of_work() as uow:
        return abandoned.purge(uow, now, limit=_MAX_ORDERS_AT_ONCE)


def _last_of_batch(uow: UnitOfWork, after: int) -> int | None:
    """The last id of the next people; ``None`` when these are the last ones."""
    query = select(User.id).where(User.id > after).order_by(User.id)
    return uow.session.scalar(query.offset(_MAX_PEOPLE_AT_ONCE - 1).limit(1))


def _purge_people(uow: UnitOfWork, now: datetime, after: int, last: int | None) -> int:
    batch = [User.id > after, *([] if last is None else [User.id <= last])]
    # A transaction that writes about a person holds their row: such a person stays. No other one
    # begins to while their row is locked, so what is asked once more then stays true.
    locked = select(User.id).where(*batch, *_without_a_trace(now)).with_for_update(skip_locked=True)
    ids = list(uow.session.scalars(locked))
    purged = delete(User).where(User.id.in_(ids), *_without_a_trace(now)).returning(User.id)
    return len(uow.session.execute(purged).all())


def _without_a_trace(now: datetime) -> list[ColumnElement[bool]]:
    key = User.__table__.c.id
    references = [
        foreign.parent
        for table in Model.metadata.sorted_tables
        for foreign in table.foreign_keys
        if foreign.column is key
    ]
    return [
        User.password_hash.is_(None),
        User.erased_at.is_(None),
        User.plan == Plan.FREE,
        User.created_at < now - STRANGER_RETENTION,
        *(not_(exists().where(each == User.id)) for each in references),
    ]
