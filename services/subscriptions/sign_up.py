"""The ways onto a list: a public request, a login, and the confirmation of a mailed token."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import func

from core import clock
from core.errors.mailing import SUBSCRIPTION_NOT_PENDING
from core.errors.people import LINK_INVALID, LINK_USED, USER_NOT_FOUND
from models import MailedLink, MailingList, OptOutKind, Subscription, SubscriptionStatus, User
from services.accounts import accounts, email_addresses, mailed_tokens, unsolicited_mail
from services.accounts.mailed_tokens import Purpose
from services.accounts.unsolicited_mail import MailBound
from services.subscriptions import deny_lists, lists, member_attributes
from services.subscriptions.member_attributes import NOTHING, Submission
from services.subscriptions.members import changes, locks, mails, opt_outs
from services.subscriptions.members.changes import Actor, Via
from services.subscriptions.members.locks import LockedSubscription, lock_subscription
from storage.unit_of_work import UnitOfWork

# A stranger can request any address, and must not have its owner mailed again and again.
MIN_CONFIRMATION_INTERVAL = timedelta(minutes=10)
_CONFIRMABLE = (SubscriptionStatus.PENDING, SubscriptionStatus.ACTIVE)


def request_subscription(
    uow: UnitOfWork,
    mailing_list: MailingList,
    email: str,
    actor: Actor,
    *,
    submission: Submission = NOTHING,
) -> None:
    """An unauthenticated request to subscribe this address.

    The subscription stays pending until the person confirms a mailed token, if the list wants
    confirmation, and always for a person who opted out of it, or whom the list had before: their
    owner may have removed them. No token is mailed beyond the bounds of unasked mail. Other answers
    go onto a new record, or along with the token. An address on a deny list is passed over in
    silence. Raises ``email.invalid``.
    """
    email = email_addresses.normalise(email)
    if deny_lists.find_denied(uow, mailing_list.user_id, [email]):
        return
    locks.lock_list_shared(uow, mailing_list.id)
    locked = None
    while locked is None:
        # A person who was erased meanwhile no longer has the address: look it up again.
        locked = lock_subscription(uow, mailing_list, accounts.find_or_create_person(uow, email))
    if locked.is_active or deny_lists.find_denied(uow, mailing_list.user_id, locked.addresses):
        return
    opted_out = opt_outs.kinds_of(uow, mailing_list.id, locked.person)
    is_known = locked.record is not None
    must_confirm = mailing_list.confirm_required or bool(opted_out) or is_known
    status = SubscriptionStatus.PENDING if must_confirm else SubscriptionStatus.ACTIVE
    # The confirmation switches the mail of a known person on, and sets what they submitted.
    values: dict[str, Any] = {}
    if not is_known:
        values = {**submission.columns, "email_enabled": OptOutKind.EMAIL not in opted_out}
    record = _write(uow, locked, "requested", actor, status=status, **values)
    if must_confirm:
        source = unsolicited_mail.source_digest(uow.settings.keyring, actor.ip)
        bounds = unsolicited_mail.of(uow.settings, source, email=email, list_id=mailing_list.id)
        waiting = submission.waiting if is_known else None
        _mail_confirmation(uow, record, actor, bounds, waiting)


def _mail_confirmation(
    uow: UnitOfWork,
    record: Subscription,
    actor: Actor,
    bounds: Sequence[MailBound],
    waiting: dict[str, Any] | None,
) -> None:
    """Have a token mailed, which takes along what waits for the person's word."""
    asked = record.confirmation_asked_at
    if asked and clock.now() - asked < MIN_CONFIRMATION_INTERVAL:
        return
    if unsolicited_mail.admit(uow, bounds):
        # A day after the last mail, and never again once a person was reminded.
        if asked is None or record.remind_at is not None:
            record.remind_at = func.now() + mails.REMIND_AFTER
        record.confirmation_asked_at = func.now()
        record.submitted = waiting
        mails.enqueue_mail(uow, mails.MAIL_CONFIRMATION, record)


def subscribe_person(
    uow: UnitOfWork,
    mailing_list: MailingList,
    person: User,
    actor: Actor,
    *,
    submission: Submission = NOTHING,
) -> int:
    """The person subscribes themselves: 1, or 0 if they had already. Lifts their opt-outs.

    It is 1 too for a subscriber who gives a field another value. Raises ``member.denied``,
    ``list.busy``.
    """
    locked = lock_subscription(uow, mailing_list, person)
    if locked is None:
        raise USER_NOT_FOUND()
    given = member_attributes.confirmed(
        uow, mailing_list.user_id, locked.record, submission.waiting
    )
    if locked.is_active:
        assert locked.record is not None
        changes.affirm_record(uow, locked.record, actor)
        return int(changes.change_record(uow, locked.record, "edited", actor, **given))
    deny_lists.require_allowed(uow, mailing_list.user_id, locked.addresses)
    _activate(uow, locked, "subscribed", actor, **given)
    return 1


@dataclass(frozen=True)
class Confirmation:
    """The subscription of a mailed token: it waits for the token, or is confirmed already."""

    mailing_list: MailingList
    record: Subscription

    @property
    def is_confirmed(self) -> bool:
        return self.record.status == SubscriptionStatus.ACTIVE


def read_confirmation(uow: UnitOfWork, secret: str) -> Confirmation:
    """The subscription that ``confirm_subscription`` would confirm; changes nothing.

    Raises the errors of ``confirm_subscription``, except ``member.denied``.
    """
    opened, mailing_list, user_id = _open(uow, secret)
    record = _confirmable(changes.find_record(uow, mailing_list.id, user_id))
    found = Confirmation(mailing_list, record)
    if opened.used_at is not None and not found.is_confirmed:
        raise LINK_USED()
    return found


def confirm_subscription(uow: UnitOfWork, secret: str, actor: Actor) -> Subscription:
    """The person confirms by the token that was mailed to them; confirming twice does no harm.

    Raises ``link.invalid`` for a forged or expired token, ``link.used`` for a used token while the
    subscription waits for another one, ``subscription.not_pending``, ``list.not_found``,
    ``member.denied``.
    """
    opened, mailing_list, user_id = _open(uow, secret)
    locked = lock_subscription(uow, mailing_list, accounts.get(uow, user_id))
    if locked is None:
        raise LINK_INVALID()
    record = _confirmable(locked.record)
    if locked.is_active:
        changes.affirm_record(uow, record, actor)
        return record
    deny_lists.require_allowed(uow, mailing_list.user_id, locked.addresses)
    mailed_tokens.use(uow, opened)
    given = member_attributes.confirmed(uow, mailing_list.user_id, record, opened.submitted)
    confirmed = _activate(uow, locked, "confirmed", actor, **given)
    mails.enqueue_mail(uow, mails.MAIL_WELCOME, confirmed)
    return confirmed


def _open(uow: UnitOfWork, secret: str) -> tuple[MailedLink, MailingList, int]:
    """The mailed token, its list and the id of its person."""
    opened = mailed_tokens.read(uow, Purpose.CONFIRM_SUBSCRIPTION, secret)
    assert opened.list_id is not None
    assert opened.user_id is not None
    return opened, lists.get(uow, opened.list_id), opened.user_id


def _confirmable(record: Subscription | None) -> Subscription:
    if record is None or record.status not in _CONFIRMABLE:
        raise SUBSCRIPTION_NOT_PENDING()
    return record


def _activate(
    uow: UnitOfWork,
    locked: LockedSubscription,
    action: str,
    actor: Actor,
    **given: Any,
) -> Subscription:
    """Make the subscription active by the person's own act, which asks for the mail as well.

    ``given``: columns that the same act sets.
    """
    kinds = (OptOutKind.LIST, OptOutKind.EMAIL)
    opt_outs.lift_opt_outs(uow, locked.mailing_list.id, locked.person, *kinds)
    active = SubscriptionStatus.ACTIVE
    return _write(uow, locked, action, actor, status=active, email_enabled=True, **given)


def _write(
    uow: UnitOfWork, locked: LockedSubscription, action: str, actor: Actor, **values: Any
) -> Subscription:
    if locked.record is not None:
        changes.change_record(uow, locked.record, action, actor, **values)
        return locked.record
    # A stranger's request must not show the list's owner the name on the person's account.
    name = {"name": locked.person.name} if actor.via is Via.LOGIN else {}
    record = Subscription(
        list_id=locked.mailing_list.id,
        user_id=locked.person.id,
        email=locked.person.email,
        source=actor.via,
        **(values | name),
    )
    return changes.add_record(uow, record, action, actor)


def move_confirmation(
    uow: UnitOfWork, leaving: Subscription, there: Subscription, actor: Actor
) -> None:
    """Let the mailed token confirm the subscription to another list instead."""
    moved = mailed_tokens.move_to_list(
        uow, user_id=leaving.user_id, list_id=leaving.list_id, to_list_id=there.list_id
    )
    # No token exists before the mail is sent; its job then finds no pending record on the old list.
    if not moved and there.status == SubscriptionStatus.PENDING:
        mails.enqueue_mail(uow, mails.MAIL_CONFIRMATION, there)
