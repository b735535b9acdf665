"""Enforces the quotas of a list owner's plan.

Quotas never prevent readers from unsubscribing or changing their subscriptions, and don't apply to
the operator's commands. A list owner who exceeds a quota, for example after a change of plan, keeps
all data but can't add more. The unit of the storage quota is the byte in ``find_remaining_quota``,
``lock_quota`` and ``lock_quota_share``.

A request locks the owner's quota before checking how much of it remains, so that simultaneous
requests can't exceed the quota together. To prevent deadlocks, lock a quota before writing rows
that count against the quota. The lock lasts until the transaction ends.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from sqlalchemy import Date, Select, cast, func, literal, select, text

from core import clock
from core.errors import DomainError, TransientError
from core.errors.access import QUOTA_EXCEEDED
from core.ids import AccountId
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

BYTES_PER_MB = 2**20
# How many bytes of the storage quota a stored row uses. For a row with a filter, the size of the
# filter is added.
_ROW_BYTES = 500
# The kinds of jobs that count against the quota ``UNFINISHED_JOBS`` are imports, exports and bulk
# actions. Kinds that aren't in ``LIMITED_JOB_KINDS`` are limited only by the job queue.
LIMITED_JOB_KINDS = (
    "members.import",
    "members.suppress",
    "members.bulk",
    "export.members",
    "export.limited_delivery",
)
# The queues that contain the jobs of ``LIMITED_JOB_KINDS``.
_LIMITED_QUEUES = (Queue.BULK, Queue.EXPORT)
# How long a running job still counts as unfinished after its lease has expired.
_LOST_AFTER = timedelta(seconds=30)
# How many transactions can reserve a share of the same account's quota at the same time.
MAX_SHARES = 8
_LOCK_QUOTA = text("SELECT pg_advisory_xact_lock(hashtext('quota.' || :quota), hashint8(:user_id))")
_LOCK_QUOTA_SHARED = text(
    "SELECT pg_advisory_xact_lock_shared(hashtext('quota.' || :quota), hashint8(:user_id))"
)
_LOCK_FREE_SHARE = text(
    "SELECT n FROM generate_series(1, :shares) AS n WHERE pg_try_advisory_xact_lock("
    "hashtext('quota.share.' || :quota || n), hashint8(:user_id)) LIMIT 1"
)


@dataclass(frozen=True)
class QuotaUse:
    used: int
    limit: int | None


def list_uses(uow: UnitOfWork, account: User) -> dict[PlanQuota, QuotaUse]:
    counts = (_COUNTS[quota](account.account_id).scalar_subquery() for quota in PlanQuota)
    row = uow.session.execute(select(*counts)).one()
    return {
        quota: QuotaUse(_in_units(quota, count or 0), plan_limit(uow.settings, account.plan, quota))
        for quota, count in zip(PlanQuota, row, strict=True)
    }


def plan_limit(settings: Settings, plan: str, quota: PlanQuota) -> int | None:
    """Return a plan's limit for a quota, or ``None`` for an unlimited quota."""
    return {Plan.FREE: settings.quota_free, Plan.PAID: settings.quota_paid}[Plan(plan)].get(quota)


def find_exhausted_quota(
    uow: UnitOfWork, account: User, candidates: Iterable[PlanQuota]
) -> tuple[PlanQuota, QuotaUse] | None:
    """Return the first exhausted quota and its use, or ``None``. The quotas aren't locked."""
    for quota in candidates:
        limit = plan_limit(uow.settings, account.plan, quota)
        count = 0 if limit is None else _count(uow, account.account_id, quota)
        if limit is not None and count >= limit * _unit(quota):
            return quota, QuotaUse(_in_units(quota, count), limit)
    return None


def find_remaining_quota(uow: UnitOfWork, account: User, quota: PlanQuota) -> int | None:
    """Return how much of a quota is unused, without a lock, or ``None`` for an unlimited quota."""
    limit = plan_limit(uow.settings, account.plan, quota)
    if limit is None:
        return None
    return max(limit * _unit(quota) - _count(uow, account.account_id, quota), 0)


def require_quota(
    uow: UnitOfWork, account_id: AccountId, quota: PlanQuota, *, more: int = 1
) -> None:
    """Lock an account's quota, and raise ``quota.exceeded`` if less than ``more`` remains."""
    remaining = lock_quota(uow, account_id, quota)
    if remaining is not None and remaining < more:
        raise build_exceeded_error(uow, account_id, quota)


def lock_quota(uow: UnitOfWork, account_id: AccountId, quota: PlanQuota) -> int | None:
    """Lock an account's quota, and return how much of it remains, or ``None`` if it is unlimited.

    The remaining quota is negative if the account exceeds the limit.
    """
    limit = _find_limit(uow, account_id, quota)
    if limit is None:
        return None
    uow.session.execute(_LOCK_QUOTA, {"quota": quota, "user_id": account_id})
    return limit * _unit(quota) - _count(uow, account_id, quota)


def lock_quota_share(
    uow: UnitOfWork, account_id: AccountId, quota: PlanQuota, *, share_size: int
) -> bool:
    """Reserve ``share_size`` of an account's quota, and return whether the reservation succeeded.

    At most ``MAX_SHARES`` transactions can hold a reservation for the same account. A reservation
    fails if less than ``MAX_SHARES`` times ``share_size`` remains, or if all shares are taken. The
    caller must then lock the whole quota with ``lock_quota``. Every call must pass the same
    ``share_size``. Raises ``TransientError`` if a simultaneous transaction consumes the remaining
    quota.
    """
    limit = _find_limit(uow, account_id, quota)
    if limit is None:
        return True
    # If the account has used at most this much, at least ``MAX_SHARES`` shares are left.
    max_count = limit * _unit(quota) - share_size * MAX_SHARES
    values = {"quota": quota, "user_id": account_id, "shares": MAX_SHARES}
    if _count(uow, account_id, quota) > max_count:
        return False
    if not uow.session.scalar(_LOCK_FREE_SHARE, values):
        return False
    uow.session.execute(_LOCK_QUOTA_SHARED, values)
    if _count(uow, account_id, quota) > max_count:
        # Don't wait for a lock on the whole quota, which could deadlock with simultaneous
        # reservations.
        raise TransientError("a concurrent request reached the limit of the plan")
    return True


def build_exceeded_error(uow: UnitOfWork, account_id: AccountId, quota: PlanQuota) -> DomainError:
    used = _in_units(quota, _count(uow, account_id, quota))
    limit = _find_limit(uow, account_id, quota)
    # ``limit`` is ``None`` if an operator has switched the account to an unlimited plan in the
    # meantime.
    return _build_error(quota, used, used if limit is None else limit)


def count_composer_call(database: Database, settings: Settings, account_id: AccountId) -> None:
    """Count an account's call to the composer, even if the call fails later."""
    quota = PlanQuota.COMPOSER_PER_DAY
    limits = {plan.value: plan_limit(settings, plan, quota) for plan in Plan}
    [(calls, limit)] = database.rows(_COUNT_CALL, user_id=account_id, **limits)
    if calls is None:
        raise _build_error(quota, limit, limit)


def count_row_bytes(stored_filter: object = None) -> int:
    """Return how many bytes of the storage quota a row uses, including the row's stored filter.

    The result must be consistent with the database function ``row_bytes``.
    """
    filter_bytes = 0
    if stored_filter is not None:
        filter_bytes = len(json.dumps(stored_filter, ensure_ascii=False).encode())
    return _ROW_BYTES + filter_bytes


def _build_error(quota: PlanQuota, used: int, limit: int) -> DomainError:
    facts: dict[str, str | int] = {"quota": quota, "used": used, "limit": limit}
    return QUOTA_EXCEEDED(facts=facts, quota=quota, used=used, limit=limit)


def _find_limit(uow: UnitOfWork, account_id: AccountId, quota: PlanQuota) -> int | None:
    plan = uow.session.execute(select(User.plan).where(User.id == account_id)).scalar_one()
    return plan_limit(uow.settings, plan, quota)


def _unit(quota: PlanQuota) -> int:
    return BYTES_PER_MB if quota is PlanQuota.STORAGE_MB else 1


def _in_units(quota: PlanQuota, count: int) -> int:
    """Convert a consumed amount to the quota's unit, for example bytes to megabytes, rounded up."""
    return -(-int(count) // _unit(quota))


def _count(uow: UnitOfWork, account_id: AccountId, quota: PlanQuota) -> int:
    return int(uow.session.scalar(_COUNTS[quota](account_id)) or 0)


def _aggregate_open_lists(aggregate: Any, account_id: AccountId) -> Select[int]:
    return select(aggregate).where(
        MailingList.user_id == account_id, MailingList.archived_at.is_(None)
    )


def _count_unfinished_jobs(account_id: AccountId) -> Select[int]:
    # Two subqueries count queued and running jobs, because each status has a separate index. The
    # condition on ``lease_expires_at`` skips finished jobs, whose index entries Postgres can't
    # remove during a long transaction.
    is_queued = (Job.status == JobStatus.QUEUED,)
    is_running = (Job.status == JobStatus.RUNNING, Job.lease_expires_at > func.now() - _LOST_AFTER)
    counts = (
        select(func.count(Job.id))
        .where(*is_unfinished, Job.queue.in_(_LIMITED_QUEUES), Job.on_behalf_of == account_id)
        .where(Job.kind.in_(LIMITED_JOB_KINDS))
        .scalar_subquery()
        for is_unfinished in (is_queued, is_running)
    )
    return select(sum(counts, literal(0)))


_TODAY = cast(func.timezone("UTC", func.now()), Date)
_COUNTS: dict[PlanQuota, Callable[[AccountId], Select[int]]] = {
    PlanQuota.MEMBERS: partial(_aggregate_open_lists, func.sum(active_count(MailingList.id))),
    PlanQuota.LISTS: partial(_aggregate_open_lists, func.count(MailingList.id)),
    PlanQuota.STORAGE_MB: lambda account_id: select(StorageUse.bytes).where(
        StorageUse.user_id == account_id
    ),
    PlanQuota.KEYS: lambda account_id: select(func.count(ApiKey.id)).where(
        ApiKey.user_id == account_id, *api_keys.active_key_conditions(clock.now())
    ),
    PlanQuota.UNFINISHED_JOBS: _count_unfinished_jobs,
    PlanQuota.COMPOSER_PER_DAY: lambda account_id: select(ComposerUse.calls).where(
        ComposerUse.user_id == account_id, ComposerUse.day == _TODAY
    ),
}
# Counts an account's call to the composer, unless the account has reached the daily limit. A call
# shortly before midnight is sometimes counted for the next day.
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
