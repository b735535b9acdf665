"""Reads and writes of subscriptions.

Every write of one subscription goes through here, and leaves an event in its history and one in the
owner's feed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, func, select, update

from core.refusals.mailing import SUBSCRIPTION_CHANGED
from models import MailingList, Subscription, SubscriptionEvent, SubscriptionStatus
from services import paging
from services.feed.announcing import announce_of_list
from services.feed.catalogue import FeedEventType
from services.paging import PageOfRows, PageRequest
from storage.unit_of_work import UnitOfWork

ERASED = "erased"
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
    request_id: str | None = None


def find(uow: UnitOfWork, list_id: int, user_id: int) -> Subscription | None:
    return uow.session.scalar(
        select(Subscription)
        .where(Subscription.list_id == list_id, Subscription.user_id == user_id)
        .execution_options(populate_existing=True)
    )


def find_with_lists(
    uow: UnitOfWork, wanted: PageRequest, *conditions: ColumnElement[bool]
) -> PageOfRows[tuple[Subscription, MailingList]]:
    """Subscriptions to lists that are not archived, newest first. Raises ``cursor.invalid``."""
    query = (
        select(Subscription, MailingList)
        .join(MailingList, MailingList.id == Subscription.list_id)
        .where(*conditions, MailingList.archived_at.is_(None))
    )
    rows = uow.session.execute(paging.by_id(query, Subscription.id, wanted))
    found = [(record, mailing_list) for record, mailing_list in rows]
    return paging.cut(found, wanted.limit, lambda pair: str(pair[0].id))


def add(uow: UnitOfWork, subscription: Subscription, action: str, actor: Actor) -> Subscription:
    """Store a new record of a person on a list, and note it."""
    uow.session.add(subscription)
    uow.session.flush()
    _note(uow, subscription, action, actor)
    return subscription


def change(
    uow: UnitOfWork, subscription: Subscription, action: str, actor: Actor, **values: Any
) -> bool:
    """Set the columns that differ, and note the change. False when none differs.

    Compares and sets: raises ``subscription.changed`` when another transaction changed the record
    after it was read, should the locks ever fail to keep two acts apart.
    """
    differing = {name: new for name, new in values.items() if getattr(subscription, name) != new}
    if not differing:
        return False
    status, email_enabled = subscription.status, subscription.email_enabled
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
    _note(uow, changed, action, actor, status=status, email_enabled=email_enabled)
    return True


def switch_mail(
    uow: UnitOfWork, subscription: Subscription, actor: Actor, *, enabled: bool
) -> bool:
    """Switch the list's mail on or off, and note it. False when it was so already."""
    action = "email_enabled" if enabled else "email_disabled"
    return change(uow, subscription, action, actor, email_enabled=enabled)


def _note(
    uow: UnitOfWork,
    subscription: Subscription,
    action: str,
    actor: Actor,
    *,
    status: str | None = None,
    email_enabled: bool | None = None,
) -> None:
    """Keep an event: the values before, given here, and after; the actor, time and origin."""
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
            ip=actor.ip,
            request_id=actor.request_id,
        )
    )
    if action not in (TRANSFERRED_IN, TRANSFERRED_AWAY):
        kind = _announced_as(subscription, action, status=status, email_enabled=email_enabled)
        announce_change(uow, subscription, kind, action, actor)


def announce_change(
    uow: UnitOfWork,
    subscription: Subscription,
    kind: FeedEventType,
    action: str,
    actor: Actor,
    **others: int,
) -> None:
    """Tell the owner's feed of a change that was made just now."""
    announce_of_list(
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
_MAIL = {
    False: FeedEventType.SUBSCRIPTION_EMAIL_OFF,
    True: FeedEventType.SUBSCRIPTION_EMAIL_ON,
}


def status_before_leaving(uow: UnitOfWork, subscription: Subscription) -> SubscriptionStatus:
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
