"""Signs people up for lists, through a public form, a login or a confirmation link."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from sqlalchemy import func
from sqlalchemy.orm.attributes import flag_modified

from core import clock
from core.errors.mailing import SUBSCRIPTION_NOT_PENDING
from core.errors.people import LINK_INVALID, LINK_USED, USER_NOT_FOUND
from core.ids import PersonId
from core.languages.reader_languages import ENGLISH
from core.settings import origins
from models import (
    EngagementMode,
    MailedLink,
    MailingList,
    OptOutKind,
    Subscription,
    SubscriptionStatus,
    User,
)
from services.accounts import accounts, email_addresses, mailed_tokens, unsolicited_mail
from services.accounts.mailed_tokens import Purpose
from services.subscriptions import deny_lists, lists, member_attributes
from services.subscriptions.consent import entries
from services.subscriptions.member_attributes import AGREED_WORDING, EMPTY_SUBMISSION, Submission
from services.subscriptions.members import (
    bounces,
    changes,
    email_offs,
    locks,
    mails,
    opt_out_checks,
    opt_outs,
)
from services.subscriptions.members.changes import Actor, ActorKind, Via
from services.subscriptions.members.engagement_choices import get_wording, record_yes
from services.subscriptions.members.locks import LockedSubscription, lock_subscription
from services.subscriptions.sign_up_fields import read_sign_up_fields
from services.subscriptions.sign_up_origins import clean_origin, read_referring_page
from storage.unit_of_work import UnitOfWork

# The minimum time between two confirmation mails for one subscription, because strangers may enter
# a person's address.
MIN_CONFIRMATION_INTERVAL = timedelta(minutes=10)
# The minimum time between two confirmation mails for a member whose mail a bounce turned off.
_MIN_BOUNCED_INTERVAL = timedelta(hours=24)
# The values of the column ``source`` for members who didn't sign up themselves.
_SOURCES_WITHOUT_SIGN_UP = ("import", "owner", "transfer")
_CONFIRMABLE_STATUSES = (SubscriptionStatus.PENDING, SubscriptionStatus.ACTIVE)


@dataclass(frozen=True)
class Visitor:
    """A person who signs up for a list without a login, and gets mails in ``language``."""

    address: str | None
    browser: str | None
    referrer: str | None
    language: str | None


def sign_up_visitor(
    uow: UnitOfWork,
    mailing_list: MailingList,
    visitor: Visitor,
    *,
    email: str,
    name: str | None,
    values: Mapping[str, object],
    origin: Mapping[str, Any],
    is_text: bool,
    page_url: str | None,
    agrees: bool,
) -> None:
    """Validate the answers in a sign-up form, and request the subscription of the address.

    Args:
        agrees: whether the visitor allows the list to record opens and clicks, which counts only if
            the list asks for consent.
        is_text: whether all answers are texts, because they come from an HTML form.
        page_url: the URL of the sign-up page, or ``None`` for a form on another site.
    """
    actor = Actor(
        ActorKind.STRANGER,
        Via.CHALLENGE if mailing_list.challenge_enabled else Via.FORM,
        ip=visitor.address,
        page_url=page_url or origins.strip_query(visitor.referrer or ""),
        browser=visitor.browser,
    )
    cleaned_origin = clean_origin(origin)
    if page_url is None and not cleaned_origin.keys() & {"referrer", "landing"}:
        # The sign-up form is on the owner's website, and no script has filled in the hidden fields
        # that say where the visitor came from.
        cleaned_origin = {**cleaned_origin, **read_referring_page(visitor.referrer)}
    sign_up_fields = read_sign_up_fields(uow, mailing_list)
    submission = member_attributes.read_submission(
        uow,
        mailing_list.user_id,
        name=name,
        values=values,
        is_text=is_text,
        required=[entry.field for entry in sign_up_fields if entry.is_required],
    )
    is_asked = mailing_list.engagement == EngagementMode.CONSENT
    submission = replace(
        submission,
        language=visitor.language,
        origin=cleaned_origin,
        agreed_wording=get_wording(mailing_list, visitor.language or ENGLISH)
        if agrees and is_asked
        else None,
    )
    request_subscription(uow, mailing_list, email, actor, submission=submission)


def request_subscription(
    uow: UnitOfWork,
    mailing_list: MailingList,
    email: str,
    actor: Actor,
    *,
    submission: Submission = EMPTY_SUBMISSION,
) -> None:
    """Sign up the person with the address ``email`` for a visitor who isn't logged in.

    If the list requires a confirmation, the subscription is pending until the person opens the link
    in a confirmation mail. A person must always confirm after an opt-out, after a bounce that
    turned mail off, or if the list already has a record of the person.

    A member whose mail a bounce turned off stays active, and gets a confirmation mail, which turns
    the mail on. Nothing changes for other active members or for addresses on a deny list.

    Rate limits apply to confirmation mails.
    """
    email = email_addresses.normalise_address(email)
    if deny_lists.find_denied(uow, mailing_list.user_id, [email]):
        return
    locks.lock_list_shared(uow, mailing_list.id)
    locked = None
    while locked is None:
        # If a concurrent transaction erases the person, repeat the loop, which creates a new person
        # with the address.
        locked = lock_subscription(uow, mailing_list, accounts.find_or_create_person(uow, email))
    if deny_lists.find_denied(uow, mailing_list.user_id, locked.addresses):
        return
    if locked.is_active:
        assert locked.record is not None
        _mail_bounced_member(uow, locked.record, email, actor.ip, submission.unconfirmed_values)
        return
    opt_out_kinds = opt_out_checks.find_opt_outs(uow, mailing_list.id, locked.person)
    has_record = locked.record is not None
    has_bounced = bounces.claim_bounces(uow, mailing_list.id, locked.person)
    must_confirm = mailing_list.confirm_required or bool(opt_out_kinds) or has_bounced or has_record
    status = SubscriptionStatus.PENDING if must_confirm else SubscriptionStatus.ACTIVE
    # Don't change an existing record before the confirmation, because a stranger may have entered
    # the address.
    values: dict[str, Any] = {}
    if not has_record:
        has_mail = OptOutKind.EMAIL not in opt_out_kinds and not has_bounced
        values = {**submission.columns, "email_enabled": has_mail}
    # If the person already has a record on the list, store the sign-up's origin only after the
    # confirmation.
    origin = None if has_record else submission.origin
    requester = replace(actor, origin=origin)
    record = _write_record(uow, locked, "requested", requester, status=status, **values)
    if must_confirm:
        unconfirmed = submission
        if not has_record:
            # The record already has all other values.
            unconfirmed = replace(EMPTY_SUBMISSION, agreed_wording=submission.agreed_wording)
        _mail_confirmation(uow, record, email, actor.ip, unconfirmed.unconfirmed_values)
    elif submission.agreed_wording:
        record_yes(uow, record, locked.person, actor, wording=submission.agreed_wording)


def repeat_confirmation_mail(
    uow: UnitOfWork, mailing_list: MailingList, email: str, ip: str | None
) -> None:
    """Mail a pending person again, unless a deny list or a rate limit forbids the mail."""
    email = email_addresses.normalise_address(email)
    person = accounts.find_user_by_email(uow, email)
    if person is None:
        return
    locked = lock_subscription(uow, mailing_list, person)
    if locked is None or locked.record is None:
        return
    is_denied = deny_lists.find_denied(uow, mailing_list.user_id, locked.addresses)
    if locked.record.status == SubscriptionStatus.PENDING and not is_denied:
        _mail_confirmation(uow, locked.record, email, ip, locked.record.submitted)


def _mail_confirmation(
    uow: UnitOfWork,
    record: Subscription,
    email: str,
    ip: str | None,
    unconfirmed_values: dict[str, Any] | None,
) -> None:
    last_mailed_at = record.confirmation_asked_at
    if last_mailed_at and clock.now() - last_mailed_at < MIN_CONFIRMATION_INTERVAL:
        return
    if _admit_confirmation(uow, record, email, ip):
        # Schedule a reminder a day after the latest confirmation mail, but don't remind a person
        # twice.
        if last_mailed_at is None or record.remind_at is not None:
            record.remind_at = func.now() + mails.REMINDER_DELAY
        record.confirmation_asked_at = func.now()
        record.submitted = unconfirmed_values
        mails.enqueue_mail(uow, mails.MAIL_CONFIRMATION, record)


def _mail_bounced_member(
    uow: UnitOfWork,
    record: Subscription,
    email: str,
    ip: str | None,
    unconfirmed_values: dict[str, Any] | None,
) -> None:
    bounce = email_offs.find_bounce(uow, record)
    if bounce is None:
        return
    last_mailed_at = record.confirmation_asked_at
    if last_mailed_at and bounce.at and last_mailed_at < bounce.at:
        # A confirmation mail from before the bounce doesn't count.
        last_mailed_at = None
    if last_mailed_at and clock.now() - last_mailed_at < _MIN_BOUNCED_INTERVAL:
        return
    if _admit_confirmation(uow, record, email, ip):
        record.confirmation_asked_at = func.now()
        record.submitted = unconfirmed_values
        # Keep ``updated_at``, because an undo of an import skips members who were changed after the
        # import, and a stranger may have entered the address.
        flag_modified(record, "updated_at")
        mails.enqueue_mail(uow, mails.MAIL_CONFIRMATION, record)


def _admit_confirmation(uow: UnitOfWork, record: Subscription, email: str, ip: str | None) -> bool:
    """Return false if the mail exceeds a rate limit."""
    source = unsolicited_mail.source_digest(uow.settings.keyring, ip)
    bounds = unsolicited_mail.choose_bounds(
        uow.settings, source, email=email, list_id=record.list_id
    )
    return unsolicited_mail.admit_mail(uow, bounds)


def subscribe_person(
    uow: UnitOfWork,
    mailing_list: MailingList,
    person: User,
    actor: Actor,
    *,
    submission: Submission = EMPTY_SUBMISSION,
) -> int:
    """Subscribe a logged-in person, delete opt-outs, and turn mail on after a bounce.

    Return 0 if nothing changed.
    """
    locked = lock_subscription(uow, mailing_list, person)
    if locked is None:
        raise USER_NOT_FOUND()
    values = member_attributes.build_confirmed_columns(
        uow, mailing_list.user_id, locked.record, submission.unconfirmed_values
    )
    if locked.is_active:
        assert locked.record is not None
        changes.confirm_imported_subscription(uow, locked.record, actor)
        if email_offs.find_bounce(uow, locked.record) is None:
            return int(changes.change_record(uow, locked.record, "edited", actor, **values))
    deny_lists.require_allowed(uow, mailing_list.user_id, locked.addresses)
    _activate(uow, locked, "subscribed", actor, **values)
    return 1


@dataclass(frozen=True)
class Confirmation:
    """The subscription of a confirmation link.

    Attributes:
        is_confirmed: whether the subscription is active, and the link can't turn its mail on.
        agreed_wording: the question about opens and clicks if the sign-up form said yes to it.
    """

    mailing_list: MailingList
    record: Subscription
    is_confirmed: bool
    agreed_wording: str | None


def read_confirmation(uow: UnitOfWork, secret: str) -> Confirmation:
    link, mailing_list, person_id = _read_link(uow, secret)
    record = _require_confirmable(changes.find_record(uow, mailing_list.id, person_id))
    is_active = record.status == SubscriptionStatus.ACTIVE
    is_confirmed = is_active and not _lifts_bounce(uow, link, record)
    agreed_wording = (link.submitted or {}).get(AGREED_WORDING)
    confirmation = Confirmation(mailing_list, record, is_confirmed, agreed_wording)
    if link.used_at is not None and not confirmation.is_confirmed:
        raise LINK_USED()
    return confirmation


def confirm_subscription(
    uow: UnitOfWork, secret: str, actor: Actor, *, agreed_wording: str | None = None
) -> Subscription:
    """Confirm a pending subscription, or turn on an active member's mail after a bounce.

    ``agreed_wording``: the question about opens and clicks to which the person says yes. The yes
    counts only if the list asks for consent.

    Raises ``link.used`` if the subscription has become pending again after the link was used.
    """
    link, mailing_list, person_id = _read_link(uow, secret)
    locked = lock_subscription(uow, mailing_list, accounts.get_user(uow, person_id))
    if locked is None:
        raise LINK_INVALID()
    record = _require_confirmable(locked.record)
    was_active = locked.is_active
    if was_active:
        changes.confirm_imported_subscription(uow, record, actor)
        if not _lifts_bounce(uow, link, record):
            return record
    deny_lists.require_allowed(uow, mailing_list.user_id, locked.addresses)
    mailed_tokens.use_token(uow, link)
    values = member_attributes.build_confirmed_columns(
        uow, mailing_list.user_id, record, link.submitted
    )
    origin = (link.submitted or {}).get("origin")
    if origin and not has_origin(uow, record):
        values["origin"] = origin
    confirmer = replace(actor, origin=origin)
    confirmed_record = _activate(uow, locked, "confirmed", confirmer, **values)
    if agreed_wording and mailing_list.engagement == EngagementMode.CONSENT:
        record_yes(uow, confirmed_record, locked.person, actor, wording=agreed_wording)
    if not was_active:
        mails.enqueue_mail(uow, mails.MAIL_WELCOME, confirmed_record)
    return confirmed_record


def _lifts_bounce(uow: UnitOfWork, link: MailedLink, record: Subscription) -> bool:
    return link.used_at is None and email_offs.find_bounce(uow, record) is not None


def has_origin(uow: UnitOfWork, record: Subscription) -> bool:
    """Return whether a new sign-up must keep the first one's origin."""
    if record.origin is not None or record.source not in _SOURCES_WITHOUT_SIGN_UP:
        return True
    return entries.has_confirmed_entry(uow, record)


def _read_link(uow: UnitOfWork, secret: str) -> tuple[MailedLink, MailingList, PersonId]:
    link = mailed_tokens.read_token(uow, Purpose.CONFIRM_SUBSCRIPTION, secret)
    assert link.list_id is not None
    assert link.user_id is not None
    return link, lists.get_list(uow, link.list_id), link.user_id


def _require_confirmable(record: Subscription | None) -> Subscription:
    if record is None or record.status not in _CONFIRMABLE_STATUSES:
        raise SUBSCRIPTION_NOT_PENDING()
    return record


def _activate(
    uow: UnitOfWork,
    locked: LockedSubscription,
    action: str,
    actor: Actor,
    **values: Any,
) -> Subscription:
    """Activate the subscription or its mail, delete opt-outs, and lift bounces."""
    action = "email_enabled" if locked.is_active else action
    opt_outs.lift_opt_outs(
        uow, locked.mailing_list.id, locked.person, OptOutKind.LIST, OptOutKind.EMAIL
    )
    bounces.lift_bounces(uow, locked.mailing_list.id, locked.person)
    active = SubscriptionStatus.ACTIVE
    return _write_record(uow, locked, action, actor, status=active, email_enabled=True, **values)


def _write_record(
    uow: UnitOfWork, locked: LockedSubscription, action: str, actor: Actor, **values: Any
) -> Subscription:
    if locked.record is not None:
        changes.change_record(uow, locked.record, action, actor, **values)
        return locked.record
    # Store the name from the person's account only if the person is logged in, because a stranger
    # who enters an address must not reveal the person's name to the list's owner.
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
    uow: UnitOfWork, source_record: Subscription, target_record: Subscription
) -> None:
    is_moved = mailed_tokens.move_tokens_to_list(
        uow,
        person_id=source_record.user_id,
        list_id=source_record.list_id,
        to_list_id=target_record.list_id,
    )
    # If no confirmation link exists yet, enqueue a confirmation mail for the target list, because
    # the job for the source list will send nothing.
    if not is_moved and target_record.status == SubscriptionStatus.PENDING:
        mails.enqueue_mail(uow, mails.MAIL_CONFIRMATION, target_record)
