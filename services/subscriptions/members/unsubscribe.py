"""A person's own acts on their subscription: leave, undo the leaving, switch the mail off or on.

Only the person may do these, so each writes or lifts an opt-out. They work without a subscription
too: a person who was removed from a list, or was never on it, may opt out for the future. A trace
id of a person who was erased since changes nothing, and is not an error.
"""

from datetime import timedelta

from sqlalchemy import func, or_, select

from core.errors import DomainError, TransientError
from core.errors.mailing import LIST_BUSY
from core.queues import Queue
from core.scopes import Scope
from models import (
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
from services.jobs.outbox import enqueue_job
from services.jobs.transitions import complete_job
from services.subscriptions import deny_lists
from services.subscriptions.members import changes, locks, opt_out_checks, opt_outs
from services.subscriptions.members.changes import Actor, ActorKind, Via
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

_CAN_LEAVE = (SubscriptionStatus.PENDING, SubscriptionStatus.ACTIVE)


def opt_out(
    resources: Resources, mailing_list: MailingList, person: User, kind: OptOutKind, actor: Actor
) -> None:
    """The person leaves the list or switches its mail off, whatever holds the list.

    The opt-out is committed when this returns, and all that is sent or shown from then on obeys it.
    If a bulk action holds the list, the record follows once it is over, by a job.
    """
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
            if not locks.share_person(uow, person.id):
                return
            found = opt_outs.record_again(uow, mailing_list.id, person, kind=kind, source=actor.via)
            enqueue_job(uow, FOLLOW_OPT_OUT, user_id=None, subject_id=found)


def follow_all(uow: UnitOfWork, user_id: int) -> None:
    """Have a job settle each record that is behind its person's opt-outs."""
    behind = or_(opt_out_checks.HAS_LEFT, opt_out_checks.HAS_NO_MAIL)
    query = select(Subscription.list_id).where(Subscription.user_id == user_id, behind)
    list_ids = uow.session.scalars(query).all()
    of_lists = OptOut.user_id == user_id, OptOut.list_id.in_(list_ids)
    # The one of a list settles it all.
    ids = select(func.min(OptOut.id)).where(*of_lists).group_by(OptOut.list_id)
    for found in uow.session.scalars(ids).all():
        enqueue_job(uow, FOLLOW_OPT_OUT, user_id=None, subject_id=found)


def follow_opt_outs(resources: Resources, lease: Lease) -> None:
    """Settle the record of an opt-out, unless its person has taken it back or was erased."""
    with resources.unit_of_work() as uow:
        found = uow.session.get(OptOut, lease.subject_id)
        if found is not None and found.user_id is not None:
            # An import keeps why: a bounce, say.
            via = Via(found.source) if found.source in set(Via) else Via.IMPORT
            actor = Actor(ActorKind.USER, via, user_id=found.user_id)
            try:
                locks.lock_pair(uow, found.user_id, found.list_id)
            except DomainError as error:
                raise TransientError(error.code) from error
            record = changes.find_record(uow, found.list_id, found.user_id)
            if record is not None:
                opt_outs.settle_opt_outs(uow, record, actor)
        complete_job(uow, lease, {})


# No user sees it.
FOLLOW_OPT_OUT = register_kind(
    JobKind(
        "opt_out.follow",
        Queue.MAINTENANCE,  # not behind the bulk work that holds the list
        Scope.SUBSCRIPTION_FULL,
        retryable=True,
        run=follow_opt_outs,
        # No outage is longer: a person's no is not given up.
        patience=timedelta(days=365),
    )
)


def unsubscribe_member(
    uow: UnitOfWork,
    mailing_list: MailingList,
    person: User,
    actor: Actor,
    *,
    wait: bool = True,
) -> None:
    """Unsubscribe the person; only they themselves can bring them back. Raises ``list.busy``."""
    if not locks.lock_pair(uow, person.id, mailing_list.id, wait_for_lists=wait):
        return
    opt_outs.record_opt_out(uow, mailing_list.id, person, kind=OptOutKind.LIST, source=actor.via)
    record = changes.find_record(uow, mailing_list.id, person.id)
    if record is not None and record.status in _CAN_LEAVE:
        changes.change_record(
            uow, record, "unsubscribed", actor, status=SubscriptionStatus.UNSUBSCRIBED
        )


def undo_leave(uow: UnitOfWork, mailing_list: MailingList, person: User, actor: Actor) -> None:
    """Undo the last unsubscription, and restore the status that the subscription had before.

    Raises ``member.denied`` if the person is on a deny list and would become a member again.
    """
    if not locks.lock_pair(uow, person.id, mailing_list.id):
        return
    opt_outs.lift_opt_outs(uow, mailing_list.id, person, OptOutKind.LIST)
    record = changes.find_record(uow, mailing_list.id, person.id)
    if record is not None and record.status == SubscriptionStatus.UNSUBSCRIBED:
        addresses = locks.addresses_of(person, record)
        deny_lists.require_allowed(uow, mailing_list.user_id, addresses)
        event, left = SubscriptionEvent, SubscriptionStatus.UNSUBSCRIBED
        own = event.list_id == record.list_id, event.user_id == record.user_id
        is_leaving = event.status_after == left, event.status_before.is_distinct_from(left)
        leaving = select(event.status_before).where(*own, *is_leaving).order_by(event.id.desc())
        was_pending = uow.session.scalar(leaving.limit(1)) == SubscriptionStatus.PENDING
        # A person who left another list and was transferred here has no earlier status on this one.
        before = SubscriptionStatus.PENDING if was_pending else SubscriptionStatus.ACTIVE
        changes.change_record(uow, record, "unsubscribing_undone", actor, status=before)


def set_email(
    uow: UnitOfWork,
    mailing_list: MailingList,
    person: User,
    actor: Actor,
    *,
    enabled: bool,
    wait: bool = True,
) -> None:
    """Switch the list's mail to this person off or on; the person stays a subscriber.

    Raises ``list.busy``.
    """
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
