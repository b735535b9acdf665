"""The undo of a bulk act: each member on whom the act still holds is as before.

What the person or the owner did since stays. So do opt-outs: the undo brings no person back who
left, and switches no mail on that its reader switched off, whenever that was.
"""

from functools import partial

from sqlalchemy import func

from core.lanes import Lane
from core.scopes import Scope
from core.settings import Settings
from core.settings.plan_quotas import PlanQuota
from models import BulkAct, BulkAction, Job, JobStatus
from services.access import quotas
from services.feed.announcing import announce
from services.feed.catalogue import FeedEventType
from services.jobs import kinds
from services.jobs import lease as leases
from services.jobs.lease import JobCancelled, Lease
from services.mailing.bulk_acts import member_batches
from services.mailing.imports.turns import work_in_turns
from services.mailing.subscriptions import locks
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork


def _end_with_job(uow: UnitOfWork, job: Job) -> None:
    """Announce the end: what was taken back stays so, and asking again goes on."""
    act = uow.session.get(BulkAct, job.subject_id)
    if act is not None:
        _announce_end(uow, act, job.id, job.status)


UNDO_BULK_ACT = kinds.register(
    kinds.JobKind(
        name="members.bulk_undo",
        lane=Lane.BULK,
        scope=Scope.SUBSCRIPTION_FULL,
        retryable=True,
        on_abandoned=_end_with_job,
    )
)


def run(resources: Resources, lease: Lease) -> None:
    """Undo batches of changes for one turn.

    Raises ``quota.exceeded`` if the plan has no room for members who would come back.
    """
    work_in_turns(resources, lease, partial(_take_step, settings=resources.settings, lease=lease))


def _take_step(uow: UnitOfWork, settings: Settings, lease: Lease) -> bool:
    act = uow.session.get(BulkAct, lease.subject_id)
    if act is None:
        raise JobCancelled
    locks.lock_list(uow, act.list_id)
    room, owner_id = None, act.user_id
    if act.action == BulkAction.REMOVE:
        room = quotas.hold(uow, settings, owner_id, PlanQuota.MEMBERS)
    (restored, made_active), last = member_batches.take_back(uow, act)
    if room is not None and made_active > max(room, 0):
        raise quotas.exceeded(uow, settings, owner_id, PlanQuota.MEMBERS)
    if last is None:
        kept = act.changed - act.undone
        leases.succeed(uow, lease, {"bulk_id": act.id, "undone": act.undone, "kept": kept})
        act.undone_at = func.now()
        _announce_end(uow, act, lease.job_id, JobStatus.SUCCEEDED)
        return True
    # The job first, then the act: the order in which a transaction that ends a job locks them.
    leases.progress(uow, lease, done=act.undone + restored, total=act.changed)
    act.undone += restored
    act.undo_reached_id = last
    return False


def _announce_end(uow: UnitOfWork, act: BulkAct, job_id: int, status: str) -> None:
    announce(
        uow,
        act.user_id,
        FeedEventType.BULK_ENDED,
        list_id=act.list_id,
        status=status,
        job_id=job_id,
        action="undo_bulk",
        bulk_id=act.id,
        changed=act.undone,
        kept=act.changed - act.undone,
    )
