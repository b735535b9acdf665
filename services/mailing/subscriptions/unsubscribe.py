"""What a person says about their own subscription: no mail, no more, or yes again.

Each of these is theirs alone, so each writes or lifts an opt-out. They hold without a subscription
too: who was taken off a list, or never was on it, may say no to what comes. An old mail to somebody
who was erased since says nothing about anybody: that changes nothing, and is no error either.
"""

from core.keyring import Keyring
from models import MailingList, OptOutKind, SubscriptionStatus, User
from services.mailing.subscriptions import changes, opt_outs
from services.mailing.subscriptions.changes import Actor
from services.mailing.subscriptions.locks import lock_subscription
from storage.unit_of_work import UnitOfWork

_CAN_LEAVE = (SubscriptionStatus.PENDING, SubscriptionStatus.ACTIVE)


def leave(
    uow: UnitOfWork, keyring: Keyring, mailing_list: MailingList, person: User, actor: Actor
) -> None:
    """Unsubscribe: the person is off the list, and only they can come back."""
    standing = lock_subscription(uow, mailing_list, person)
    if standing is None:
        return
    current = standing.record
    opt_outs.record(uow, keyring, mailing_list.id, person, kind=OptOutKind.LIST, source=actor.via)
    if current is not None and current.status in _CAN_LEAVE:
        left = SubscriptionStatus.UNSUBSCRIBED
        changes.change(uow, current, "unsubscribed", actor, status=left)


def undo_leave(
    uow: UnitOfWork, keyring: Keyring, mailing_list: MailingList, person: User, actor: Actor
) -> None:
    """Take the last unsubscribing back: all is as it was before it."""
    standing = lock_subscription(uow, mailing_list, person)
    if standing is None:
        return
    current = standing.record
    opt_outs.lift(uow, keyring, mailing_list.id, person, OptOutKind.LIST)
    if current is not None and current.status == SubscriptionStatus.UNSUBSCRIBED:
        before = changes.status_before_leaving(uow, current)
        changes.change(uow, current, "unsubscribing_undone", actor, status=before)


def set_email(
    uow: UnitOfWork,
    keyring: Keyring,
    mailing_list: MailingList,
    person: User,
    actor: Actor,
    *,
    enabled: bool,
) -> None:
    """Switch the list's mail to this person off or on again; they stay a subscriber."""
    standing = lock_subscription(uow, mailing_list, person)
    if standing is None:
        return
    current = standing.record
    if enabled:
        opt_outs.lift(uow, keyring, mailing_list.id, person, OptOutKind.EMAIL)
    else:
        opt_outs.record(
            uow, keyring, mailing_list.id, person, kind=OptOutKind.EMAIL, source=actor.via
        )
    if current is not None:
        action = "email_enabled" if enabled else "email_disabled"
        changes.change(uow, current, action, actor, email_enabled=enabled)
