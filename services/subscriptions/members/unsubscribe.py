"""Lets people unsubscribe from a list, disable a list's mail, and undo their opt-outs.

A person's opt-outs may only be stored or undone at the person's request. People without a
subscription can also opt out of a list, so that the list's owner can't add them. If the trace id
belongs to an erased person, opting out changes nothing and raises no error.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple

from sqlalchemy import delete, func, or_, select

from core.errors import DomainError, TransientError
from core.errors.mailing import LIST_BUSY
from core.ids import PersonId
from core.queues import Queue
from core.scopes import Scope
from models import (
    Job,
    JobStatus,
    MailingList,
    OptOut,
    OptOutKind,
    Subscription,
    SubscriptionEvent,
    SubscriptionStatus,
    User,
)
from services.jobs.kinds import JobKind, register_kind
from services.jobs.lease import Lease
from services.jobs.outbox import enqueue_job, enqueue_spare_jobs
from services.jobs.transitions import complete_job
from services.subscriptions import deny_lists
from services.subscriptions.members import changes, locks, opt_out_checks, opt_outs
from services.subscriptions.members.changes import Actor
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# The maximum number of opt-outs that ``follow_opt_outs`` handles in one transaction. With a higher
# maximum, ``locks.lock_members`` might have to lock a whole list.
_MAX_OPT_OUTS_PER_BATCH = 50
_CAN_LEAVE = (SubscriptionStatus.PENDING, SubscriptionStatus.ACTIVE)


def opt_out(
    resources: Resources, mailing_list: MailingList, person: User, kind: OptOutKind, actor: Actor
) -> None:
    """Store and commit an opt-out."""
    try:
        with resources.unit_of_work() as uow:
            if kind is OptOutKind.LIST:
                unsubscribe_member(uow, mailing_list, person, actor, wait=False)
            else:
                set_email(uow, mailing_list, person, actor, enabled=False, wait=False)
    except DomainError as error:
        if error.code != LIST_BUSY.code:
            raise
        with resources.unit_of_work() as uow:
            if not locks.lock_person_shared(uow, person.id):
                return
            opt_out_id = opt_outs.renew_opt_out(
                uow,
                mailing_list.id,
                person,
                kind=kind,
                source=actor.via,
                mailing_id=actor.mailing_id,
                reason=actor.reason,
            )
            enqueue_job(uow, APPLY_OPT_OUT, account_id=None, subject_id=opt_out_id)


class ReportedOptOut(NamedTuple):
    """An opt-out from a sender's report.

    ``source``: ``opt_outs.SENDER_COMPLAINT`` or ``opt_outs.SENDER_UNSUBSCRIBE``.
    """

    source: str
    mailing_id: int | None


def record_reported_opt_outs(
    uow: UnitOfWork, reported: Mapping[tuple[int, PersonId], ReportedOptOut]
) -> list[int]:
    """Store opt-outs, one job per opt-out to unsubscribe the person, and return the job ids.

    After the commit, the caller passes them to ``follow_opt_outs``, which unsubscribes the people
    at once. Opt-outs of erased people are ignored.

    ``reported``: maps pairs of a list id and a user id to opt-outs.
    """
    # Lock the rows of the people, so that nobody is erased until the transaction ends.
    query = select(User).where(
        User.id.in_({user_id for _, user_id in reported}), User.erased_at.is_(None)
    )
    query = query.order_by(User.id).with_for_update(read=True, key_share=True)
    people = {person.id: person for person in uow.session.scalars(query)}
    opt_out_ids = [
        opt_outs.renew_opt_out(
            uow,
            list_id,
            people[user_id],
            kind=OptOutKind.LIST,
            **reported[list_id, user_id]._asdict(),
        )
        for list_id, user_id in sorted(reported)
        if user_id in people
    ]
    return enqueue_spare_jobs(
        uow, APPLY_OPT_OUT, subject_ids=[each for each in opt_out_ids if each is not None]
    )


def follow_opt_outs(resources: Resources, job_ids: Sequence[int]) -> None:
    """Run the jobs of ``record_reported_opt_outs`` that no worker has claimed.

    If another transaction has locked one of the lists in a batch, all jobs of the batch are left to
    a worker.
    """
    # Optimization: several opt-outs applied in one transaction (decision 17).
    for start in range(0, len(job_ids), _MAX_OPT_OUTS_PER_BATCH):
        with suppress(TransientError), resources.unit_of_work() as uow:
            statement = delete(Job).where(
                Job.id.in_(job_ids[start : start + _MAX_OPT_OUTS_PER_BATCH]),
                Job.kind == APPLY_OPT_OUT.name,
                Job.status == JobStatus.QUEUED,
            )
            ids = uow.session.scalars(statement.returning(Job.subject_id)).all()
            query = select(OptOut).where(OptOut.id.in_(ids), OptOut.user_id.is_not(None))
            stored = uow.session.scalars(query.order_by(OptOut.id)).all()
            pairs = {(each.list_id, each.user_id) for each in stored if each.user_id is not None}
            locks.lock_members(uow, pairs, wait_for_lists=False)
            for each in stored:
                _update_member(uow, each)


def enqueue_opt_out_jobs(uow: UnitOfWork, person_id: PersonId) -> None:
    contradicts = or_(opt_out_checks.HAS_LEFT, opt_out_checks.HAS_NO_MAIL)
    query = select(Subscription.list_id).where(Subscription.user_id == person_id, contradicts)
    list_ids = uow.session.scalars(query).all()
    # Enqueue only one job per list, because the job updates the subscription according to all of
    # the person's opt-outs from that list.
    opt_out_ids = (
        select(func.min(OptOut.id))
        .where(OptOut.user_id == person_id, OptOut.list_id.in_(list_ids))
        .group_by(OptOut.list_id)
    )
    for opt_out_id in uow.session.scalars(opt_out_ids).all():
        enqueue_job(uow, APPLY_OPT_OUT, account_id=None, subject_id=opt_out_id)


def apply_opt_out(resources: Resources, lease: Lease) -> None:
    """Update the subscription of a person who opted out while a bulk action locked the list.

    Nothing changes if the person has undone the opt-out or was erased.
    """
    with resources.unit_of_work() as uow:
        stored = uow.session.get(OptOut, lease.subject_id)
        if stored is not None and stored.user_id is not None:
            try:
                locks.lock_pair(uow, stored.user_id, stored.list_id)
            except DomainError as error:
                raise TransientError(error.code) from error
            _update_member(uow, stored)
        complete_job(uow, lease, {})


# The job that updates a subscription after an opt-out belongs to no user, so that no user sees the
# job.
APPLY_OPT_OUT = register_kind(
    JobKind(
        "opt_out.follow",
        # Use the maintenance queue, because jobs may wait for a long time in the queue for bulk
        # jobs.
        Queue.MAINTENANCE,
        Scope.SUBSCRIPTION_FULL,
        permissions=None,
        retryable=True,
        run=apply_opt_out,
        # Retry the job for up to a year, so that even a long outage doesn't cause the loss of an
        # opt-out.
        patience=timedelta(days=365),
    )
)


def _update_member(uow: UnitOfWork, stored: OptOut) -> None:
    """Update a locked subscription."""
    assert stored.user_id is not None
    record = changes.find_record(uow, stored.list_id, stored.user_id)
    if record is not None:
        opt_outs.apply_opt_outs(uow, record)


def unsubscribe_member(
    uow: UnitOfWork,
    mailing_list: MailingList,
    person: User,
    actor: Actor,
    *,
    wait: bool = True,
) -> None:
    """Unsubscribe a person, and store an opt-out.

    Without ``wait``, raise ``list.busy`` immediately while a bulk action locks the list.
    """
    if not locks.lock_pair(uow, person.id, mailing_list.id, wait_for_lists=wait):
        return
    opt_outs.record_opt_out(uow, mailing_list.id, person, kind=OptOutKind.LIST, source=actor.via)
    record = changes.find_record(uow, mailing_list.id, person.id)
    if record is not None and record.status in _CAN_LEAVE:
        changes.change_record(
            uow, record, "unsubscribed", actor, status=SubscriptionStatus.UNSUBSCRIBED
        )


def undo_leave(uow: UnitOfWork, mailing_list: MailingList, person: User, actor: Actor) -> None:
    if not locks.lock_pair(uow, person.id, mailing_list.id):
        return
    opt_outs.lift_opt_outs(uow, mailing_list.id, person, OptOutKind.LIST)
    record = changes.find_record(uow, mailing_list.id, person.id)
    if record is not None and record.status == SubscriptionStatus.UNSUBSCRIBED:
        addresses = locks.collect_addresses(person, record)
        deny_lists.require_allowed(uow, mailing_list.user_id, addresses)
        status_before = _find_status_before_leaving(uow, record)
        changes.change_record(uow, record, "unsubscribing_undone", actor, status=status_before)


def _find_status_before_leaving(uow: UnitOfWork, record: Subscription) -> SubscriptionStatus:
    """Return ``active`` after a transfer if the new list's history lacks the status."""
    event = SubscriptionEvent
    unsubscribed = SubscriptionStatus.UNSUBSCRIBED
    query = (
        select(event.status_before)
        .where(
            event.list_id == record.list_id,
            event.user_id == record.user_id,
            event.status_after == unsubscribed,
            event.status_before.is_distinct_from(unsubscribed),
        )
        .order_by(event.id.desc())
        .limit(1)
    )
    was_pending = uow.session.scalar(query) == SubscriptionStatus.PENDING
    return SubscriptionStatus.PENDING if was_pending else SubscriptionStatus.ACTIVE


def set_email(
    uow: UnitOfWork,
    mailing_list: MailingList,
    person: User,
    actor: Actor,
    *,
    enabled: bool,
    wait: bool = True,
) -> None:
    """Switch mail. A database trigger (``lift_bounces.sql``) lifts bounces if mail is enabled."""
    if not locks.lock_pair(uow, person.id, mailing_list.id, wait_for_lists=wait):
        return
    kind = OptOutKind.EMAIL
    if enabled:
        opt_outs.lift_opt_outs(uow, mailing_list.id, person, kind)
    else:
        opt_outs.record_opt_out(uow, mailing_list.id, person, kind=kind, source=actor.via)
    record = changes.find_record(uow, mailing_list.id, person.id)
    if record is not None:
        changes.switch_mail(uow, record, actor, enabled=enabled)
