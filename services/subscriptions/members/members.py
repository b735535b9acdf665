"""Acts of an owner on the members of a list. They never override a person's opt-out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, func, not_, select

from core.errors import mailing as errors
from core.settings.notations import PlanQuota
from models import (
    MailingList,
    MemberImport,
    OptOutKind,
    Plan,
    Subscription,
    SubscriptionEvent,
    SubscriptionStatus,
    Tier,
    User,
)
from services import paging
from services.access import quotas
from services.accounts import accounts
from services.feed.catalogue import FeedEventType
from services.paging import PageOfRows, PageRequest
from services.subscriptions import deny_lists, member_attributes, sign_up
from services.subscriptions.consent.history import copy_history
from services.subscriptions.imports.chunks import ROWS_PER_CHUNK
from services.subscriptions.member_attributes import GivenAttributes
from services.subscriptions.members import changes, locks, opt_out_checks, opt_outs
from services.subscriptions.members.changes import Actor, ActorKind, Via
from services.subscriptions.members.locks import LockedSubscription
from storage.unit_of_work import UnitOfWork

# The source of a member whom the owner added alone.
BY_OWNER = "owner"


def get_member(uow: UnitOfWork, mailing_list: MailingList, named: int | str) -> Subscription:
    """The member of a user id, or of a normalised address; raises ``member.not_found``."""
    found = changes.find_named_record(uow, mailing_list.id, named)
    if found is None:
        raise errors.MEMBER_NOT_FOUND()
    return found


def remove_member(uow: UnitOfWork, mailing_list: MailingList, user_id: int, actor: Actor) -> int:
    """Take the member off the list: 1, or 0 when they were off already. Opt-outs stay."""
    member = _hold(uow, mailing_list, user_id)
    return int(
        changes.change_record(uow, member, "removed", actor, status=SubscriptionStatus.REMOVED)
    )


def set_email(
    uow: UnitOfWork,
    mailing_list: MailingList,
    user_id: int,
    actor: Actor,
    *,
    enabled: bool,
) -> int:
    """Switch the member's mail off or on; raises ``subscription.opted_out`` after an opt-out."""
    member = _hold(uow, mailing_list, user_id)
    person = accounts.get_user(uow, user_id)
    if enabled and opt_out_checks.find_opt_outs(uow, mailing_list.id, person):
        raise errors.SUBSCRIPTION_OPTED_OUT()
    return int(changes.switch_mail(uow, member, actor, enabled=enabled))


@dataclass(frozen=True)
class MemberEdit:
    """The values that an owner sets of a member: columns, and fields and tags by name."""

    columns: Mapping[str, Any]
    attributes: GivenAttributes

    def all_columns(
        self, uow: UnitOfWork, mailing_list: MailingList, record: Subscription | None
    ) -> dict[str, Any]:
        given = member_attributes.columns(uow, mailing_list, record, self.attributes)
        return {**self.columns, **given}


def update_member(
    uow: UnitOfWork, mailing_list: MailingList, named: int | str, edit: MemberEdit, actor: Actor
) -> Subscription:
    """Set the list's own name for the member, the tier and its expiry, fields and tags.

    Raises ``member.not_found`` and what ``member_attributes.columns`` raises.
    """
    member = _hold(uow, mailing_list, get_member(uow, mailing_list, named).user_id)
    changes.change_record(
        uow, member, "edited", actor, **edit.all_columns(uow, mailing_list, member)
    )
    return member


def upsert_member(
    uow: UnitOfWork, mailing_list: MailingList, named: int | str, edit: MemberEdit, actor: Actor
) -> Subscription:
    """Change the member who has this address, or add the person without a confirmation.

    A pending member stays pending. Raises ``subscription.opted_out``, and the errors of
    ``update_member``. For a new member, it also raises ``member.denied``, ``plan.required`` and
    ``quota.exceeded``.
    """
    locked = _lock_named(uow, mailing_list, named)
    record = locked.record
    refused = opt_out_checks.find_opt_outs(uow, mailing_list.id, locked.person)
    has_left = record is not None and record.status == SubscriptionStatus.UNSUBSCRIBED
    if has_left or OptOutKind.LIST in refused:
        raise errors.SUBSCRIPTION_OPTED_OUT()
    columns = edit.all_columns(uow, mailing_list, record)
    if record is not None and record.status != SubscriptionStatus.REMOVED:
        changes.change_record(uow, record, "edited", actor, **columns)
        return record
    deny_lists.require_allowed(uow, mailing_list.user_id, locked.addresses)
    if accounts.get_user(uow, mailing_list.user_id).plan != Plan.PAID:
        raise errors.PLAN_REQUIRED()
    # An import of the owner's may hold the quota for seconds.
    quota = mailing_list.user_id, PlanQuota.MEMBERS
    with locks.waiting_briefly(uow):
        if not quotas.lock_quota_share(uow, *quota, share_size=ROWS_PER_CHUNK):
            quotas.require_quota(uow, *quota)
    has_mail = OptOutKind.EMAIL not in refused and (record is None or record.email_enabled)
    columns |= {"status": SubscriptionStatus.ACTIVE, "email_enabled": has_mail}
    if record is not None:
        changes.change_record(uow, record, "added", actor, **columns)
        return record
    of_person = {"user_id": locked.person.id, "email": locked.person.email, "source": BY_OWNER}
    made = Subscription(list_id=mailing_list.id, **of_person, **columns)
    return changes.add_record(uow, made, "added", actor)


def _lock_named(uow: UnitOfWork, mailing_list: MailingList, named: int | str) -> LockedSubscription:
    locks.lock_list_shared(uow, mailing_list.id)
    while True:
        record = changes.find_named_record(uow, mailing_list.id, named)
        person = None if record is None else accounts.get_user(uow, record.user_id)
        # A record whose person was erased just now may still have the address, which is free.
        if person is None or person.erased_at is not None:
            if isinstance(named, int):
                raise errors.MEMBER_NOT_FOUND()
            person = accounts.find_or_create_person(uow, named)
        locked = locks.lock_subscription(uow, mailing_list, person)
        if locked is not None:
            return locked
        # They were erased meanwhile, and have the address no more: look it up again.
        uow.session.expire(person)


def _hold(uow: UnitOfWork, mailing_list: MailingList, user_id: int) -> Subscription:
    """The member, under the pair's lock; raises ``member.not_found``, also for an erased person."""
    if not locks.lock_pair(uow, user_id, mailing_list.id):
        raise errors.MEMBER_NOT_FOUND()
    return get_member(uow, mailing_list, user_id)


def subscriptions_to_owner(
    uow: UnitOfWork, mailing_list: MailingList, user_id: int, wanted: PageRequest
) -> PageOfRows[tuple[Subscription, MailingList]]:
    """The member's records on all lists of this list's owner, newest first.

    Raises ``member.not_found``, ``cursor.invalid``.
    """
    get_member(uow, mailing_list, user_id)
    of_owner = MailingList.user_id == mailing_list.user_id
    return find_with_lists(uow, wanted, Subscription.user_id == user_id, of_owner)


def list_history(
    uow: UnitOfWork, mailing_list: MailingList, user_id: int, wanted: PageRequest
) -> PageOfRows[SubscriptionEvent]:
    """The events of the member's subscription, newest first. Raises ``cursor.invalid``.

    For a member who came by an import the last event is that import. Imports store no event for
    each new member, so this one is made up here and has no id.
    """
    member = get_member(uow, mailing_list, user_id)
    own = (SubscriptionEvent.list_id == mailing_list.id, SubscriptionEvent.user_id == user_id)
    query = paging.by_id(select(SubscriptionEvent).where(*own), SubscriptionEvent.id, wanted)
    events = list(uow.session.scalars(query))
    is_last_page = len(events) <= wanted.limit
    if is_last_page and member.import_id is not None and member.source == "import":
        stored = select(func.count()).where(*own)
        is_within = bool(events) or wanted.cursor is not None
        if is_within or wanted.offset <= (uow.session.scalar(stored) or 0):
            # The owner of the list makes every import into it, so a later import names the same
            # person.
            task = uow.session.get_one(MemberImport, member.import_id)
            first_change = select(SubscriptionEvent.email_enabled_before).where(*own)
            had_mail = uow.session.scalar(first_change.order_by(SubscriptionEvent.id).limit(1))
            imported = SubscriptionEvent(
                list_id=member.list_id,
                user_id=member.user_id,
                action="imported",
                actor=ActorKind.IMPORT,
                actor_id=task.user_id,
                via=Via.IMPORT,
                status_after=SubscriptionStatus.ACTIVE,
                email_enabled_after=member.email_enabled if had_mail is None else had_mail,
                # A record is made at the moment of its import.
                created_at=member.created_at,
            )
            events.append(imported)
    return paging.cut(events, wanted.limit, lambda event: str(event.id))


_COPIED = ("user_id", "name", "email", "confirmation_asked_at", "submitted", "language")


def transfer_member(
    uow: UnitOfWork,
    source: MailingList,
    target: MailingList,
    user_id: int,
    *,
    actor: Actor,
) -> int:
    """Move a member to another list: 1, or 0 for a member who was removed from the source already.

    The source keeps the record as removed. If the target has a record of the person, the two merge.
    Opt-outs from either list hold on the target, which gets what shows the consent too. Raises
    ``member.not_found``, ``transfer.same_list``, ``tag.too_many`` and, for a person who is no
    active member of the target, ``member.denied``.
    """
    if source.id == target.id:
        raise errors.TRANSFER_SAME_LIST()
    if not locks.lock_pair(uow, user_id, source.id, target.id):
        raise errors.MEMBER_NOT_FOUND()
    leaving = get_member(uow, source, user_id)
    if leaving.status == SubscriptionStatus.REMOVED:
        return 0
    person = accounts.get_user(uow, user_id)
    there = changes.find_record(uow, target.id, person.id)
    if there is None or there.status != SubscriptionStatus.ACTIVE:
        addresses = locks.addresses_of(person, leaving) | locks.addresses_of(person, there)
        deny_lists.require_allowed(uow, target.user_id, addresses)
    for kind in sorted(opt_out_checks.find_opt_outs(uow, source.id, person)):
        opt_outs.record_opt_out(uow, target.id, person, kind=kind, source="transfer")
    merged = merge_records(leaving, there, opt_out_checks.find_opt_outs(uow, target.id, person))
    merged |= member_attributes.merged(uow, leaving, there, target.id)
    there = _arrive(uow, leaving, there, actor, {"list_id": target.id, **merged})
    removed = SubscriptionStatus.REMOVED
    changes.change_record(uow, leaving, changes.TRANSFERRED_AWAY, actor, status=removed)
    both = {"from_list_id": leaving.list_id, "to_list_id": there.list_id}
    event = FeedEventType.SUBSCRIPTION_TRANSFERRED
    # Both records have an event, so that a follower of one list alone learns of it.
    changes.announce_change(uow, leaving, event, changes.TRANSFERRED_AWAY, actor, **both)
    changes.announce_change(uow, there, event, changes.TRANSFERRED_IN, actor, **both)
    return 1


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
        changes.add_record(uow, there, changes.TRANSFERRED_IN, actor)
    else:
        changes.change_record(uow, there, changes.TRANSFERRED_IN, actor, **merged)
    copy_history(uow, leaving, there)
    if leaving.status == SubscriptionStatus.PENDING:
        sign_up.move_confirmation(uow, leaving, there, actor)
    return there


def merge_records(
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
    has_mail = OptOutKind.EMAIL not in opted_out and all(each.email_enabled for each in both)
    return {"status": status, **better_tier(both), "email_enabled": has_mail}


def better_tier(records: Sequence[Subscription]) -> dict[str, Any]:
    """The better tier of some records, with the later expiry."""
    # A paid tier without an expiry never ends.
    never_ends = any(each.type != Tier.FREE and each.paid_expiry is None for each in records)
    known = [each.paid_expiry for each in records if each.paid_expiry is not None]
    return {
        "type": max((Tier(each.type) for each in records), key=[*Tier].index),
        "paid_expiry": None if never_ends else max(known, default=None),
    }


# Lists that the person left are not shown to them.
_CURRENT = (SubscriptionStatus.ACTIVE, SubscriptionStatus.PENDING)


class OwnSubscriptionState(StrEnum):
    SUBSCRIBED = "subscribed"
    WITHOUT_MAIL = "without_mail"  # a subscriber who gets no mail
    PENDING = "pending"
    LEFT = "left"  # by the person's own act, with or without a record of them
    ABSENT = "absent"
    UNTOLD = "untold"  # the one who asks may leave, and learns no more


@dataclass(frozen=True)
class OwnSubscription:
    state: OwnSubscriptionState
    # The address of the list's record, to which the list is sent.
    email: str | None


def read_own_subscription(
    uow: UnitOfWork, mailing_list: MailingList, person: User | None
) -> OwnSubscription:
    """The person's state on the list; ``None`` stands for a person who was purged."""
    if person is None:
        return OwnSubscription(OwnSubscriptionState.ABSENT, None)
    record = changes.find_record(uow, mailing_list.id, person.id)
    refused = opt_out_checks.find_opt_outs(uow, mailing_list.id, person)
    if record is not None:
        _show_settled(uow, record)
    status = None if record is None else record.status
    if record is not None and status == SubscriptionStatus.ACTIVE:
        has_mail = record.email_enabled
        state = OwnSubscriptionState.SUBSCRIBED if has_mail else OwnSubscriptionState.WITHOUT_MAIL
    elif status == SubscriptionStatus.PENDING:
        state = OwnSubscriptionState.PENDING
    elif status == SubscriptionStatus.UNSUBSCRIBED or OptOutKind.LIST in refused:
        state = OwnSubscriptionState.LEFT
    else:
        state = OwnSubscriptionState.ABSENT
    return OwnSubscription(state, None if record is None else record.email)


_LEFT_STATES = (OwnSubscriptionState.LEFT, OwnSubscriptionState.WITHOUT_MAIL)


def without_what_identifies(subscription: OwnSubscription) -> OwnSubscription:
    """Return what a revoked trace id shows: that its own click had an effect."""
    has_left = subscription.state in _LEFT_STATES
    return OwnSubscription(subscription.state if has_left else OwnSubscriptionState.UNTOLD, None)


def get_own(uow: UnitOfWork, list_id: int, user_id: int) -> Subscription:
    """The person's record on a list, in any status; raises ``subscription.not_found``."""
    found = changes.find_record(uow, list_id, user_id)
    if found is None:
        raise errors.SUBSCRIPTION_NOT_FOUND()
    _show_settled(uow, found)
    return found


def _show_settled(uow: UnitOfWork, record: Subscription) -> None:
    """Show the person what they decided, though the record itself is not settled yet."""
    values = opt_out_checks.find_unsettled_values(uow, record)
    # Nothing may write this back.
    uow.session.expunge(record)
    for name, value in values.items():
        setattr(record, name, value)


def list_of(
    uow: UnitOfWork, user_id: int, wanted: PageRequest
) -> PageOfRows[tuple[Subscription, MailingList]]:
    """The person's active and pending subscriptions, newest first. Raises ``cursor.invalid``."""
    own = Subscription.user_id == user_id, Subscription.status.in_(_CURRENT)
    return find_with_lists(uow, wanted, *own, not_(opt_out_checks.HAS_LEFT))


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
