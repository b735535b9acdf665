"""Runs bulk actions, which make the same change to all members of a list who match a filter.

A job changes members in batches, ordered by status and id. The transaction of a batch locks the
list, and stores the previous values. It also stores the id of the batch's last member, so that a
retried job resumes after this member.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import func, select

from core.errors.mailing import BULK_VALUE
from core.permissions import Permission
from core.queues import Queue
from core.scopes import Scope
from core.settings.notations import PlanQuota
from models import BulkAction, BulkActionKind, Job, JobStatus, MailingList, SubscriptionStatus, Tier
from services import paging
from services.access import quotas
from services.access.caller import Caller
from services.access.sessions import require_recent_login
from services.feed.catalogue import FeedEventType, announce_event
from services.jobs import records
from services.jobs.batches import work_in_turns
from services.jobs.kinds import (
    COMPUTING_DEADLINE_SECONDS,
    JobKind,
    JobPermissions,
    call_with_subject,
    register_kind,
)
from services.jobs.lease import JobCancelled, Lease
from services.jobs.outbox import enqueue_job
from services.jobs.transitions import complete_job, record_progress
from services.paging import PageOfRows, PageRequest
from services.subscriptions import lists, subscriber_counts, tags
from services.subscriptions.bulk_actions import batches
from services.subscriptions.fields import InvalidAttribute
from services.subscriptions.filters import member_filter
from services.subscriptions.members import locks
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

_TAG_ACTIONS = (BulkActionKind.TAG, BulkActionKind.UNTAG)


@dataclass(frozen=True)
class BulkOrder:
    """The change that a bulk action makes to each member.

    ``value`` is a tag's name, a tier for ``set_type``, or ``None`` for actions without a value.
    """

    action: BulkActionKind
    value: str | None = None


def check_order(order: BulkOrder) -> BulkOrder:
    if order.action in _TAG_ACTIONS:
        try:
            return BulkOrder(order.action, tags.normalise_tag(order.value or ""))
        except InvalidAttribute as error:
            raise BULK_VALUE(rule=f"{error}") from None
    if order.action is BulkActionKind.SET_TYPE:
        if order.value not in [*Tier]:
            raise BULK_VALUE(rule=f"must be one of {', '.join(Tier)} for the action {order.action}")
    elif order.value is not None:
        raise BULK_VALUE(rule=f"must not be set for the action {order.action}")
    return order


def begin_bulk_action(
    uow: UnitOfWork,
    mailing_list: MailingList,
    stored_filter: Mapping[str, Any],
    order: BulkOrder,
    *,
    caller: Caller,
) -> Job:
    """Enqueue an order that ``check_order`` has validated."""
    if order.action is BulkActionKind.REMOVE:
        require_recent_login(uow, caller)
    account_id = mailing_list.user_id
    quotas.require_quota(uow, account_id, PlanQuota.UNFINISHED_JOBS)
    quotas.require_quota(
        uow, account_id, PlanQuota.STORAGE_MB, more=quotas.count_row_bytes(stored_filter)
    )
    bulk = BulkAction(
        list_id=mailing_list.id, user_id=account_id, filter=dict(stored_filter), action=order.action
    )
    if order.action is BulkActionKind.SET_TYPE:
        bulk.type = order.value
    elif order.value is not None:
        creates_tag = order.action is BulkActionKind.TAG
        # Limit how long the transaction waits for locks, because a concurrent transaction may be
        # creating or deleting the same tag.
        with locks.limit_lock_waits(uow):
            tag_ids = tags.find_tag_ids(
                uow, mailing_list.id, [order.value], create=creates_tag, lock=True
            )
        # No tag has the id 0, so a bulk action that removes an unknown tag changes no member.
        bulk.tag_id = tag_ids.get(order.value, 0)
    uow.session.add(bulk)
    uow.session.flush()
    return enqueue_job(uow, CHANGE_MEMBERS, account_id=account_id, subject_id=bulk.id)


def list_bulk_actions(
    uow: UnitOfWork, caller: Caller, page: PageRequest, *, list_id: int
) -> PageOfRows[BulkAction]:
    bulk_actions = select(BulkAction).where(
        BulkAction.list_id == list_id, BulkAction.user_id == caller.account_id
    )
    query = paging.select_page_by_id(bulk_actions, BulkAction.id, page)
    return paging.read_page(uow, query, page)


def find_bulk_actions(uow: UnitOfWork, caller: Caller, ids: Sequence[int]) -> Sequence[BulkAction]:
    query = select(BulkAction).where(
        BulkAction.user_id == caller.account_id, BulkAction.id.in_(ids)
    )
    return uow.session.scalars(query).all()


def find_job(uow: UnitOfWork, bulk: BulkAction) -> Job | None:
    """Return ``None`` if the job has ended."""
    return records.find_unfinished_job(uow, bulk.user_id, [CHANGE_MEMBERS], bulk.id)


def change_members(resources: Resources, lease: Lease) -> None:
    work_in_turns(resources, lease, partial(_change_batch, lease=lease))


def announce_end(
    uow: UnitOfWork,
    bulk: BulkAction,
    job_id: int,
    status: str,
    *,
    action: str,
    total: int,
    changed: int,
) -> None:
    """Announce the end in the owner's feed. ``total`` members were meant to be changed."""
    announce_event(
        uow,
        bulk.user_id,
        FeedEventType.BULK_ENDED,
        list_id=bulk.list_id,
        status=status,
        job_id=job_id,
        action=action,
        bulk_id=bulk.id,
        changed=changed,
        kept=total - changed,
    )


def _change_batch(uow: UnitOfWork, lease: Lease) -> bool:
    """Return whether the bulk action has ended."""
    bulk = uow.session.get(BulkAction, lease.subject_id)
    if bulk is None:
        raise JobCancelled
    members = member_filter.read_for_running_job(
        uow, lists.get_list(uow, bulk.list_id), bulk.filter, begun_at=bulk.created_at
    )
    if bulk.action == BulkActionKind.TAG:
        tags.get_tag(uow, bulk.list_id, bulk.tag_id or 0)
    locks.lock_list(uow, bulk.list_id)
    statuses = members.list_statuses()
    batch = batches.next_batch(uow, bulk, statuses)
    if batch is None:
        counts = {"bulk_id": bulk.id, "matched": bulk.matched, "changed": bulk.changed}
        complete_job(uow, lease, counts)
        _end_bulk_action(uow, bulk, lease.job_id, JobStatus.SUCCEEDED)
        return True
    total = None
    if not bulk.seen and statuses == (SubscriptionStatus.ACTIVE,):
        total = subscriber_counts.count_subscribers(uow, [bulk.list_id])[bulk.list_id]
    matched, changed = batches.change_batch(uow, bulk, batch, members.build_condition())
    # To avoid deadlocks, all transactions update ``jobs`` before ``bulk_actions``.
    record_progress(uow, lease, done=bulk.seen + batch.seen, total=total)
    bulk.reached_status = batch.status
    bulk.reached_id = batch.last
    bulk.seen += batch.seen
    bulk.matched += matched
    bulk.changed += changed
    return False


def _end_bulk_action(uow: UnitOfWork, bulk: BulkAction, job_id: int, status: str) -> None:
    bulk.status = status
    bulk.finished_at = func.now()
    announce_end(
        uow,
        bulk,
        job_id,
        status,
        action=bulk.action,
        total=bulk.matched,
        changed=bulk.changed,
    )


def _restart_with_job(uow: UnitOfWork, job: Job) -> bool:
    """Restart a failed bulk action, unless its undo has started."""
    # Lock the row in ``bulk_actions``, so that the bulk action can't be restarted and undone at the
    # same time.
    bulk = uow.session.get(BulkAction, job.subject_id, with_for_update=True, populate_existing=True)
    if bulk is None or bulk.undo_job_id is not None:
        return False
    bulk.status = JobStatus.RUNNING
    bulk.finished_at = None
    return True


CHANGE_MEMBERS = register_kind(
    JobKind(
        "members.bulk",
        Queue.BULK,
        Scope.SUBSCRIPTION_FULL,
        permissions=JobPermissions(Permission.FIGURES, Permission.EDIT),
        retryable=True,
        run=change_members,
        deadline_seconds=COMPUTING_DEADLINE_SECONDS,
        # Restarting the job of a bulk action requires a recent login, because the bulk action may
        # remove members.
        needs_recent_login=True,
        # The changes that an abandoned bulk action has already made remain, but the owner can undo
        # them.
        on_abandoned=call_with_subject(BulkAction, _end_bulk_action),
        on_restarted=_restart_with_job,
    )
)
