"""The job of a bulk act."""

from functools import partial

from sqlalchemy import func

from core.lanes import Lane
from core.scopes import Scope
from models import BulkAct, Job, JobStatus, SubscriptionStatus
from services.feed.announcing import announce
from services.feed.catalogue import FeedEventType
from services.jobs import kinds
from services.jobs import lease as leases
from services.jobs.lease import JobCancelled, Lease
from services.mailing import lists, subscriber_counts
from services.mailing.bulk_acts import member_batches
from services.mailing.imports.turns import work_in_turns
from services.mailing.segments import stored_filters
from services.mailing.subscriptions import locks
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork


def _end_with_job(uow: UnitOfWork, job: Job) -> None:
    """End the act with its job. What it changed stays, and can be undone."""
    act = uow.session.get(BulkAct, job.subject_id)
    if act is not None:
        _end(uow, act, job.id, job.status)


def _go_on_with_job(uow: UnitOfWork, job: Job) -> bool:
    """Go on with an act that failed, unless its undo was asked for."""
    # Locked, as by who asks for its undo: of the two at the same time one finds the other.
    act = uow.session.get(BulkAct, job.subject_id, with_for_update=True, populate_existing=True)
    if act is None or act.undo_job_id is not None:
        return False
    act.status, act.finished_at = JobStatus.RUNNING, None
    return True


CHANGE_MEMBERS = kinds.register(
    kinds.JobKind(
        name="members.bulk",
        lane=Lane.BULK,
        scope=Scope.SUBSCRIPTION_FULL,
        retryable=True,
        on_abandoned=_end_with_job,
        on_restarted=_go_on_with_job,
    )
)


def run(resources: Resources, lease: Lease) -> None:
    """Change batches of members for one turn.

    Raises ``list.not_found`` for a list that was archived, ``segment.field_retired`` and
    ``filter.invalid`` for a filter that is none any more.
    """
    work_in_turns(resources, lease, partial(_take_step, lease=lease))


def _take_step(uow: UnitOfWork, lease: Lease) -> bool:
    act = uow.session.get(BulkAct, lease.subject_id)
    if act is None:
        raise JobCancelled
    wanted = stored_filters.read(uow, lists.get(uow, act.list_id), act.filter)
    locks.lock_list(uow, act.list_id)
    statuses = wanted.statuses()
    batch = member_batches.next_batch(uow, act, statuses)
    if batch is None:
        counts = {"bulk_id": act.id, "matched": act.matched, "changed": act.changed}
        leases.succeed(uow, lease, counts)
        _end(uow, act, lease.job_id, JobStatus.SUCCEEDED)
        return True
    total = None
    if not act.seen and statuses == (SubscriptionStatus.ACTIVE,):
        total = subscriber_counts.count_subscribers(uow, [act.list_id])[act.list_id]
    matched, changed = member_batches.apply(uow, act, batch, wanted.condition())
    # The job first, then the act: the order in which a transaction that ends both locks them.
    leases.progress(uow, lease, done=act.seen + batch.seen, total=total)
    act.reached_status, act.reached_id = batch.status, batch.last
    act.seen += batch.seen
    act.matched += matched
    act.changed += changed
    return False


def _end(uow: UnitOfWork, act: BulkAct, job_id: int, status: str) -> None:
    act.status, act.finished_at = status, func.now()
    announce(
        uow,
        act.user_id,
        FeedEventType.BULK_ENDED,
        list_id=act.list_id,
        status=status,
        job_id=job_id,
        action=act.action,
        bulk_id=act.id,
        changed=act.changed,
        kept=act.matched - act.changed,
    )
