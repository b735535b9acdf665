"""The quotas of a plan, and how much of it they have.

Quotas bound what owners do, and nothing else: no opt-out, no act of a reader on their own
subscription, no command of the operator. An owner keeps what is above a limit; only more is
refused.

An act that takes more holds the owner's quota until its transaction ends, and counts after it got
hold of it. Acts at the same moment therefore take turns, and together they never pass a limit. It
takes hold before it writes what is counted, so that no two acts wait for each other.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from sqlalchemy import Date, Select, cast, func, literal, select, text

from core import clock
from core.errors import DomainError, TransientError
from core.errors.access import QUOTA_EXCEEDED
from core.queues import Queue
from core.settings import Settings
from core.settings.notations import PlanQuota
from models import (
    ApiKey,
    ComposerUse,
    Job,
    JobStatus,
    MailingList,
    Plan,
    StorageUse,
    User,
    active_count,
)
from services.access import api_keys
from storage.database import Database, Statement
from storage.unit_of_work import UnitOfWork

BYTES_A_MB = 2**20
_ROW_BYTES = 500
# The kinds of jobs that are an owner's imports, exports and bulk actions. A roster is an act of its
# sender; to add the members of one request is a call that its caller waits for: the queue bounds
# these.
BOUNDED_KINDS = ("members.import", "members.suppress", "members.bulk", "export.members")
_LOST_AFTER = timedelta(seconds=30)
_THEIR_QUEUES = (Queue.BULK, Queue.EXPORT)
_HOLD = text("SELECT pg_advisory_xact_lock(hashtext('quota.' || :quota), hashint8(:user_id))")
_HOLD_SHARED = text(
    "SELECT pg_advisory_xact_lock_shared(hashtext('quota.' || :quota), hashint8(:user_id))"
)
# How many transactions may have a share of one user's quota at the same time.
MAX_SHARES = 8
_TAKE_SHARE = text(
    "SELECT n FROM generate_series(1, :shares) AS n WHERE pg_try_advisory_xact_lock("
    "hashtext('quota.share.' || :quota || n), hashint8(:user_id)) LIMIT 1"
)


@dataclass(frozen=True)
class QuotaUse:
    """``limit`` is ``None`` where the plan has none."""

    used: int
    limit: int | None


def uses(uow: UnitOfWork, user: User) -> dict[PlanQuota, QuotaUse]:
    """Return how much the user has of each quota."""
    counts = (_COUNTS[quota](user.id).scalar_subquery() for quota in PlanQuota)
    row = uow.session.execute(select(*counts)).one()
    return {
        quota: QuotaUse(_in_units(quota, count or 0), limit_of(uow.settings, user.plan, quota))
        for quota, count in zip(PlanQuota, row, strict=True)
    }


def limit_of(settings: Settings, plan: str, quota: PlanQuota) -> int | None:
    """Return what the plan has room for in the quota's own unit; ``None`` for any number."""
    return {Plan.FREE: settings.quota_free, Plan.PAID: settings.quota_paid}[Plan(plan)].get(quota)


def require_quota(uow: UnitOfWork, user_id: int, quota: PlanQuota, *, more: int = 1) -> None:
    """Raises ``quota.exceeded`` unless the plan has room for ``more``, of storage in bytes.

    Until the transaction ends, no other act of the user takes any of it.
    """
    room = hold(uow, user_id, quota)
    if room is not None and room < more:
        raise exceeded(uow, user_id, quota)


def hold(uow: UnitOfWork, user_id: int, quota: PlanQuota) -> int | None:
    """Return how much more the user may have, of storage in bytes; ``None`` for any number.

    Until the transaction ends, no other act of the user takes any of it. Below 0 after readers'
    own acts, or a change of the plan.
    """
    limit = _limit(uow, user_id, quota)
    if limit is None:
        return None
    uow.session.execute(_HOLD, {"quota": quota, "user_id": user_id})
    return limit * _unit(quota) - _count(uow, user_id, quota)


def share(uow: UnitOfWork, user_id: int, quota: PlanQuota, *, most: int) -> bool:
    """Return whether the transaction may take up to ``most``, beside others that do the same.

    There is room for as much by each of ``MAX_SHARES`` then, so that together they never pass the
    limit. False near the limit, or where as many have their shares: ``hold`` takes turns. All
    callers give one ``most``. Raises ``TransientError`` when the room was lost at that moment.
    """
    limit = _limit(uow, user_id, quota)
    if limit is None:
        return True
    # There is room for every share up to this count.
    highest = limit * _unit(quota) - most * MAX_SHARES
    values = {"quota": quota, "user_id": user_id, "shares": MAX_SHARES}
    if _count(uow, user_id, quota) > highest or not uow.session.scalar(_TAKE_SHARE, values):
        return False
    uow.session.execute(_HOLD_SHARED, values)
    if _count(uow, user_id, quota) > highest:
        # To hold the quota now would be to wait for those who share it, and they for this one.
        raise TransientError("another act took what the plan had room for")
    return True


def exceeded(uow: UnitOfWork, user_id: int, quota: PlanQuota) -> DomainError:
    """The error of an act that the plan has no room for."""
    used = _in_units(quota, _count(uow, user_id, quota))
    limit = _limit(uow, user_id, quota)
    # No limit: the operator changed the plan since.
    return _error(quota, used, used if limit is None else limit)


def count_composer_call(database: Database, settings: Settings, user_id: int) -> None:
    """Count a call of the composer, whatever comes of it; raises ``quota.exceeded``."""
    quota = PlanQuota.COMPOSER_PER_DAY
    limits = {plan.value: limit_of(settings, plan, quota) for plan in Plan}
    [(calls, limit)] = database.rows(_COUNT_CALL, user_id=user_id, **limits)
    if calls is None:
        raise _error(quota, limit, limit)


def row_bytes(kept: object = None) -> int:
    """Return what a row with such a filter counts of the storage, as `row_bytes.sql` has it."""
    filter_bytes = 0 if kept is None else len(json.dumps(kept, ensure_ascii=False).encode())
    return _ROW_BYTES + filter_bytes


def _error(quota: PlanQuota, used: int, limit: int) -> DomainError:
    facts: dict[str, str | int] = {"quota": quota, "used": used, "limit": limit}
    return QUOTA_EXCEEDED(facts=facts, quota=quota, used=used, limit=limit)


def _limit(uow: UnitOfWork, user_id: int, quota: PlanQuota) -> int | None:
    plan = uow.session.execute(select(User.plan).where(User.id == user_id)).scalar_one()
    return limit_of(uow.settings, plan, quota)


def _unit(quota: PlanQuota) -> int:
    return BYTES_A_MB if quota is PlanQuota.STORAGE_MB else 1


def _in_units(quota: PlanQuota, count: int) -> int:
    """The count in the quota's own unit, rounded up."""
    return -(-int(count) // _unit(quota))


def _count(uow: UnitOfWork, user_id: int, quota: PlanQuota) -> int:
    return int(uow.session.scalar(_COUNTS[quota](user_id)) or 0)


def _of_open_lists(what: Any, user_id: int) -> Select[int]:
    return select(what).where(MailingList.user_id == user_id, MailingList.archived_at.is_(None))


def _jobs(user_id: int) -> Select[int]:
    # Apart, since queued jobs and running ones have indexes of their own. A job whose lease ended
    # long ago is queued again and counts then: the look passes over the leases of the past, which a
    # long snapshot keeps in the index.
    is_running = Job.status == JobStatus.RUNNING, Job.lease_expires_at > func.now() - _LOST_AFTER
    unfinished = (
        select(func.count(Job.id))
        .where(*is_unfinished, Job.queue.in_(_THEIR_QUEUES), Job.on_behalf_of == user_id)
        .where(Job.kind.in_(BOUNDED_KINDS))
        .scalar_subquery()
        for is_unfinished in ((Job.status == JobStatus.QUEUED,), is_running)
    )
    return select(sum(unfinished, literal(0)))


_TODAY = cast(func.timezone("UTC", func.now()), Date)
_COUNTS: dict[PlanQuota, Callable[[int], Select[int]]] = {
    PlanQuota.MEMBERS: partial(_of_open_lists, func.sum(active_count(MailingList.id))),
    PlanQuota.LISTS: partial(_of_open_lists, func.count(MailingList.id)),
    PlanQuota.STORAGE_MB: lambda user_id: select(StorageUse.bytes).where(
        StorageUse.user_id == user_id
    ),
    PlanQuota.KEYS: lambda user_id: select(func.count(ApiKey.id)).where(
        ApiKey.user_id == user_id, *api_keys.is_live(clock.now())
    ),
    PlanQuota.UNFINISHED_JOBS: _jobs,
    PlanQuota.COMPOSER_PER_DAY: lambda user_id: select(ComposerUse.calls).where(
        ComposerUse.user_id == user_id, ComposerUse.day == _TODAY
    ),
}
# Each user has one row, which their calls lock for a moment. A call at midnight that began the
# day before counts for the new day.
_COUNT_CALL = Statement("""
    WITH plan AS (
        SELECT CASE plan WHEN 'free' THEN CAST(:free AS bigint) ELSE CAST(:paid AS bigint) END
            AS most
        FROM users WHERE id = :user_id
    ), counted AS (
        INSERT INTO composer_uses AS uses (user_id, day, calls)
        SELECT :user_id, CAST(timezone('UTC', now()) AS date), 1 FROM plan
        WHERE coalesce(most > 0, true)
        ON CONFLICT (user_id) DO UPDATE SET
            day = greatest(uses.day, excluded.day),
            calls = CASE WHEN uses.day < excluded.day THEN 1 ELSE uses.calls + 1 END
        WHERE uses.day < excluded.day OR coalesce(uses.calls < (SELECT most FROM plan), true)
        RETURNING calls
    )
    SELECT (SELECT calls FROM counted), most FROM plan
    """)
