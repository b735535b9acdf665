"""Transfers a member from one list to another list of the same owner."""

from collections.abc import Mapping, Sequence
from typing import Any

from core.errors import mailing as errors
from core.ids import PersonId
from models import MailingList, OptOutKind, Subscription, SubscriptionStatus, Tier
from services.accounts import accounts
from services.feed.catalogue import FeedEventType
from services.subscriptions import deny_lists, member_attributes, sign_up
from services.subscriptions.consent.history import copy_history
from services.subscriptions.members import (
    bounces,
    changes,
    engagement_choices,
    locks,
    opt_out_checks,
    opt_outs,
)
from services.subscriptions.members.changes import Actor
from services.subscriptions.members.members import get_member
from storage.unit_of_work import UnitOfWork

# The columns that a transfer copies from the source list's record to a new record on the target
# list.
_TRANSFERRED_COLUMNS = (
    "user_id",
    "name",
    "email",
    "confirmation_asked_at",
    "submitted",
    "language",
    "origin",
)


def transfer_member(
    uow: UnitOfWork,
    source: MailingList,
    target: MailingList,
    person_id: PersonId,
    *,
    actor: Actor,
) -> int:
    """Return 0 if the member was already removed.

    The source record gets the status ``removed``, and is merged into any record on the target list.
    Opt-outs, bounces, consent entries and consent claims are copied. A deny list has no effect on
    an active member of the target list.
    """
    if source.id == target.id:
        raise errors.TRANSFER_SAME_LIST()
    if not locks.lock_pair(uow, person_id, source.id, target.id):
        raise errors.MEMBER_NOT_FOUND()
    source_record = get_member(uow, source, person_id)
    if source_record.status == SubscriptionStatus.REMOVED:
        return 0
    person = accounts.get_user(uow, person_id)
    target_record = changes.find_record(uow, target.id, person.id)
    if target_record is None or target_record.status != SubscriptionStatus.ACTIVE:
        addresses = locks.collect_addresses(person, source_record)
        addresses |= locks.collect_addresses(person, target_record)
        deny_lists.require_allowed(uow, target.user_id, addresses)
    for kind in sorted(opt_out_checks.find_opt_outs(uow, source.id, person)):
        opt_outs.record_opt_out(uow, target.id, person, kind=kind, source="transfer")
    opt_out_kinds = opt_out_checks.find_opt_outs(uow, target.id, person)
    values = _merge_records(source_record, target_record, opt_out_kinds)
    bounces.copy_bounces(uow, source.id, person.id, to_list_id=target.id)
    if bounces.claim_bounces(uow, target.id, person):
        values["email_enabled"] = False
    values |= member_attributes.merge_attributes(uow, source_record, target_record, target.id)
    values["list_id"] = target.id
    target_record = _write_target_record(uow, source_record, target_record, actor, values)
    engagement_choices.transfer_answer(uow, source_record, target_record, person)
    removed = SubscriptionStatus.REMOVED
    changes.change_record(uow, source_record, changes.TRANSFERRED_AWAY, actor, status=removed)
    list_ids: dict[str, Any] = {
        "from_list_id": source_record.list_id,
        "to_list_id": target_record.list_id,
    }
    event = FeedEventType.SUBSCRIPTION_TRANSFERRED
    # Announce the transfer in the feeds of both lists, because a client may follow only one of the
    # two lists.
    changes.announce_change(uow, source_record, event, changes.TRANSFERRED_AWAY, actor, **list_ids)
    changes.announce_change(uow, target_record, event, changes.TRANSFERRED_IN, actor, **list_ids)
    return 1


def _write_target_record(
    uow: UnitOfWork,
    source_record: Subscription,
    target_record: Subscription | None,
    actor: Actor,
    values: Mapping[str, Any],
) -> Subscription:
    """Make the link in a pending member's confirmation mail valid for the target list."""
    if target_record is None:
        copied = {name: getattr(source_record, name) for name in _TRANSFERRED_COLUMNS}
        target_record = Subscription(source="transfer", **copied, **values)
        changes.add_record(uow, target_record, changes.TRANSFERRED_IN, actor)
    else:
        # Don't change the origin of an active member, because the daily figures by origin have
        # already counted the member with the former origin.
        if target_record.status != SubscriptionStatus.ACTIVE and not sign_up.has_origin(
            uow, target_record
        ):
            values = {**values, "origin": source_record.origin}
        changes.change_record(uow, target_record, changes.TRANSFERRED_IN, actor, **values)
    copy_history(uow, source_record, target_record)
    if source_record.status == SubscriptionStatus.PENDING:
        sign_up.move_confirmation(uow, source_record, target_record)
    return target_record


def _merge_records(
    source_record: Subscription,
    target_record: Subscription | None,
    opt_out_kinds: set[OptOutKind],
) -> dict[str, Any]:
    """Merge the records of a transfer.

    The result is active if any record is active, and the person hasn't opted out of the target
    list. Otherwise, it is pending if any record is pending, or else unsubscribed. Mail is enabled
    only if all records have it.
    """
    records = [source_record]
    # Ignore a record with the status ``removed``, because a former membership has no effect on the
    # new membership.
    if target_record and target_record.status != SubscriptionStatus.REMOVED:
        records.append(target_record)
    statuses = {each.status for each in records}
    if SubscriptionStatus.ACTIVE in statuses and OptOutKind.LIST not in opt_out_kinds:
        status = SubscriptionStatus.ACTIVE
    elif SubscriptionStatus.PENDING in statuses:
        status = SubscriptionStatus.PENDING
    else:
        status = SubscriptionStatus.UNSUBSCRIBED
    has_mail = OptOutKind.EMAIL not in opt_out_kinds and all(each.email_enabled for each in records)
    return {"status": status, **_choose_better_tier(records), "email_enabled": has_mail}


def _choose_better_tier(records: Sequence[Subscription]) -> dict[str, Any]:
    # If any record has a paid tier without an expiry date, the member's tier never expires.
    never_ends = any(each.type != Tier.FREE and each.paid_expiry is None for each in records)
    expiries = [each.paid_expiry for each in records if each.paid_expiry is not None]
    return {
        "type": max((Tier(each.type) for each in records), key=[*Tier].index),
        "paid_expiry": None if never_ends else max(expiries, default=None),
    }
