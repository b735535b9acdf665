"""What becomes of two records that one list has of one person."""

from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Any

from models import OptOutKind, Subscription, SubscriptionStatus
from services.mailing.attributes.tags import MAX_TAGS_OF_MEMBER
from services.mailing.subscriptions.transfers import better_tier

_LEFT = SubscriptionStatus.UNSUBSCRIBED


def union(
    own: Subscription, other: Subscription, refused: AbstractSet[OptOutKind]
) -> dict[str, Any]:
    """The columns of the account's own record, into which the other one goes.

    A no on either side holds. The own record's name, fields and tags stay, and the other's fill
    what it has not. A record that the owner removed tells the past: it says nothing of status,
    mail, tier and address, unless both were removed.

    Args:
        refused: the person's opt-outs on this list, by either address.
    """
    both = [each for each in (own, other) if each.status != SubscriptionStatus.REMOVED]
    both = both or [own, other]
    first = own if own in both else other
    status = _status({each.status for each in both}, refused)
    pending = next((each for each in both if each.status == SubscriptionStatus.PENDING), None)
    waits: dict[str, Any] = {}
    if pending is not None and status == SubscriptionStatus.PENDING:
        waits = {name: getattr(pending, name) for name in ("confirmation_asked_at", "submitted")}
    has_mail = all(each.email_enabled for each in both)
    return {
        "status": status,
        "email_enabled": has_mail and OptOutKind.EMAIL not in refused,
        **better_tier(both),
        "name": own.name or other.name,
        "email": first.email or own.email or other.email,
        "fields": {**other.fields, **own.fields},
        "tag_ids": _tags(own, other),
        "joined_at": _joined_at(own, other),
        **waits,
    }


def _status(found: AbstractSet[str], refused: AbstractSet[OptOutKind]) -> SubscriptionStatus:
    has_left = _LEFT in found or OptOutKind.LIST in refused
    if SubscriptionStatus.ACTIVE in found and not has_left:
        return SubscriptionStatus.ACTIVE
    # A person who left and asked to come back may still confirm that.
    if SubscriptionStatus.PENDING in found:
        return SubscriptionStatus.PENDING
    return SubscriptionStatus.REMOVED if found == {SubscriptionStatus.REMOVED} else _LEFT


def _tags(own: Subscription, other: Subscription) -> list[int]:
    added = [each for each in sorted(other.tag_ids) if each not in own.tag_ids]
    # A member who has as many tags already gets no other.
    return sorted([*own.tag_ids, *added[: max(MAX_TAGS_OF_MEMBER - len(own.tag_ids), 0)]])


def _joined_at(own: Subscription, other: Subscription) -> datetime | None:
    """When the person first joined; ``None`` for the moment at which the own record was made."""
    earliest = min(each.joined_at or each.created_at for each in (own, other))
    return None if own.joined_at is None and earliest == own.created_at else earliest
