"""Signs people up for a list: by a public request, a login, or a mailed confirmation."""

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
from services.subscriptions.members import changes, locks, mails, opt_out_checks, opt_outs
from services.subscriptions.members.changes import Actor, Via
from services.subscriptions.members.locks import LockedSubscription, lock_subscription
from storage.unit_of_work import UnitOfWork

# A stranger can enter any address. The limit protects its owner from many mails.
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
    """Subscribe an address at the request of an unauthenticated person; raises ``email.invalid``.

    The subscription stays pending until the person confirms a mailed token, if the list requires
    confirmation. This always applies to a person who opted out of the list. It also applies to a
    person with an earlier record, because the owner may have removed them. The limits of
    unsolicited mail apply to the mail. The person's other answers are stored in a new record, or
    with the token. Nothing happens for an address on a deny list.
    """
    email = email_addresses.normalise_address(email)
    if deny_lists.find_denied(uow, mailing_list.user_id, [email]):
        return
    locks.lock_list_shared(uow, mailing_list.id)
    locked = None
    while locked is None:
        # If the person was erased meanwhile, the address now belongs to a new person.
        locked = lock_subscription(uow, mailing_list, accounts.find_or_create_person(uow, email))
    if locked.is_active or deny_lists.find_denied(uow, mailing_list.user_id, locked.addresses):
        return
    opted_out = opt_out_checks.find_opt_outs(uow, mailing_list.id, locked.person)
    is_known = locked.record is not None
    must_confirm = mailing_list.confirm_required or bool(opted_out) or is_known
    status = SubscriptionStatus.PENDING if must_confirm else SubscriptionStatus.ACTIVE
    # For a known person, the confirmation enables mail and stores the submitted values.
    values: dict[str, Any] = {}
    if not is_known:
        values = {**submission.columns, "email_enabled": OptOutKind.EMAIL not in opted_out}
    record = _write(uow, locked, "requested", actor, status=status, **values)
    if must_confirm:
        source = unsolicited_mail.source_digest(uow.settings.keyring, actor.ip)
        bounds = unsolicited_mail.choose_bounds(
            uow.settings, source, email=email, list_id=mailing_list.id
        )
        waiting = submission.waiting if is_known else None
        _mail_confirmation(uow, record, actor, bounds, waiting)


def _mail_confirmation(
    uow: UnitOfWork,
    record: Subscription,
    actor: Actor,
    bounds: Sequence[MailBound],
    waiting: dict[str, Any] | None,
) -> None:
    """Enqueue the mail of a token, and store the values that its confirmation sets."""
    asked_at = record.confirmation_asked_at
    if asked_at and clock.now() - asked_at < MIN_CONFIRMATION_INTERVAL:
        return
    if unsolicited_mail.admit_mail(uow, bounds):
        # The person is reminded only once, a day after the last mail.
        if asked_at is None or record.remind_at is not None:
            record.remind_at = func.now() + mails.REMINDER_DELAY
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
    """Subscribe a person who is logged in, and lift their opt-outs.

    Returns 1, or 0 if nothing changed. Raises ``member.denied``, ``list.busy``.
    """
    locked = lock_subscription(uow, mailing_list, person)
    if locked is None:
        raise USER_NOT_FOUND()
    values = member_attributes.confirmed(
        uow, mailing_list.user_id, locked.record, submission.waiting
    )
    if locked.is_active:
        assert locked.record is not None
        changes.confirm_imported_subscription(uow, locked.record, actor)
        return int(changes.change_record(uow, locked.record, "edited", actor, **values))
    deny_lists.require_allowed(uow, mailing_list.user_id, locked.addresses)
    _activate(uow, locked, "subscribed", actor, **values)
    return 1


@dataclass(frozen=True)
class Confirmation:
    """The subscription of a mailed token, which is pending or already confirmed."""

    mailing_list: MailingList
    record: Subscription

    @property
    def is_confirmed(self) -> bool:
        return self.record.status == SubscriptionStatus.ACTIVE


def read_confirmation(uow: UnitOfWork, secret: str) -> Confirmation:
    """Return the subscription that ``confirm_subscription`` would confirm.

    Raises the errors of ``confirm_subscription``, except ``member.denied``.
    """
    opened, mailing_list, user_id = _open(uow, secret)
    record = _confirmable(changes.find_record(uow, mailing_list.id, user_id))
    confirmation = Confirmation(mailing_list, record)
    if opened.used_at is not None and not confirmation.is_confirmed:
        raise LINK_USED()
    return confirmation


def confirm_subscription(uow: UnitOfWork, secret: str, actor: Actor) -> Subscription:
    """Confirm a subscription with its mailed token; a second confirmation changes nothing.

    Raises ``link.invalid`` for a forged or expired token, ``link.used`` for a used token if the
    subscription is pending again, ``subscription.not_pending``, ``list.not_found``,
    ``member.denied``.
    """
    opened, mailing_list, user_id = _open(uow, secret)
    locked = lock_subscription(uow, mailing_list, accounts.get_user(uow, user_id))
    if locked is None:
        raise LINK_INVALID()
    record = _confirmable(locked.record)
    if locked.is_active:
        changes.confirm_imported_subscription(uow, record, actor)
        return record
    deny_lists.require_allowed(uow, mailing_list.user_id, locked.addresses)
    mailed_tokens.use_token(uow, opened)
    values = member_attributes.confirmed(uow, mailing_list.user_id, record, opened.submitted)
    confirmed = _activate(uow, locked, "confirmed", actor, **values)
    mails.enqueue_mail(uow, mails.MAIL_WELCOME, confirmed)
    return confirmed


def _open(uow: UnitOfWork, secret: str) -> tuple[MailedLink, MailingList, int]:
    """Return the mailed token, its list and the id of its person."""
    opened = mailed_tokens.read_token(uow, Purpose.CONFIRM_SUBSCRIPTION, secret)
    assert opened.list_id is not None
    assert opened.user_id is not None
    return opened, lists.get_list(uow, opened.list_id), opened.user_id


def _confirmable(record: Subscription | None) -> Subscription:
    if record is None or record.status not in _CONFIRMABLE:
        raise SUBSCRIPTION_NOT_PENDING()
    return record


def _activate(
    uow: UnitOfWork,
    locked: LockedSubscription,
    action: str,
    actor: Actor,
    **values: Any,
) -> Subscription:
    """Activate the subscription by an act of the person, and enable its mail.

    ``values``: columns that the same act sets.
    """
    kinds = (OptOutKind.LIST, OptOutKind.EMAIL)
    opt_outs.lift_opt_outs(uow, locked.mailing_list.id, locked.person, *kinds)
    active = SubscriptionStatus.ACTIVE
    return _write(uow, locked, action, actor, status=active, email_enabled=True, **values)


def _write(
    uow: UnitOfWork, locked: LockedSubscription, action: str, actor: Actor, **values: Any
) -> Subscription:
    if locked.record is not None:
        changes.change_record(uow, locked.record, action, actor, **values)
        return locked.record
    # A stranger's request must not reveal the name on the person's account to the list's owner.
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
    """Make the mailed token confirm the subscription to another list instead."""
    moved = mailed_tokens.move_tokens_to_list(
        uow, user_id=leaving.user_id, list_id=leaving.list_id, to_list_id=there.list_id
    )
    # If the mail is not sent yet, no token exists. Its job will then find no pending record.
    if not moved and there.status == SubscriptionStatus.PENDING:
        mails.enqueue_mail(uow, mails.MAIL_CONFIRMATION, there)
