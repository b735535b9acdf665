"""A person's own acts on their subscription: leave, undo the leaving, switch the mail off or on.

Only the person may do these, so each writes or lifts an opt-out. They work without a subscription
too: a person who was removed from a list, or was never on it, may opt out for the future. A trace
id of a person who was erased since changes nothing, and is not an error.
"""

from datetime import timedelta

from sqlalchemy import select

from core.errors import DomainError, TransientError
from core.keyring import Keyring
from core.lanes import Lane
from core.refusals.mailing import LIST_BUSY
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
from services.jobs import kinds, outbox
from services.jobs import lease as leases
from services.jobs.kinds import JobKind
from services.jobs.lease import Lease
from services.mailing.subscriptions import changes, locks, opt_outs
from services.mailing.subscriptions.changes import Actor, ActorKind, Via
from services.people import accounts
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

_CAN_LEAVE = (SubscriptionStatus.PENDING, SubscriptionStatus.ACTIVE)

# Settles a record whose list was held by a bulk act when its person opted out. No user sees it.
FOLLOW_OPT_OUT = kinds.register(
    JobKind(
        name="opt_out.follow",
        # Not behind the bulk work that holds the list.
        lane=Lane.UPKEEP,
        scope=Scope.SUBSCRIPTION_FULL,
        retryable=True,
        # No outage is longer: a person's no is not given up.
        patience=timedelta(days=365),
    )
)


def opt_out(
    resources: Resources, mailing_list: MailingList, person: User, kind: OptOutKind, actor: Actor
) -> None:
    """The person leaves the list or switches its mail off, whatever holds the list.

    The opt-out is committed when this returns, and all that is sent or shown from then on obeys it.
    If a bulk act holds the list, the record follows once it is over, by a job.
    """
    keyring = resources.keyring
    try:
        with resources.unit_of_work() as uow:
            if kind is OptOutKind.LIST:
                leave(uow, keyring, mailing_list, person, actor, wait=False)
            else:
                set_email(uow, keyring, mailing_list, person, actor, enabled=False, wait=False)
    except DomainError as error:
        if error.code != LIST_BUSY.code:
            raise
        with resources.unit_of_work() as uow:
            leaver = accounts.whose(uow, person.id) or person
            if not locks.share_person(uow, leaver.id):
                return
            found = opt_outs.record_again(
                uow, keyring, mailing_list.id, leaver, kind=kind, source=actor.via
            )
            outbox.enqueue(
                uow, FOLLOW_OPT_OUT, user_id=None, subject_id=found, request_id=actor.request_id
            )


def follow(resources: Resources, lease: Lease) -> None:
    """Settle the record of an opt-out, unless its person has taken it back or was erased."""
    with resources.unit_of_work() as uow:
        found = uow.session.get(OptOut, lease.subject_id)
        if found is not None and found.user_id is not None:
            via = Via(found.source)
            actor = Actor(ActorKind.USER, via, user_id=found.user_id, request_id=lease.request_id)
            try:
                locks.lock_pair(uow, found.user_id, found.list_id)
            except DomainError as error:
                raise TransientError(error.code) from error
            record = changes.find(uow, found.list_id, found.user_id)
            if record is not None:
                opt_outs.settle(uow, record, actor)
        leases.succeed(uow, lease, {})


def leave(
    uow: UnitOfWork,
    keyring: Keyring,
    mailing_list: MailingList,
    person: User,
    actor: Actor,
    *,
    wait: bool = True,
) -> None:
    """Unsubscribe the person; only they themselves can bring them back. Raises ``list.busy``."""
    leaver = _locked(uow, mailing_list, person, wait=wait)
    if leaver is None:
        return
    opt_outs.record(uow, keyring, mailing_list.id, leaver, kind=OptOutKind.LIST, source=actor.via)
    record = changes.find(uow, mailing_list.id, leaver.id)
    if record is not None and record.status in _CAN_LEAVE:
        changes.change(uow, record, "unsubscribed", actor, status=SubscriptionStatus.UNSUBSCRIBED)


def _locked(uow: UnitOfWork, mailing_list: MailingList, person: User, *, wait: bool) -> User | None:
    """The person under the pair's lock, or whose their record became at this moment.

    ``None`` for a person who was erased. Raises ``list.busy``.
    """
    with uow.session.begin_nested() as by_own_record:
        if locks.lock_pair(uow, person.id, mailing_list.id, wait_for_lists=wait):
            return person
        # The merge locks both pairs in an order of its own: this one is not held while the other
        # is waited for.
        by_own_record.rollback()
    found = accounts.whose(uow, person.id)
    if found is None or not locks.lock_pair(uow, found.id, mailing_list.id, wait_for_lists=wait):
        return None
    return found


def undo_leave(
    uow: UnitOfWork, keyring: Keyring, mailing_list: MailingList, person: User, actor: Actor
) -> None:
    """Undo the last leaving: the subscription gets back the status that it had before."""
    if not locks.lock_pair(uow, person.id, mailing_list.id):
        return
    opt_outs.lift(uow, keyring, mailing_list.id, person, OptOutKind.LIST)
    record = changes.find(uow, mailing_list.id, person.id)
    if record is not None and record.status == SubscriptionStatus.UNSUBSCRIBED:
        before = _status_before_leaving(uow, record)
        changes.change(uow, record, "unsubscribing_undone", actor, status=before)


def _status_before_leaving(uow: UnitOfWork, subscription: Subscription) -> SubscriptionStatus:
    """The status that a person who left gets back when they undo it: pending, or else active."""
    left_from = uow.session.scalar(
        select(SubscriptionEvent.status_before)
        .where(
            SubscriptionEvent.list_id == subscription.list_id,
            SubscriptionEvent.user_id == subscription.user_id,
            SubscriptionEvent.status_after == SubscriptionStatus.UNSUBSCRIBED,
            SubscriptionEvent.status_before.is_distinct_from(SubscriptionStatus.UNSUBSCRIBED),
        )
        .order_by(SubscriptionEvent.id.desc())
        .limit(1)
    )
    # A person who left another list and was transferred here has no earlier status on this list.
    if left_from == SubscriptionStatus.PENDING:
        return SubscriptionStatus.PENDING
    return SubscriptionStatus.ACTIVE


def set_email(
    uow: UnitOfWork,
    keyring: Keyring,
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
    found = _locked(uow, mailing_list, person, wait=wait)
    if found is None:
        return
    kind = OptOutKind.EMAIL
    if enabled:
        opt_outs.lift(uow, keyring, mailing_list.id, found, kind)
    else:
        opt_outs.record(uow, keyring, mailing_list.id, found, kind=kind, source=actor.via)
    record = changes.find(uow, mailing_list.id, found.id)
    if record is not None:
        changes.switch_mail(uow, record, actor, enabled=enabled)
