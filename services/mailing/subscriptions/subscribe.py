from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import func

from core import clock
from core.keyring import Keyring
from core.refusals.mailing import SUBSCRIPTION_NOT_PENDING
from core.refusals.people import LINK_INVALID, LINK_USED, USER_NOT_FOUND
from models import MailingList, OptOutKind, Subscription, SubscriptionStatus, User
from services.jobs import outbox
from services.mailing import lists
from services.mailing.subscriptions import changes, locks, opt_outs
from services.mailing.subscriptions.changes import Actor, Via
from services.mailing.subscriptions.locks import LockedSubscription, lock_subscription
from services.people import accounts, mailed_tokens
from services.people.mail_jobs import mail_kind
from services.people.mailed_tokens import MailedToken, Purpose
from storage.unit_of_work import UnitOfWork

# A stranger can ask for anybody's address, so that person is not written to again and again.
MIN_CONFIRMATION_INTERVAL = timedelta(minutes=10)


MAIL_CONFIRMATION = mail_kind("subscription.mail_confirmation")
MAIL_WELCOME = mail_kind("subscription.mail_welcome")


def request(
    uow: UnitOfWork, keyring: Keyring, mailing_list: MailingList, email: str, actor: Actor
) -> None:
    """Somebody, who may be anybody, asks for this address to be subscribed.

    Where the list wants confirmation, and always for a person who opted out of it, the subscription
    stays pending until that person confirms a mailed link. Raises ``email.invalid``.
    """
    standing = _hold_standing_of_address(uow, mailing_list, accounts.normalise_email(email))
    if standing.is_active:
        return
    opted_out = opt_outs.kinds_of(uow, keyring, mailing_list.id, standing.person)
    must_confirm = mailing_list.confirm_required or bool(opted_out)
    status = SubscriptionStatus.PENDING if must_confirm else SubscriptionStatus.ACTIVE
    if standing.record is None:
        wants_mail = OptOutKind.EMAIL not in opted_out
        record = _add(uow, standing, status, "requested", actor, email_enabled=wants_mail)
    else:
        record = standing.record
        # Who subscribes asks for the mail; a confirmation switches it on when it comes.
        email_enabled = record.email_enabled if must_confirm else True
        changes.change(uow, record, "requested", actor, status=status, email_enabled=email_enabled)
    if must_confirm:
        _ask_for_confirmation(uow, record, actor)


def join(
    uow: UnitOfWork, keyring: Keyring, mailing_list: MailingList, person: User, actor: Actor
) -> int:
    """The person themselves subscribes: 1, or 0 when they had. What they opted out of is lifted."""
    standing = lock_subscription(uow, mailing_list, person)
    if standing is None:
        raise USER_NOT_FOUND()
    if standing.is_active:
        return 0
    _activate(uow, keyring, standing, "subscribed", actor)
    return 1


@dataclass(frozen=True)
class Confirmation:
    """A mailed link's subscription, which waits for it or does not need it any more."""

    mailing_list: MailingList
    record: Subscription

    @property
    def is_confirmed(self) -> bool:
        return self.record.status == SubscriptionStatus.ACTIVE


def read_confirmation(uow: UnitOfWork, keyring: Keyring, secret: str) -> Confirmation:
    """What ``confirm`` would do, without doing it; raises what that raises."""
    opened = _open(uow, keyring, secret)
    mailing_list = _list_of(uow, opened)
    record = _confirmable(changes.find(uow, mailing_list.id, _person_of(opened)))
    found = Confirmation(mailing_list, record)
    if opened.is_used and not found.is_confirmed:
        raise LINK_USED()
    return found


def confirm(uow: UnitOfWork, keyring: Keyring, secret: str, actor: Actor) -> Subscription:
    """The person confirms by the link that was mailed to them; twice does no harm.

    Raises ``link.invalid`` for one that is forged or too old, ``link.used`` for one that was used
    and is not what the subscription waits for, ``subscription.not_pending``, ``list.not_found``.
    """
    opened = _open(uow, keyring, secret)
    person = accounts.get(uow, _person_of(opened))
    standing = lock_subscription(uow, _list_of(uow, opened), person)
    if standing is None:
        raise LINK_INVALID()
    record = _confirmable(standing.record)
    if standing.is_active:
        return record
    mailed_tokens.use(uow, opened)
    confirmed = _activate(uow, keyring, standing, "confirmed", actor)
    outbox.enqueue(
        uow, MAIL_WELCOME, user_id=None, subject_id=confirmed.id, request_id=actor.request_id
    )
    return confirmed


def _open(uow: UnitOfWork, keyring: Keyring, secret: str) -> MailedToken:
    return mailed_tokens.read(uow, keyring, Purpose.CONFIRM_SUBSCRIPTION, secret)


def _list_of(uow: UnitOfWork, opened: MailedToken) -> MailingList:
    assert opened.list_id is not None
    return lists.get(uow, opened.list_id)


def _person_of(opened: MailedToken) -> int:
    assert opened.user_id is not None
    return opened.user_id


def _confirmable(record: Subscription | None) -> Subscription:
    if record is None or record.status not in _CONFIRMABLE:
        raise SUBSCRIPTION_NOT_PENDING()
    return record


_CONFIRMABLE = (SubscriptionStatus.PENDING, SubscriptionStatus.ACTIVE)


def _hold_standing_of_address(
    uow: UnitOfWork, mailing_list: MailingList, email: str
) -> LockedSubscription:
    locks.lock_list_shared(uow, mailing_list.id)
    while True:
        standing = lock_subscription(uow, mailing_list, accounts.find_or_create_person(uow, email))
        # Whoever was erased meanwhile has let go of the address, which is a stranger's now.
        if standing is not None:
            return standing


def _activate(
    uow: UnitOfWork, keyring: Keyring, standing: LockedSubscription, action: str, actor: Actor
) -> Subscription:
    """By the person's own act: who comes back wants the mail too."""
    opt_outs.lift(
        uow,
        keyring,
        standing.mailing_list.id,
        standing.person,
        OptOutKind.LIST,
        OptOutKind.EMAIL,
    )
    if standing.record is None:
        return _add(uow, standing, SubscriptionStatus.ACTIVE, action, actor, email_enabled=True)
    active = {"status": SubscriptionStatus.ACTIVE, "email_enabled": True}
    changes.change(uow, standing.record, action, actor, **active)
    return standing.record


def _add(
    uow: UnitOfWork,
    standing: LockedSubscription,
    status: SubscriptionStatus,
    action: str,
    actor: Actor,
    *,
    email_enabled: bool,
) -> Subscription:
    # Somebody else's asking must not tell the list's owner what the person calls themselves.
    name = standing.person.name if actor.via is Via.LOGIN else None
    record = Subscription(
        list_id=standing.mailing_list.id,
        user_id=standing.person.id,
        status=status,
        email=standing.person.email,
        name=name,
        email_enabled=email_enabled,
        source=actor.via,
    )
    return changes.add(uow, record, action, actor)


def _ask_for_confirmation(uow: UnitOfWork, subscription: Subscription, actor: Actor) -> None:
    asked = subscription.confirmation_asked_at
    if asked is not None and clock.now() - asked < MIN_CONFIRMATION_INTERVAL:
        return
    subscription.confirmation_asked_at = func.now()
    mail_confirmation(uow, subscription, actor)


def mail_confirmation(uow: UnitOfWork, subscription: Subscription, actor: Actor) -> None:
    outbox.enqueue(
        uow,
        MAIL_CONFIRMATION,
        user_id=None,
        subject_id=subscription.id,
        request_id=actor.request_id,
    )
