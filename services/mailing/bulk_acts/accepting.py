"""Bulk acts as their owner asks for them, and for their undo."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, func, select

from core.refusals.segments import BULK_RUNNING, BULK_UNDO_OVER, BULK_VALUE
from core.settings import Settings
from core.settings.plan_quotas import PlanQuota
from models import BulkAct, BulkAction, Job, JobStatus, MailingList, Tier
from services.access import quotas
from services.access.caller import Caller
from services.jobs import outbox, records
from services.mailing.attributes import tags
from services.mailing.attributes.field_values import ValueRefused
from services.mailing.bulk_acts import bulk_records
from services.mailing.bulk_acts.acting import CHANGE_MEMBERS
from services.mailing.bulk_acts.bulk_records import BULK_UNDO_TIME
from services.mailing.bulk_acts.undoing import UNDO_BULK_ACT
from services.mailing.subscriptions import locks
from storage.unit_of_work import UnitOfWork

_OF_TAG = (BulkAction.TAG, BulkAction.UNTAG)


@dataclass(frozen=True)
class BulkOrder:
    """What is to be done to members.

    Attributes:
        value: the tag's name, or the tier; other actions have none.
    """

    action: BulkAction
    value: str | None = None


def check(order: BulkOrder) -> BulkOrder:
    """The order with its value as it is stored; raises ``bulk.value``."""
    if order.action in _OF_TAG:
        try:
            return BulkOrder(order.action, tags.read(order.value or ""))
        except ValueRefused as error:
            raise BULK_VALUE(rule=f"the name of a tag {error}") from None
    if order.action is BulkAction.SET_TYPE:
        if order.value not in [*Tier]:
            raise BULK_VALUE(rule=f"{order.action} takes one of {', '.join(Tier)}")
    elif order.value is not None:
        raise BULK_VALUE(rule=f"{order.action} takes no value")
    return order


def begin(
    uow: UnitOfWork,
    settings: Settings,
    mailing_list: MailingList,
    kept: Mapping[str, Any],
    order: BulkOrder,
    *,
    request_id: str | None,
) -> Job:
    """Have the members of the owner's list changed who fit the filter.

    Args:
        kept: the filter, as ``stored_filters`` keeps it.
        order: one that was checked.

    Raises ``quota.exceeded``; for a new tag ``tag.too_many`` and ``list.busy``.
    """
    owner_id = mailing_list.user_id
    quotas.require(uow, settings, owner_id, PlanQuota.UNFINISHED_JOBS)
    act = BulkAct(list_id=mailing_list.id, user_id=owner_id, filter=dict(kept), action=order.action)
    if order.action is BulkAction.SET_TYPE:
        act.type = order.value
    elif order.value is not None:
        makes = order.action is BulkAction.TAG
        # Another transaction may make the same tag just now.
        with locks.waiting_briefly(uow):
            found = tags.tag_ids_of(uow, mailing_list.id, [order.value], make=makes)
        # No tag has the id 0, so nothing is taken off where the list has no such tag.
        act.tag_id = found.get(order.value, 0)
    uow.session.add(act)
    uow.session.flush()
    return outbox.enqueue(
        uow, CHANGE_MEMBERS, user_id=owner_id, subject_id=act.id, request_id=request_id
    )


def undo(uow: UnitOfWork, caller: Caller, bulk_id: int, request_id: str | None) -> int | None:
    """The job that undoes an act: one job until the undo is done, then ``None``.

    A failed or cancelled job is started again. Raises ``bulk.not_found``, ``bulk.running``,
    ``bulk.undo_over``.
    """
    # The job before the act, as a transaction that takes a batch back locks them.
    job_id = bulk_records.get(uow, caller, bulk_id).undo_job_id
    job = uow.session.get(Job, job_id, with_for_update=True) if job_id else None
    act = bulk_records.get(uow, caller, bulk_id, lock=True)
    if act.status == JobStatus.RUNNING:
        raise BULK_RUNNING()
    if act.undone_at is not None:
        return None
    if act.undo_job_id != job_id:
        # Another call began the undo just now.
        return act.undo_job_id
    goes_on = job is not None and job.finished_at is None
    # By the database's clock, as what an undo needs is deleted by it.
    if not goes_on and not uow.session.scalar(_IS_OFFERED, {"bulk_id": act.id}):
        raise BULK_UNDO_OVER(days=BULK_UNDO_TIME.days)
    if job is None:
        job = outbox.enqueue(
            uow,
            UNDO_BULK_ACT,
            user_id=caller.user_id,
            subject_id=act.id,
            request_id=request_id,
            total=act.changed,
        )
        act.undo_job_id = job.id
    elif job.status in (JobStatus.FAILED, JobStatus.CANCELLED):
        records.restart(uow, job)
    return job.id


_IS_OFFERED = select(BulkAct.created_at > func.now() - BULK_UNDO_TIME).where(
    BulkAct.id == bindparam("bulk_id")
)
