"""The transfer of a member between two lists of one owner."""

from collections.abc import Mapping, Sequence
from typing import Any

from core.keyring import Keyring
from core.refusals.mailing import MEMBER_NOT_FOUND, TRANSFER_SAME_LIST
from core.settings import Settings
from models import MailingList, OptOutKind, Subscription, SubscriptionStatus, Tier, User
from services.feed.catalogue import FeedEventType
from services.mailing import deny_lists
from services.mailing.attributes import member_attributes
from services.mailing.consent import consent_entries
from services.mailing.subscriptions import changes, locks, members, opt_outs, subscribe
from services.mailing.subscriptions.changes import Actor
from services.people import accounts
from storage.unit_of_work import UnitOfWork

_COPIED = ("user_id", "name", "email", "confirmation_asked_at", "submitted", "language")


def transfer(
    uow: UnitOfWork,
    keyring: Keyring,
    source: MailingList,
    target: MailingList,
    user_id: int,
    *,
    actor: Actor,
    settings: Settings,
) -> int:
    """Move a member to another list: 1, or 0 for a member who was removed from the source already.

    The source keeps the record as removed. If the target has a record of the person, the two merge.
    Opt-outs from either list hold on the target, which gets what shows the consent too. Raises
    ``member.not_found``, ``transfer.same_list``, ``tag.too_many`` and, for a person who is no
    active member of the target, ``member.denied``.
    """
    if source.id == target.id:
        raise TRANSFER_SAME_LIST()
    if not locks.lock_pair(uow, user_id, source.id, target.id):
        raise MEMBER_NOT_FOUND()
    leaving = members.get(uow, source, user_id)
    if leaving.status == SubscriptionStatus.REMOVED:
        return 0
    person = accounts.get(uow, user_id)
    there = _record_there(uow, settings, target, person)
    for kind in sorted(opt_outs.kinds_of(uow, keyring, source.id, person)):
        opt_outs.record(uow, keyring, target.id, person, kind=kind, source="transfer")
    merged = merge(leaving, there, opt_outs.kinds_of(uow, keyring, target.id, person))
    merged |= member_attributes.merged(uow, leaving, there, target.id)
    there = _arrive(uow, leaving, there, actor, {"list_id": target.id, **merged})
    removed = SubscriptionStatus.REMOVED
    changes.change(uow, leaving, changes.TRANSFERRED_AWAY, actor, status=removed)
    _announce(uow, leaving, there, actor)
    return 1


def _record_there(
    uow: UnitOfWork, settings: Settings, target: MailingList, person: User
) -> Subscription | None:
    """The target's record of the person; raises ``member.denied`` unless they are active there."""
    there = changes.find(uow, target.id, person.id)
    if there is None or there.status != SubscriptionStatus.ACTIVE:
        deny_lists.require_allowed(uow, settings, target.user_id, person.email)
    return there


def _arrive(
    uow: UnitOfWork,
    leaving: Subscription,
    there: Subscription | None,
    actor: Actor,
    merged: Mapping[str, Any],
) -> Subscription:
    """The member's record on the target, with what shows the consent, and the link that waits."""
    if there is None:
        copied = {name: getattr(leaving, name) for name in _COPIED}
        there = Subscription(source="transfer", **copied, **merged)
        changes.add(uow, there, changes.TRANSFERRED_IN, actor)
    else:
        changes.change(uow, there, changes.TRANSFERRED_IN, actor, **merged)
    consent_entries.carry_over(uow, leaving, there)
    if leaving.status == SubscriptionStatus.PENDING:
        subscribe.move_confirmation(uow, leaving, there, actor)
    return there


def _announce(uow: UnitOfWork, leaving: Subscription, there: Subscription, actor: Actor) -> None:
    """Tell of both records, so that those who follow one list alone learn of it."""
    both = {"from_list_id": leaving.list_id, "to_list_id": there.list_id}
    kind = FeedEventType.SUBSCRIPTION_TRANSFERRED
    changes.announce_change(uow, leaving, kind, changes.TRANSFERRED_AWAY, actor, **both)
    changes.announce_change(uow, there, kind, changes.TRANSFERRED_IN, actor, **both)


def merge(
    leaving: Subscription, there: Subscription | None, opted_out: set[OptOutKind]
) -> dict[str, Any]:
    """The values of both records in one: the better status and tier, and mail only if both have it.

    An opt-out from the list rules out active; a pending person may still confirm despite it.
    """
    # A record that was removed from the target tells the past, so it takes no part.
    both = [leaving, *([there] if there and there.status != SubscriptionStatus.REMOVED else [])]
    statuses = {each.status for each in both}
    if SubscriptionStatus.ACTIVE in statuses and OptOutKind.LIST not in opted_out:
        status = SubscriptionStatus.ACTIVE
    elif SubscriptionStatus.PENDING in statuses:
        status = SubscriptionStatus.PENDING
    else:
        status = SubscriptionStatus.UNSUBSCRIBED
    has_mail = all(each.email_enabled for each in both)
    return {
        "status": status,
        **better_tier(both),
        "email_enabled": has_mail and OptOutKind.EMAIL not in opted_out,
    }


def better_tier(records: Sequence[Subscription]) -> dict[str, Any]:
    """The better tier of some records, with the later expiry."""
    # A paid tier without an expiry never ends.
    never_ends = any(each.type != Tier.FREE and each.paid_expiry is None for each in records)
    known = [each.paid_expiry for each in records if each.paid_expiry is not None]
    return {
        "type": max((Tier(each.type) for each in records), key=[*Tier].index),
        "paid_expiry": None if never_ends else max(known, default=None),
    }
