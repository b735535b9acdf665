"""Creates and changes subscriptions, one at a time.

Each change adds an event to the history of the subscription, and an event to the owner's feed. If
the change adds the person to the list, it also adds a consent entry.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import func, select, update

from core.errors.mailing import SUBSCRIPTION_CHANGED
from core.request_ids import current_request_id
from models import (
    ConsentHow,
    MemberField,
    Subscription,
    SubscriptionEvent,
    SubscriptionStatus,
    User,
)
from services.feed.catalogue import FeedEventType, announce_list_event
from services.subscriptions.consent import entries
from storage.unit_of_work import UnitOfWork

ERASED = "erased"
_WITH_REASON = ("unsubscribed", "email_disabled")
# A transfer changes two records, and announces both with the other list.
TRANSFERRED_IN, TRANSFERRED_AWAY = "transferred_in", "transferred_away"


class Via(StrEnum):
    """The way by which a change came."""

    LOGIN = "login"  # with a credential of the person or of the owner
    CHALLENGE = "challenge"  # the public form, with a challenge that was passed
    FORM = "form"  # the public form of a list without a challenge
    CONFIRMATION = "confirmation"  # a mailed token
    TRACE = "trace"  # a trace id sent to the API
    ONE_CLICK = "one-click"  # a mail client's unsubscribe button (RFC 8058)
    PAGE = "page"  # the unsubscribe page
    IMPORT = "import"
    BULK = "bulk"  # an act of the owner on all members that fit a filter
    COMMAND = "command"


class ActorKind(StrEnum):
    USER = "user"
    OWNER = "owner"
    IMPORT = "import"
    OPERATOR = "operator"
    STRANGER = "stranger"  # a person without credentials, by the public form


@dataclass(frozen=True)
class Actor:
    """In whose name a subscription is changed, by which way and from where."""

    kind: ActorKind
    via: Via
    user_id: int | None = None
    ip: str | None = None
    # The page from which the act came, without its query, and the name of the browser.
    page_url: str | None = None
    browser: str | None = None
    # Why the person leaves or stops the mail, if they say.
    reason: str | None = None


def find_record(uow: UnitOfWork, list_id: int, user_id: int) -> Subscription | None:
    pair = Subscription.list_id == list_id, Subscription.user_id == user_id
    query = select(Subscription).where(*pair).execution_options(populate_existing=True)
    return uow.session.scalar(query)


def find_named_record(uow: UnitOfWork, list_id: int, named: int | str) -> Subscription | None:
    """The list's record of a user id or of a normalised address, in any status.

    By an address, that of the person who has it comes first. People who changed theirs since are
    found by an active record alone.
    """
    if isinstance(named, int):
        return find_record(uow, list_id, named)
    query = select(Subscription).where(Subscription.list_id == list_id, Subscription.email == named)
    query = query.execution_options(populate_existing=True)
    person = select(User.id).where(User.email == named).scalar_subquery()
    active = query.where(Subscription.status == SubscriptionStatus.ACTIVE)
    has_it = Subscription.user_id.is_not_distinct_from(person)
    found = uow.session.scalars(active.order_by(has_it.desc(), Subscription.id)).first()
    return found or uow.session.scalar(query.where(Subscription.user_id == person))


def add_record(
    uow: UnitOfWork, subscription: Subscription, action: str, actor: Actor
) -> Subscription:
    """Store a new record of a person on a list, and note it."""
    uow.session.add(subscription)
    uow.session.flush()
    record_event(uow, subscription, action, actor)
    return subscription


def change_record(
    uow: UnitOfWork, subscription: Subscription, action: str, actor: Actor, **values: Any
) -> bool:
    """Set the columns that differ, and note the change. False when none differs.

    Compares and sets: raises ``subscription.changed`` when another transaction changed the record
    after it was read, should the locks ever fail to keep two acts apart.
    """
    differing = {name: new for name, new in values.items() if getattr(subscription, name) != new}
    if not differing:
        return False
    if differing.get("status", SubscriptionStatus.PENDING) != SubscriptionStatus.PENDING:
        # The person confirmed, or no longer waits for what they are to confirm.
        differing["submitted"] = None
    status, email_enabled = subscription.status, subscription.email_enabled
    # The event of an erasure does not tell what the person had.
    names = None if action == ERASED else _names_of(uow, subscription, differing)
    s = Subscription
    statement = (
        update(s)
        .where(s.id == subscription.id, s.status == status, s.email_enabled == email_enabled)
        .values(**differing, updated_at=func.clock_timestamp())
        .returning(s)
        .execution_options(populate_existing=True)
    )
    changed = uow.session.scalar(statement)
    if changed is None:
        raise SUBSCRIPTION_CHANGED()
    record_event(uow, changed, action, actor, names, status=status, email_enabled=email_enabled)
    return True


def affirm_record(uow: UnitOfWork, subscription: Subscription, actor: Actor) -> None:
    """The person themselves asks for what an import brought them: its undo leaves that alone.

    The record stays as it is, and so nothing is noted but their consent.
    """
    if subscription.import_id is None or subscription.updated_at != subscription.imported_at:
        return
    _agree(uow, subscription, entries.HOW_BY_VIA[actor.via], actor)
    touched = update(Subscription).where(Subscription.id == subscription.id)
    touched = touched.values(updated_at=func.clock_timestamp()).returning(Subscription)
    uow.session.execute(touched.execution_options(populate_existing=True))


def _names_of(
    uow: UnitOfWork, before: Subscription, differing: Mapping[str, Any]
) -> list[str] | None:
    """Return the names of changed columns, as the history has them."""
    names = [shown for column, shown in _SHOWN.items() if column in differing]
    if "fields" in differing:
        after = differing["fields"]
        both = before.fields.keys() | after.keys()
        ids = {int(each) for each in both if before.fields.get(each) != after.get(each)}
        keys = select(MemberField.key).where(MemberField.id.in_(ids)).order_by(MemberField.id)
        names += [f"fields.{key}" for key in uow.session.scalars(keys)]
    return names or None


_SHOWN = {name: name for name in ("name", "email", "type", "paid_expiry")} | {"tag_ids": "tags"}


def switch_mail(
    uow: UnitOfWork, subscription: Subscription, actor: Actor, *, enabled: bool
) -> bool:
    """Switch the list's mail on or off, and note it. False when it was so already."""
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
) -> None:
    """Keep an event: the values before, given here, and after; the actor, time and origin.

    ``changed``: what else changed, by names.
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
            reason=actor.reason if action in _WITH_REASON else None,
            ip=actor.ip,
            request_id=current_request_id(),
        )
    )
    _record_consent(uow, subscription, action, actor, status)
    if action not in (TRANSFERRED_IN, TRANSFERRED_AWAY):
        kind = _announced_as(subscription, action, status=status, email_enabled=email_enabled)
        # Fields without their keys: the feed holds nothing of what a person may have.
        told = sorted({each.partition(".")[0] for each in changed or ()})
        others = {"changed": told} if told else {}
        announce_change(uow, subscription, kind, action, actor, **others)


def _record_consent(
    uow: UnitOfWork, subscription: Subscription, action: str, actor: Actor, before: str | None
) -> None:
    """Note how the person came onto the list, if they did: here, so that no way can forget it."""
    if subscription.status not in _ON_LIST or subscription.status == before:
        return
    how = ConsentHow.OWNER if actor.kind == ActorKind.OWNER else entries.HOW_BY_VIA[actor.via]
    if action == TRANSFERRED_IN:
        how = ConsentHow.TRANSFER
    _agree(uow, subscription, how, actor)


def _agree(uow: UnitOfWork, subscription: Subscription, how: ConsentHow, actor: Actor) -> None:
    origin = {"ip": actor.ip, "url": actor.page_url, "browser": actor.browser}
    entries.record_entry(uow, subscription, how, **origin)


_ON_LIST = (SubscriptionStatus.PENDING, SubscriptionStatus.ACTIVE)


def announce_change(
    uow: UnitOfWork,
    subscription: Subscription,
    kind: FeedEventType,
    action: str,
    actor: Actor,
    **others: Any,
) -> None:
    """Tell the owner's feed of a change that was made just now."""
    announce_list_event(
        uow,
        subscription.list_id,
        kind,
        subscription.id,
        user_id=subscription.user_id,
        action=action,
        via=actor.via,
        status=subscription.status,
        email_enabled=subscription.email_enabled,
        **others,
    )


def _announced_as(
    subscription: Subscription, action: str, *, status: str | None, email_enabled: bool | None
) -> FeedEventType:
    """The type of the feed's event, by the values before, which are given here, and after."""
    # An owner who keeps a copy elsewhere is to erase it too, whatever the status was.
    if action == ERASED:
        return FeedEventType.SUBSCRIPTION_REMOVED
    if subscription.status != status:
        came = FeedEventType.SUBSCRIPTION_CREATED
        if status == SubscriptionStatus.PENDING:
            came = FeedEventType.SUBSCRIPTION_CONFIRMED
        return _GONE.get(subscription.status, came)
    if subscription.email_enabled != email_enabled:
        return _MAIL[subscription.email_enabled]
    return FeedEventType.SUBSCRIPTION_CHANGED


_GONE: Mapping[str, FeedEventType] = {
    SubscriptionStatus.REMOVED: FeedEventType.SUBSCRIPTION_REMOVED,
    SubscriptionStatus.UNSUBSCRIBED: FeedEventType.SUBSCRIPTION_LEFT,
}
_MAIL = (FeedEventType.SUBSCRIPTION_EMAIL_OFF, FeedEventType.SUBSCRIPTION_EMAIL_ON)
