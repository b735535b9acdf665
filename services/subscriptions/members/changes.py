"""Creates and changes single subscriptions, and records each change.

Adding a person to a list also adds a consent entry.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import ScalarSelect, func, select, update

from core.errors.mailing import SUBSCRIPTION_CHANGED
from core.ids import AccountId, PersonId
from core.request_ids import current_request_id
from models import (
    ConsentHow,
    Mailing,
    MemberField,
    Subscription,
    SubscriptionEvent,
    SubscriptionStatus,
    User,
)
from services.engagement.answers import claim_refusals
from services.feed.catalogue import FeedEventType, announce_event, announce_list_event
from services.subscriptions.consent import entries
from services.subscriptions.members.opt_out_checks import compute_address_digests
from storage.unit_of_work import UnitOfWork

# Names of actions in a subscription's history.
ERASED = "erased"
TRANSFERRED_IN = "transferred_in"
TRANSFERRED_AWAY = "transferred_away"
ENGAGEMENT_ALLOWED = "engagement_allowed"
ENGAGEMENT_REFUSED = "engagement_refused"
BOUNCED = "bounced"
SOFT_BOUNCED = "soft_bounced"
# Actions that the feed doesn't announce. ``transfer_member`` announces transfers, and an owner's
# program doesn't need to know what people said about their engagement.
_UNANNOUNCED_ACTIONS = (TRANSFERRED_IN, TRANSFERRED_AWAY, ENGAGEMENT_ALLOWED, ENGAGEMENT_REFUSED)
# The actions for which the history stores the person's reason.
_ACTIONS_WITH_REASON = ("unsubscribed", "email_disabled")
# Maps the columns of a subscription to the names that the history shows.
_HISTORY_NAMES = {name: name for name in ("name", "email", "type", "paid_expiry")} | {
    "tag_ids": "tags"
}
_STATUSES_ON_LIST = (SubscriptionStatus.PENDING, SubscriptionStatus.ACTIVE)
_FEED_EVENT_BY_NEW_STATUS: Mapping[str, FeedEventType] = {
    SubscriptionStatus.REMOVED: FeedEventType.SUBSCRIPTION_REMOVED,
    SubscriptionStatus.UNSUBSCRIBED: FeedEventType.SUBSCRIPTION_LEFT,
}


class Via(StrEnum):
    """How a request to change a subscription reached Pressroom."""

    LOGIN = "login"  # A person or a list's owner sent a request with credentials.
    CHALLENGE = "challenge"  # The person solved a CAPTCHA and submitted a sign-up form.
    FORM = "form"  # The person submitted a sign-up form without a CAPTCHA.
    CONFIRMATION = "confirmation"  # The person followed the link in a confirmation mail.
    TRACE = "trace"  # An API request contained a trace id from a mail.
    ONE_CLICK = "one-click"  # The person used a mail client's unsubscribe button (RFC 8058).
    PAGE = "page"  # The person used the unsubscribe page.
    IMPORT = "import"
    BULK = "bulk"  # The list's owner started a bulk action.
    COMMAND = "command"
    SENDER = "sender"  # A sender, such as a mail provider, reported an event.


class ActorKind(StrEnum):
    USER = "user"
    OWNER = "owner"
    IMPORT = "import"
    OPERATOR = "operator"
    STRANGER = "stranger"  # A person who used a sign-up form without being logged in.
    SENDER = "sender"  # A registered source of reports, such as a mail provider.


@dataclass(frozen=True)
class Actor:
    """The person or process that changes a subscription.

    Attributes:
        page_url: the URL without the query string.
        mailing_id: the mailing whose mail caused the change. An id that doesn't belong to a mailing
            of the list is ignored.
    """

    kind: ActorKind
    via: Via
    user_id: int | None = None
    ip: str | None = None
    page_url: str | None = None
    browser: str | None = None
    origin: Mapping[str, str] | None = None
    reason: str | None = None
    mailing_id: int | None = None


def find_record(uow: UnitOfWork, list_id: int, person_id: PersonId) -> Subscription | None:
    """Return the person's record, regardless of its status."""
    query = select(Subscription).where(
        Subscription.list_id == list_id, Subscription.user_id == person_id
    )
    return uow.session.scalar(query.execution_options(populate_existing=True))


def find_record_by_key(uow: UnitOfWork, list_id: int, key: PersonId | str) -> Subscription | None:
    """Find a record by user id or normalised address.

    Several records may contain the same address, because people change addresses. Active records
    take precedence, and then the record of the account with the address. An inactive record is
    ignored if the person's account has a different address.
    """
    if isinstance(key, int):
        return find_record(uow, list_id, key)
    query = select(Subscription).where(Subscription.list_id == list_id, Subscription.email == key)
    query = query.execution_options(populate_existing=True)
    address_owner = select(User.id).where(User.email == key).scalar_subquery()
    active = query.where(Subscription.status == SubscriptionStatus.ACTIVE)
    is_of_address_owner = Subscription.user_id.is_not_distinct_from(address_owner)
    active = active.order_by(is_of_address_owner.desc(), Subscription.id)
    record = uow.session.scalars(active).first()
    return record or uow.session.scalar(query.where(Subscription.user_id == address_owner))


def add_record(
    uow: UnitOfWork, subscription: Subscription, action: str, actor: Actor
) -> Subscription:
    uow.session.add(subscription)
    uow.session.flush()
    if subscription.email is not None:
        digests = compute_address_digests(uow.settings.keyring, subscription.email)
        claim_refusals(uow, subscription.user_id, digests)
    record_event(uow, subscription, action, actor)
    return subscription


def change_record(
    uow: UnitOfWork, subscription: Subscription, action: str, actor: Actor, **values: Any
) -> bool:
    """Return whether any column has changed.

    Raises ``subscription.changed`` if a concurrent transaction changed the status or the mail
    setting of an unlocked subscription.
    """
    differing = {name: new for name, new in values.items() if getattr(subscription, name) != new}
    if not differing:
        return False
    if differing.get("status", SubscriptionStatus.PENDING) != SubscriptionStatus.PENDING:
        # Delete the values from the sign-up form, because they are only needed while the
        # subscription is pending.
        differing["submitted"] = None
    status = subscription.status
    email_enabled = subscription.email_enabled
    # For an erasure, don't store the names of changed columns, which could reveal something about
    # the person.
    names = None if action == ERASED else _list_changed_names(uow, subscription, differing)
    statement = (
        update(Subscription)
        .where(
            Subscription.id == subscription.id,
            Subscription.status == status,
            Subscription.email_enabled == email_enabled,
        )
        .values(**differing, updated_at=func.clock_timestamp())
        .returning(Subscription)
        .execution_options(populate_existing=True)
    )
    changed = uow.session.scalar(statement)
    if changed is None:
        raise SUBSCRIPTION_CHANGED()
    record_event(uow, changed, action, actor, names, status=status, email_enabled=email_enabled)
    return True


def confirm_imported_subscription(
    uow: UnitOfWork, subscription: Subscription, actor: Actor
) -> None:
    """Record a sign-up of an imported member.

    The function updates ``updated_at``, so that an undo of the import keeps the member.
    """
    if subscription.import_id is None or subscription.updated_at != subscription.imported_at:
        return
    _record_consent_entry(uow, subscription, entries.HOW_BY_VIA[actor.via], actor)
    statement = (
        update(Subscription)
        .where(Subscription.id == subscription.id)
        .values(updated_at=func.clock_timestamp())
        .returning(Subscription)
        .execution_options(populate_existing=True)
    )
    uow.session.execute(statement)


def _list_changed_names(
    uow: UnitOfWork, before: Subscription, differing: Mapping[str, Any]
) -> list[str] | None:
    names = [name for column, name in _HISTORY_NAMES.items() if column in differing]
    if "fields" in differing:
        after = differing["fields"]
        all_ids = before.fields.keys() | after.keys()
        ids = {int(each) for each in all_ids if before.fields.get(each) != after.get(each)}
        keys = select(MemberField.key).where(MemberField.id.in_(ids)).order_by(MemberField.id)
        names += [f"fields.{key}" for key in uow.session.scalars(keys)]
    return names or None


def switch_mail(
    uow: UnitOfWork, subscription: Subscription, actor: Actor, *, enabled: bool
) -> bool:
    action = "email_enabled" if enabled else "email_disabled"
    return change_record(uow, subscription, action, actor, email_enabled=enabled)


def record_event(
    uow: UnitOfWork,
    subscription: Subscription,
    action: str,
    actor: Actor,
    changed: list[str] | None = None,
    *,
    status: str | None = None,
    email_enabled: bool | None = None,
    account_id: AccountId | None = None,
) -> None:
    """Record a change in the history and in the owner's feed.

    Args:
        changed: the names of columns and fields, except the status and the mail setting.
        status: the status before the change, or ``None`` for a new subscription.
        account_id: pass it with many changes, so that a single INSERT can store all feed events.
    """
    uow.session.add(
        SubscriptionEvent(
            list_id=subscription.list_id,
            user_id=subscription.user_id,
            action=action,
            actor=actor.kind,
            actor_id=actor.user_id,
            via=actor.via,
            status_before=status,
            status_after=subscription.status,
            email_enabled_before=email_enabled,
            email_enabled_after=subscription.email_enabled,
            changed=changed,
            reason=actor.reason if action in _ACTIONS_WITH_REASON else None,
            mailing_id=_select_mailing_id(subscription.list_id, actor),
            ip=actor.ip,
            request_id=current_request_id(),
        )
    )
    _record_consent(uow, subscription, action, actor, status)
    if action not in _UNANNOUNCED_ACTIONS:
        kind = _choose_feed_event(subscription, action, status=status, email_enabled=email_enabled)
        # Omit the keys of changed fields, because a key may reveal something about the person.
        changed_names = sorted({each.partition(".")[0] for each in changed or ()})
        details: dict[str, Any] = {"changed": changed_names} if changed_names else {}
        if actor.kind == ActorKind.SENDER:
            details["reason"] = action
        announce_change(uow, subscription, kind, action, actor, account_id=account_id, **details)


def _select_mailing_id(list_id: int, actor: Actor) -> ScalarSelect[int] | None:
    if actor.mailing_id is None:
        return None
    query = select(Mailing.id).where(Mailing.id == actor.mailing_id, Mailing.list_id == list_id)
    return query.scalar_subquery()


def _record_consent(
    uow: UnitOfWork, subscription: Subscription, action: str, actor: Actor, before: str | None
) -> None:
    if subscription.status not in _STATUSES_ON_LIST or subscription.status == before:
        return
    how = ConsentHow.OWNER if actor.kind == ActorKind.OWNER else entries.HOW_BY_VIA[actor.via]
    if action == TRANSFERRED_IN:
        how = ConsentHow.TRANSFER
    _record_consent_entry(uow, subscription, how, actor)


def _record_consent_entry(
    uow: UnitOfWork, subscription: Subscription, how: ConsentHow, actor: Actor
) -> None:
    entries.record_entry(
        uow,
        subscription,
        how,
        ip=actor.ip,
        url=actor.page_url,
        browser=actor.browser,
        origin=actor.origin,
    )


def announce_change(
    uow: UnitOfWork,
    subscription: Subscription,
    kind: FeedEventType,
    action: str,
    actor: Actor,
    *,
    account_id: AccountId | None = None,
    **details: Any,
) -> None:
    data = {
        "user_id": subscription.user_id,
        "action": action,
        "via": actor.via,
        "status": subscription.status,
        "email_enabled": subscription.email_enabled,
        **details,
    }
    list_id = subscription.list_id
    if account_id is None:
        announce_list_event(uow, list_id, kind, subscription.id, **data)
    else:
        announce_event(uow, account_id, kind, subscription.id, list_id=list_id, **data)


def _choose_feed_event(
    subscription: Subscription, action: str, *, status: str | None, email_enabled: bool | None
) -> FeedEventType:
    # Announce an erasure as ``subscription.removed``, so that the owner deletes copies of the
    # person's data.
    if action == ERASED:
        return FeedEventType.SUBSCRIPTION_REMOVED
    if subscription.status != status:
        is_confirmed = status == SubscriptionStatus.PENDING
        joined = (
            FeedEventType.SUBSCRIPTION_CONFIRMED
            if is_confirmed
            else FeedEventType.SUBSCRIPTION_CREATED
        )
        return _FEED_EVENT_BY_NEW_STATUS.get(subscription.status, joined)
    if subscription.email_enabled != email_enabled:
        if subscription.email_enabled:
            return FeedEventType.SUBSCRIPTION_EMAIL_ON
        return FeedEventType.SUBSCRIPTION_EMAIL_OFF
    return FeedEventType.SUBSCRIPTION_CHANGED
