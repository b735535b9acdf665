"""A person's own acts on their subscription: leave, undo the leaving, switch the mail off or on.

Only the person may do these, so each writes or lifts an opt-out. They work without a subscription
too: a person who was removed from a list, or was never on it, may opt out for the future. A trace
id of a person who was erased since changes nothing, and is not an error.
"""

from core.keyring import Keyring
from models import MailingList, OptOutKind, SubscriptionStatus, User
from services.mailing.subscriptions import changes, locks, opt_outs
from services.mailing.subscriptions.changes import Actor
from storage.unit_of_work import UnitOfWork

_CAN_LEAVE = (SubscriptionStatus.PENDING, SubscriptionStatus.ACTIVE)


def leave(
    uow: UnitOfWork, keyring: Keyring, mailing_list: MailingList, person: User, actor: Actor
) -> None:
    """Unsubscribe the person; only they themselves can bring them back."""
    if not locks.lock_pair(uow, person.id, mailing_list.id):
        return
    opt_outs.record(uow, keyring, mailing_list.id, person, kind=OptOutKind.LIST, source=actor.via)
    record = changes.find(uow, mailing_list.id, person.id)
    if record is not None and record.status in _CAN_LEAVE:
        changes.change(uow, record, "unsubscribed", actor, status=SubscriptionStatus.UNSUBSCRIBED)


def undo_leave(
    uow: UnitOfWork, keyring: Keyring, mailing_list: MailingList, person: User, actor: Actor
) -> None:
    """Undo the last leaving: the subscription gets back the status that it had before."""
    if not locks.lock_pair(uow, person.id, mailing_list.id):
        return
    opt_outs.lift(uow, keyring, mailing_list.id, person, OptOutKind.LIST)
    record = changes.find(uow, mailing_list.id, person.id)
    if record is not None and record.status == SubscriptionStatus.UNSUBSCRIBED:
        before = changes.status_before_leaving(uow, record)
        changes.change(uow, record, "unsubscribing_undone", actor, status=before)


def set_email(
    uow: UnitOfWork,
    keyring: Keyring,
    mailing_list: MailingList,
    person: User,
    actor: Actor,
    *,
    enabled: bool,
) -> None:
    """Switch the list's mail to this person off or on; the person stays a subscriber."""
    if not locks.lock_pair(uow, person.id, mailing_list.id):
        return
    kind = OptOutKind.EMAIL
    if enabled:
        opt_outs.lift(uow, keyring, mailing_list.id, person, kind)
    else:
        opt_outs.record(uow, keyring, mailing_list.id, person, kind=kind, source=actor.via)
    record = changes.find(uow, mailing_list.id, person.id)
    if record is not None:
        changes.switch_mail(uow, record, actor, enabled=enabled)
