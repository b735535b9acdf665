"""The one way a subscription changes, and the record that is kept of it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import func, select, update

from core.refusals.mailing import SUBSCRIPTION_CHANGED
from models import Subscription, SubscriptionEvent, SubscriptionStatus
from storage.unit_of_work import UnitOfWork


class Via(StrEnum):
    """The door that a change came through."""

    LOGIN = "login"  # a credential of the person's or the owner's
    CHALLENGE = "challenge"  # the public form
    CONFIRMATION = "confirmation"  # a mailed link
    TRACE = "trace"  # a trace id, by the API
    ONE_CLICK = "one-click"  # a mail client's own button (RFC 8058)
    PAGE = "page"  # the unsubscribe page
    IMPORT = "import"
    COMMAND = "command"


class ActorKind(StrEnum):
    USER = "user"
    OWNER = "owner"
    IMPORT = "import"
    OPERATOR = "operator"
    STRANGER = "stranger"  # whoever filled in the public form


@dataclass(frozen=True)
class Actor:
    """In whose name something is done, through which door and from where."""

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


def add(uow: UnitOfWork, subscription: Subscription, action: str, actor: Actor) -> Subscription:
    """A new record of a person on a list."""
    uow.session.add(subscription)
    uow.session.flush()
    note(
        uow,
        subscription.list_id,
        subscription.user_id,
        action,
        actor,
        status=(None, subscription.status),
        email_enabled=(None, subscription.email_enabled),
    )
    return subscription


def change(
    uow: UnitOfWork, subscription: Subscription, action: str, actor: Actor, **values: Any
) -> bool:
    """Set these columns where they differ, if the record is still as it was read; note the change.

    Raises ``subscription.changed`` when it is not: compare and set, whatever else may fail to keep
    two acts apart.
    """
    differing = {name: new for name, new in values.items() if getattr(subscription, name) != new}
    if not differing:
        return False
    before = (subscription.status, subscription.email_enabled)
    statement = (
        update(Subscription)
        .where(
            Subscription.id == subscription.id,
            Subscription.status == before[0],
            Subscription.email_enabled == before[1],
        )
        .values(**differing, updated_at=func.clock_timestamp())
        .returning(Subscription)
        .execution_options(populate_existing=True)
    )
    changed = uow.session.scalar(statement)
    if changed is None:
        raise SUBSCRIPTION_CHANGED()
    note(
        uow,
        subscription.list_id,
        subscription.user_id,
        action,
        actor,
        status=(before[0], changed.status),
        email_enabled=(before[1], changed.email_enabled),
    )
    return True


def note(
    uow: UnitOfWork,
    list_id: int,
    user_id: int,
    action: str,
    actor: Actor,
    *,
    status: tuple[str | None, str | None] = (None, None),
    email_enabled: tuple[bool | None, bool | None] = (None, None),
) -> None:
    """Keep what happened: what was before and after, in whose name, when and from where."""
    uow.session.add(
        SubscriptionEvent(
            list_id=list_id,
            user_id=user_id,
            action=action,
            actor=actor.kind,
            actor_id=actor.user_id,
            via=actor.via,
            status_before=status[0],
            status_after=status[1],
            email_enabled_before=email_enabled[0],
            email_enabled_after=email_enabled[1],
            ip=actor.ip,
            request_id=actor.request_id,
        )
    )


def status_before_leaving(uow: UnitOfWork, subscription: Subscription) -> SubscriptionStatus:
    """The status that undoing it gives back to a person who left: pending, or else active."""
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
    # Who left another list, and was moved here since, was on none of this list's statuses.
    if left_from == SubscriptionStatus.PENDING:
        return SubscriptionStatus.PENDING
    return SubscriptionStatus.ACTIVE
