"""Bulk actions: one change to all members of a list who fit a filter, and its undo.

An action is a row and a job. The job goes through the list in batches, in the order of the members'
ids. A batch is one transaction under the list's lock: it writes the earlier values of each member
that it changes, and how far it came. The undo goes through what was written. It brings no person
back who left, and switches no mail on that its reader switched off, whenever that was.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import func, select

from core.errors.mailing import BULK_NOT_FOUND, BULK_RUNNING, BULK_UNDO_OVER, BULK_VALUE
from core.queues import Queue
from core.scopes import Scope
from core.settings.notations import PlanQuota
from models import BulkAction, BulkActionKind, Job, JobStatus, MailingList, SubscriptionStatus, Tier
from services import paging
from services.access import quotas
from services.access.caller import Caller
from services.access.sessions import require_recent_login
from services.feed.catalogue import FeedEventType, announce
from services.jobs import records
from services.jobs.batches import work_in_turns
from services.jobs.kinds import JobKind, call_with_subject, register_kind
from services.jobs.lease import JobCancelled, Lease
from services.jobs.outbox import enqueue_job
from services.jobs.transitions import complete_job, record_progress
from services.paging import PageOfRows, PageRequest
from services.subscriptions import lists, subscriber_counts, tags
from services.subscriptions.bulk_actions import batches
from services.subscriptions.fields import ValueRefused
from services.subscriptions.filters import member_filter
from services.subscriptions.members import locks
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork


def _end(uow: UnitOfWork, bulk: BulkAction, job_id: int, status: str) -> None:
    bulk.status, bulk.finished_at = status, func.now()
    _announce(uow, bulk, job_id, status, bulk.action, of=bulk.matched, changed=bulk.changed)


def _end_undo(uow: UnitOfWork, bulk: BulkAction, job_id: int, status: str) -> None:
    _announce(uow, bulk, job_id, status, "undo_bulk", of=bulk.changed, changed=bulk.undone)


def _announce(
    uow: UnitOfWork,
    bulk: BulkAction,
    job_id: int,
    status: str,
    action: str,
    *,
    of: int,
    changed: int,
) -> None:
    announce(
        uow,
        bulk.user_id,
        FeedEventType.BULK_ENDED,
        list_id=bulk.list_id,
        status=status,
        job_id=job_id,
        action=action,
        bulk_id=bulk.id,
        changed=changed,
        kept=of - changed,
    )


def _go_on_with_job(uow: UnitOfWork, job: Job) -> bool:
    """Go on with a bulk action that failed, unless its undo was asked for."""
    # Locked, as by who asks for its undo: of the two at the same time one finds the other.
    bulk = uow.session.get(BulkAction, job.subject_id, with_for_update=True, populate_existing=True)
    if bulk is None or bulk.undo_job_id is not None:
        return False
    bulk.status, bulk.finished_at = JobStatus.RUNNING, None
    return True


def change_members(resources: Resources, lease: Lease) -> None:
    """Change batches of members for one turn.

    Raises ``list.not_found`` for a list that was archived; for a bulk action that had failed and
    goes on, ``segment.tag_deleted`` and ``tag.not_found`` if its tags were deleted meanwhile.
    """
    work_in_turns(resources, lease, partial(_change_batch, lease=lease))


CHANGE_MEMBERS = register_kind(
    JobKind(
        "members.bulk",
        Queue.BULK,
        Scope.SUBSCRIPTION_FULL,
        retryable=True,
        run=change_members,
        # A bulk action may remove members, which needs a recent login.
        needs_recent_login=True,
        # Its changes stay, and can be undone.
        on_abandoned=call_with_subject(BulkAction, _end),
        on_restarted=_go_on_with_job,
    )
)


def _change_batch(uow: UnitOfWork, lease: Lease) -> bool:
    bulk = uow.session.get(BulkAction, lease.subject_id)
    if bulk is None:
        raise JobCancelled
    wanted = member_filter.read_begun(uow, lists.get(uow, bulk.list_id), bulk.filter)
    if bulk.action == BulkActionKind.TAG:
        tags.get_tag(uow, bulk.list_id, bulk.tag_id or 0)
    locks.lock_list(uow, bulk.list_id)
    statuses = wanted.statuses()
    batch = batches.next_batch(uow, bulk, statuses)
    if batch is None:
        counts = {"bulk_id": bulk.id, "matched": bulk.matched, "changed": bulk.changed}
        complete_job(uow, lease, counts)
        _end(uow, bulk, lease.job_id, JobStatus.SUCCEEDED)
        return True
    total = None
    if not bulk.seen and statuses == (SubscriptionStatus.ACTIVE,):
        total = subscriber_counts.count_subscribers(uow, [bulk.list_id])[bulk.list_id]
    matched, changed = batches.apply(uow, bulk, batch, wanted.condition())
    # The job first, then the action: the order in which a transaction that ends both locks them.
    record_progress(uow, lease, done=bulk.seen + batch.seen, total=total)
    bulk.reached_status, bulk.reached_id = batch.status, batch.last
    bulk.seen += batch.seen
    bulk.matched += matched
    bulk.changed += changed
    return False


def undo_changes(resources: Resources, lease: Lease) -> None:
    """Undo batches of changes for one turn.

    Raises ``quota.exceeded`` if the plan has no room for members who would come back.
    """
    work_in_turns(resources, lease, partial(_undo_batch, lease=lease))


UNDO_BULK_ACTION = register_kind(
    JobKind(
        "members.bulk_undo",
        Queue.BULK,
        Scope.SUBSCRIPTION_FULL,
        retryable=True,
        run=undo_changes,
        # An undo that ended early is not taken back, and asking again goes on.
        on_abandoned=call_with_subject(BulkAction, _end_undo),
    )
)


def _undo_batch(uow: UnitOfWork, lease: Lease) -> bool:
    bulk = uow.session.get(BulkAction, lease.subject_id)
    if bulk is None:
        raise JobCancelled
    locks.lock_list(uow, bulk.list_id)
    room, owner_id = None, bulk.user_id
    if bulk.action == BulkActionKind.REMOVE:
        room = quotas.hold(uow, owner_id, PlanQuota.MEMBERS)
    with uow.session.begin_nested() as tried:
        (restored, made_active), last = batches.take_back(uow, bulk)
        is_too_many = room is not None and made_active > max(room, 0)
        if is_too_many:
            tried.rollback()
    if is_too_many:
        if not room or room < 0:
            raise quotas.exceeded(uow, owner_id, PlanQuota.MEMBERS)
        # As many as there is room for.
        (restored, _), last = batches.take_back(uow, bulk, most=room)
    if last is None:
        kept = bulk.changed - bulk.undone
        complete_job(uow, lease, {"bulk_id": bulk.id, "undone": bulk.undone, "kept": kept})
        bulk.undone_at = func.now()
        _end_undo(uow, bulk, lease.job_id, JobStatus.SUCCEEDED)
        return True
    # The job first, then the action: the order in which a transaction that ends a job locks them.
    record_progress(uow, lease, done=bulk.undone + restored, total=bulk.changed)
    bulk.undone += restored
    bulk.undo_reached_id = last
    return False


# The earlier values are kept for this long after they were written, which is after `created_at`.
BULK_UNDO_TIME = timedelta(days=90)


def get(uow: UnitOfWork, caller: Caller, bulk_id: int, *, lock: bool = False) -> BulkAction:
    """Return a bulk action of the caller; raises ``bulk.not_found``."""
    query = select(BulkAction).where(BulkAction.id == bulk_id, BulkAction.user_id == caller.user_id)
    locked = query.with_for_update().execution_options(populate_existing=True)
    found = uow.session.scalar(locked if lock else query)
    if found is None:
        raise BULK_NOT_FOUND()
    return found


def of_ids(uow: UnitOfWork, caller: Caller, ids: Sequence[int]) -> Sequence[BulkAction]:
    """Return those of these bulk actions that are the caller's."""
    query = select(BulkAction).where(BulkAction.user_id == caller.user_id, BulkAction.id.in_(ids))
    return uow.session.scalars(query).all()


def list_of(
    uow: UnitOfWork, caller: Caller, wanted: PageRequest, *, list_id: int
) -> PageOfRows[BulkAction]:
    """The caller's acts on one list, newest first. Raises ``cursor.invalid``."""
    own = BulkAction.list_id == list_id, BulkAction.user_id == caller.user_id
    query = paging.by_id(select(BulkAction).where(*own), BulkAction.id, wanted)
    return paging.read(uow, query, wanted)


def job_of(uow: UnitOfWork, bulk: BulkAction) -> Job | None:
    """The job that does the action; ``None`` once it has ended."""
    return records.find_unfinished_job(uow, bulk.user_id, [CHANGE_MEMBERS], bulk.id)


def undo_until(bulk: BulkAction) -> datetime | None:
    """Until when the action can be undone; ``None`` while it runs, and after its undo."""
    if bulk.finished_at is None or bulk.undone_at is not None:
        return None
    return bulk.created_at + BULK_UNDO_TIME


_OF_TAG = (BulkActionKind.TAG, BulkActionKind.UNTAG)


@dataclass(frozen=True)
class BulkOrder:
    """An action on members, and its value.

    Attributes:
        value: the tag's name, or the tier; other actions have none.
    """

    action: BulkActionKind
    value: str | None = None


def check(order: BulkOrder) -> BulkOrder:
    """The order with its value as it is stored; raises ``bulk.value``."""
    if order.action in _OF_TAG:
        try:
            return BulkOrder(order.action, tags.normalise_tag(order.value or ""))
        except ValueRefused as error:
            raise BULK_VALUE(rule=f"the name of a tag {error}") from None
    if order.action is BulkActionKind.SET_TYPE:
        if order.value not in [*Tier]:
            raise BULK_VALUE(rule=f"{order.action} takes one of {', '.join(Tier)}")
    elif order.value is not None:
        raise BULK_VALUE(rule=f"{order.action} takes no value")
    return order


def begin(
    uow: UnitOfWork,
    mailing_list: MailingList,
    kept: Mapping[str, Any],
    order: BulkOrder,
    *,
    caller: Caller,
) -> Job:
    """Have the members changed who fit the filter; ``check`` gives the order.

    Raises ``quota.exceeded``; for a removal ``auth.login_again``; for a new tag ``tag.too_many``
    and ``list.busy``.
    """
    if order.action is BulkActionKind.REMOVE:
        require_recent_login(uow, caller)
    owner_id = mailing_list.user_id
    quotas.require(uow, owner_id, PlanQuota.UNFINISHED_JOBS)
    quotas.require(uow, owner_id, PlanQuota.STORAGE_MB, more=quotas.row_bytes(kept))
    bulk = BulkAction(
        list_id=mailing_list.id, user_id=owner_id, filter=dict(kept), action=order.action
    )
    if order.action is BulkActionKind.SET_TYPE:
        bulk.type = order.value
    elif order.value is not None:
        makes = order.action is BulkActionKind.TAG
        # Another transaction may make or delete the same tag just now.
        with locks.waiting_briefly(uow):
            found = tags.find_tag_ids(uow, mailing_list.id, [order.value], make=makes, hold=True)
        # No tag has the id 0, so nothing is taken off where the list has no such tag.
        bulk.tag_id = found.get(order.value, 0)
    uow.session.add(bulk)
    uow.session.flush()
    return enqueue_job(uow, CHANGE_MEMBERS, user_id=owner_id, subject_id=bulk.id)


def undo(uow: UnitOfWork, caller: Caller, bulk_id: int) -> int | None:
    """The job that undoes a bulk action: one job until the undo is done, then ``None``.

    A failed or cancelled job is started again. Raises ``bulk.not_found``, ``bulk.running``,
    ``bulk.undo_over``.
    """
    # The job before the action, as a transaction that takes a batch back locks them.
    job_id = get(uow, caller, bulk_id).undo_job_id
    job = uow.session.get(Job, job_id, with_for_update=True) if job_id else None
    bulk = get(uow, caller, bulk_id, lock=True)
    if bulk.status == JobStatus.RUNNING:
        raise BULK_RUNNING()
    if bulk.undone_at is not None:
        return None
    if bulk.undo_job_id != job_id:
        # Another call began the undo just now.
        return bulk.undo_job_id
    goes_on = job is not None and job.finished_at is None
    # By the database's clock, as what an undo needs is deleted by it.
    is_offered = select(BulkAction.created_at > func.now() - BULK_UNDO_TIME)
    if not (goes_on or uow.session.scalar(is_offered.where(BulkAction.id == bulk.id))):
        raise BULK_UNDO_OVER(days=BULK_UNDO_TIME.days)
    if job is None:
        job = enqueue_job(
            uow,
            UNDO_BULK_ACTION,
            user_id=caller.user_id,
            subject_id=bulk.id,
            total=bulk.changed,
        )
        bulk.undo_job_id = job.id
    elif job.status in (JobStatus.FAILED, JobStatus.CANCELLED):
        records.retry_locked_job(uow, job)
    return job.id
