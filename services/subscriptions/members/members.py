"""Changes single members on behalf of a list's owner, and reads a person's own subscriptions.

A list's owner can never override a person's opt-out.
"""

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
from services.subscriptions.member_attributes import AttributeChanges
from services.subscriptions.members import bounces, changes, locks, opt_out_checks, opt_outs
from services.subscriptions.members.changes import Actor, ActorKind, Via
from services.subscriptions.members.locks import LockedSubscription
from storage.unit_of_work import UnitOfWork

# The value of the column ``source`` for members that the list's owner adds.
OWNER_SOURCE = "owner"
# The columns that a transfer copies from the source list's record to a new record on the target
# list.
_TRANSFERRED_COLUMNS = (
    *("user_id", "name", "email"),
    *("confirmation_asked_at", "submitted", "language", "origin"),
)
# The statuses of the subscriptions that a person's overview shows.
_CURRENT_STATUSES = (SubscriptionStatus.ACTIVE, SubscriptionStatus.PENDING)


def get_member(uow: UnitOfWork, mailing_list: MailingList, key: int | str) -> Subscription:
    """Find a list's member by user id or normalised address, or raise ``member.not_found``."""
    record = changes.find_record_by_key(uow, mailing_list.id, key)
    if record is None:
        raise errors.MEMBER_NOT_FOUND()
    return record


def remove_member(uow: UnitOfWork, mailing_list: MailingList, user_id: int, actor: Actor) -> int:
    """Remove a member from the list, but keep the member's opt-outs.

    Return 1 if the member was removed, or 0 if the member had already been removed.
    """
    member = _lock_member(uow, mailing_list, user_id)
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
    """Enable or disable the list's mail to a member, on behalf of the list's owner.

    Raises ``subscription.opted_out`` if the owner tries to enable mail for a member who has opted
    out. Raises ``subscription.bounced`` if the owner tries to turn mail on after a bounce, but has
    already done so for this member in the last 30 days.
    """
    member = _lock_member(uow, mailing_list, user_id)
    person = accounts.get_user(uow, user_id)
    if enabled and opt_out_checks.find_opt_outs(uow, mailing_list.id, person):
        raise errors.SUBSCRIPTION_OPTED_OUT()
    if enabled and bounces.claim_bounces(uow, mailing_list.id, person):
        if bounces.has_owner_lifted(uow, mailing_list.id, user_id):
            raise errors.SUBSCRIPTION_BOUNCED()
        bounces.lift_bounces(uow, mailing_list.id, person, by_owner=True)
    return int(changes.switch_mail(uow, member, actor, enabled=enabled))


@dataclass(frozen=True)
class MemberEdit:
    """The changes that a list's owner makes to a member's columns, fields and tags."""

    columns: Mapping[str, Any]
    attributes: AttributeChanges

    def all_columns(
        self, uow: UnitOfWork, mailing_list: MailingList, record: Subscription | None
    ) -> dict[str, Any]:
        attribute_columns = member_attributes.build_changed_columns(
            uow, mailing_list, record, self.attributes
        )
        return {**self.columns, **attribute_columns}


def update_member(
    uow: UnitOfWork, mailing_list: MailingList, key: int | str, edit: MemberEdit, actor: Actor
) -> Subscription:
    """Edit the member with this user id or normalised address.

    Raises ``member.not_found`` and the same errors as ``member_attributes.build_changed_columns``.
    """
    member = _lock_member(uow, mailing_list, get_member(uow, mailing_list, key).user_id)
    changes.change_record(
        uow, member, "edited", actor, **edit.all_columns(uow, mailing_list, member)
    )
    return member


def upsert_member(
    uow: UnitOfWork, mailing_list: MailingList, key: int | str, edit: MemberEdit, actor: Actor
) -> Subscription:
    """Edit the member with this user id or address, or add a new member to the list.

    A new member becomes active without a confirmation mail. Editing a pending member keeps the
    status ``pending``.

    Raises ``subscription.opted_out`` and the same errors as ``update_member``. Adding a new member
    may raise ``member.denied``, ``plan.required`` or ``quota.exceeded``.
    """
    locked = _lock_by_key(uow, mailing_list, key)
    record = locked.record
    opt_out_kinds = opt_out_checks.find_opt_outs(uow, mailing_list.id, locked.person)
    has_left = record is not None and record.status == SubscriptionStatus.UNSUBSCRIBED
    if has_left or OptOutKind.LIST in opt_out_kinds:
        raise errors.SUBSCRIPTION_OPTED_OUT()
    columns = edit.all_columns(uow, mailing_list, record)
    if record is not None and record.status != SubscriptionStatus.REMOVED:
        changes.change_record(uow, record, "edited", actor, **columns)
        return record
    deny_lists.require_allowed(uow, mailing_list.user_id, locked.addresses)
    if accounts.get_user(uow, mailing_list.user_id).plan != Plan.PAID:
        raise errors.PLAN_REQUIRED()
    # Limit how long the transaction waits for locks, because an import by the same owner may lock
    # the quota for seconds.
    quota = mailing_list.user_id, PlanQuota.MEMBERS
    with locks.limit_lock_waits(uow):
        if not quotas.lock_quota_share(uow, *quota, share_size=ROWS_PER_CHUNK):
            quotas.require_quota(uow, *quota)
    has_mail = (
        OptOutKind.EMAIL not in opt_out_kinds
        and (record is None or record.email_enabled)
        and not bounces.claim_bounces(uow, mailing_list.id, locked.person)
    )
    columns |= {"status": SubscriptionStatus.ACTIVE, "email_enabled": has_mail}
    if record is not None:
        changes.change_record(uow, record, "added", actor, **columns)
        return record
    new_record = Subscription(
        list_id=mailing_list.id,
        user_id=locked.person.id,
        email=locked.person.email,
        source=OWNER_SOURCE,
        **columns,
    )
    return changes.add_record(uow, new_record, "added", actor)


def _lock_by_key(uow: UnitOfWork, mailing_list: MailingList, key: int | str) -> LockedSubscription:
    locks.lock_list_shared(uow, mailing_list.id)
    while True:
        record = changes.find_record_by_key(uow, mailing_list.id, key)
        person = None if record is None else accounts.get_user(uow, record.user_id)
        # If the list's record with the address belongs to an erased person, find or create a person
        # with the address.
        if person is None or person.erased_at is not None:
            if isinstance(key, int):
                raise errors.MEMBER_NOT_FOUND()
            person = accounts.find_or_create_person(uow, key)
        locked = locks.lock_subscription(uow, mailing_list, person)
        if locked is not None:
            return locked
        # The person was erased while ``lock_subscription`` waited for the lock, so search for a
        # person with the address again.
        uow.session.expire(person)


def _lock_member(uow: UnitOfWork, mailing_list: MailingList, user_id: int) -> Subscription:
    """Lock a member's subscription to the list, and return the member's record.

    Raises ``member.not_found`` for an erased person, or a person without a record on the list.
    """
    if not locks.lock_pair(uow, user_id, mailing_list.id):
        raise errors.MEMBER_NOT_FOUND()
    return get_member(uow, mailing_list, user_id)


def list_subscriptions_to_owner(
    uow: UnitOfWork, mailing_list: MailingList, user_id: int, page: PageRequest
) -> PageOfRows[tuple[Subscription, MailingList]]:
    """Return a member's subscriptions to all lists of the list's owner, newest first.

    Raises ``member.not_found``, ``cursor.invalid``.
    """
    get_member(uow, mailing_list, user_id)
    is_owned = MailingList.user_id == mailing_list.user_id
    return find_subscriptions_with_lists(uow, page, Subscription.user_id == user_id, is_owned)


def list_history(
    uow: UnitOfWork, mailing_list: MailingList, user_id: int, page: PageRequest
) -> PageOfRows[SubscriptionEvent]:
    """Return a page of the events in the history of a member's subscription, newest first.

    Raises ``cursor.invalid``.

    Imports store no history events. The function creates an event that describes the import. This
    event has no id.
    """
    member = get_member(uow, mailing_list, user_id)
    is_of_member = (
        SubscriptionEvent.list_id == mailing_list.id,
        SubscriptionEvent.user_id == user_id,
    )
    query = paging.select_page_by_id(
        select(SubscriptionEvent).where(*is_of_member), SubscriptionEvent.id, page
    )
    events = list(uow.session.scalars(query))
    is_last_page = len(events) <= page.limit
    if is_last_page and member.import_id is not None and member.source == "import":
        stored_count = select(func.count()).where(*is_of_member)
        is_within = bool(events) or page.cursor is not None
        if is_within or page.offset <= (uow.session.scalar(stored_count) or 0):
            # The actor of the event is the user who started the latest import, which is always the
            # list's owner.
            task = uow.session.get_one(MemberImport, member.import_id)
            first_change = select(SubscriptionEvent.email_enabled_before).where(*is_of_member)
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
                # The import created the member's record, so the event gets the time of the record's
                # creation.
                created_at=member.created_at,
            )
            events.append(imported)
    return paging.cut_page(events, page.limit, lambda event: str(event.id))


def transfer_member(
    uow: UnitOfWork,
    source: MailingList,
    target: MailingList,
    user_id: int,
    *,
    actor: Actor,
) -> int:
    """Transfer a member from the source list to the target list.

    Return 1 if the member was transferred, or 0 if the member was already removed from the source
    list. The record on the source list is kept with the status ``removed``. If the target list
    already has a record of the person, the two records are merged. The person's opt-outs,
    bounces, consent entries and consent claims are copied to the target list.

    Raises ``member.not_found``, ``transfer.same_list`` and ``tag.too_many``. Raises
    ``member.denied`` if the person is on a deny list, unless the person is an active member of the
    target list.
    """
    if source.id == target.id:
        raise errors.TRANSFER_SAME_LIST()
    if not locks.lock_pair(uow, user_id, source.id, target.id):
        raise errors.MEMBER_NOT_FOUND()
    source_record = get_member(uow, source, user_id)
    if source_record.status == SubscriptionStatus.REMOVED:
        return 0
    person = accounts.get_user(uow, user_id)
    target_record = changes.find_record(uow, target.id, person.id)
    if target_record is None or target_record.status != SubscriptionStatus.ACTIVE:
        addresses = locks.collect_addresses(person, source_record)
        addresses |= locks.collect_addresses(person, target_record)
        deny_lists.require_allowed(uow, target.user_id, addresses)
    for kind in sorted(opt_out_checks.find_opt_outs(uow, source.id, person)):
        opt_outs.record_opt_out(uow, target.id, person, kind=kind, source="transfer")
    opt_out_kinds = opt_out_checks.find_opt_outs(uow, target.id, person)
    values = merge_records(source_record, target_record, opt_out_kinds)
    bounces.copy_bounces(uow, source.id, person.id, to_list_id=target.id)
    if bounces.claim_bounces(uow, target.id, person):
        values["email_enabled"] = False
    values |= member_attributes.merge_attributes(uow, source_record, target_record, target.id)
    values["list_id"] = target.id
    target_record = _write_target_record(uow, source_record, target_record, actor, values)
    removed = SubscriptionStatus.REMOVED
    changes.change_record(uow, source_record, changes.TRANSFERRED_AWAY, actor, status=removed)
    list_ids = {"from_list_id": source_record.list_id, "to_list_id": target_record.list_id}
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
    """Create or change a transferred member's record on the target list.

    The function also copies the member's consent entries and claims to the target list. If the
    member is pending, the confirmation link is moved to the target list.
    """
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


def merge_records(
    source_record: Subscription,
    target_record: Subscription | None,
    opt_out_kinds: set[OptOutKind],
) -> dict[str, Any]:
    """Merge a member's records on the source list and the target list of a transfer.

    The merged record gets the highest tier, and the first of the statuses ``active``, ``pending``
    and ``unsubscribed`` that any record has. The merged record has mail enabled only if mail is
    enabled in all records. If the person has opted out of the target list, the merged record can be
    pending, but not active.
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
    return {"status": status, **choose_better_tier(records), "email_enabled": has_mail}


def choose_better_tier(records: Sequence[Subscription]) -> dict[str, Any]:
    """Return the highest tier and the latest expiry date of a member's records."""
    # A paid tier without an expiry date never expires.
    never_ends = any(each.type != Tier.FREE and each.paid_expiry is None for each in records)
    expiries = [each.paid_expiry for each in records if each.paid_expiry is not None]
    return {
        "type": max((Tier(each.type) for each in records), key=[*Tier].index),
        "paid_expiry": None if never_ends else max(expiries, default=None),
    }


class OwnSubscriptionState(StrEnum):
    """The state of a subscription, as pages show it to the subscriber."""

    SUBSCRIBED = "subscribed"
    WITHOUT_MAIL = "without_mail"  # The subscriber has disabled the list's mail.
    PENDING = "pending"
    # The person has unsubscribed, or has opted out although the list has no record of the person.
    LEFT = "left"
    ABSENT = "absent"
    # A visitor with a revoked trace id can unsubscribe, but can't see the state of the
    # subscription.
    HIDDEN = "untold"


@dataclass(frozen=True)
class OwnSubscription:
    """The state of a person's own subscription, and the address in the subscription."""

    state: OwnSubscriptionState
    email: str | None


def read_own_subscription(
    uow: UnitOfWork, mailing_list: MailingList, person: User | None
) -> OwnSubscription:
    """Return the state of a person's subscription to a list, taking opt-outs into account.

    ``person``: the subscriber, or ``None`` if the subscriber's account was purged.
    """
    if person is None:
        return OwnSubscription(OwnSubscriptionState.ABSENT, None)
    record = changes.find_record(uow, mailing_list.id, person.id)
    opt_out_kinds = opt_out_checks.find_opt_outs(uow, mailing_list.id, person)
    if record is not None:
        _display_opt_outs(uow, record)
    status = None if record is None else record.status
    if record is not None and status == SubscriptionStatus.ACTIVE:
        has_mail = record.email_enabled
        state = OwnSubscriptionState.SUBSCRIBED if has_mail else OwnSubscriptionState.WITHOUT_MAIL
    elif status == SubscriptionStatus.PENDING:
        state = OwnSubscriptionState.PENDING
    elif status == SubscriptionStatus.UNSUBSCRIBED or OptOutKind.LIST in opt_out_kinds:
        state = OwnSubscriptionState.LEFT
    else:
        state = OwnSubscriptionState.ABSENT
    return OwnSubscription(state, None if record is None else record.email)


def hide_personal_state(subscription: OwnSubscription) -> OwnSubscription:
    """Hide the values of a subscription that a visitor with a revoked trace id must not see.

    Visitors can always see that they have opted out, because they may just have clicked an
    unsubscribe link.
    """
    has_opted_out = subscription.state in (
        OwnSubscriptionState.LEFT,
        OwnSubscriptionState.WITHOUT_MAIL,
    )
    state = subscription.state if has_opted_out else OwnSubscriptionState.HIDDEN
    return OwnSubscription(state, None)


def get_own_subscription(uow: UnitOfWork, list_id: int, user_id: int) -> Subscription:
    """Return a person's record on a list, regardless of the record's status.

    Raises ``subscription.not_found``.
    """
    record = changes.find_record(uow, list_id, user_id)
    if record is None:
        raise errors.SUBSCRIPTION_NOT_FOUND()
    _display_opt_outs(uow, record)
    return record


def _display_opt_outs(uow: UnitOfWork, record: Subscription) -> None:
    """Apply a person's opt-outs to a loaded record, without storing the changes.

    If a person opts out during a bulk action, a job updates the stored record only after the bulk
    action has ended.
    """
    values = opt_out_checks.find_opt_out_changes(uow, record)
    # Detach the record from the SQLAlchemy session, so that changes to the record aren't stored.
    uow.session.expunge(record)
    for name, value in values.items():
        setattr(record, name, value)


def list_subscriptions(
    uow: UnitOfWork, user_id: int, page: PageRequest
) -> PageOfRows[tuple[Subscription, MailingList]]:
    """Return a page of a person's active and pending subscriptions, newest first.

    Raises ``cursor.invalid``.
    """
    return find_subscriptions_with_lists(
        uow,
        page,
        Subscription.user_id == user_id,
        Subscription.status.in_(_CURRENT_STATUSES),
        not_(opt_out_checks.HAS_LEFT),
    )


def find_subscriptions_with_lists(
    uow: UnitOfWork, page: PageRequest, *conditions: ColumnElement[bool]
) -> PageOfRows[tuple[Subscription, MailingList]]:
    """Return a page of subscriptions that meet the SQL conditions, newest first, with their lists.

    Subscriptions to archived lists are omitted.

    Raises ``cursor.invalid``.
    """
    query = (
        select(Subscription, MailingList)
        .join(MailingList, MailingList.id == Subscription.list_id)
        .where(*conditions, MailingList.archived_at.is_(None))
    )
    rows = uow.session.execute(paging.select_page_by_id(query, Subscription.id, page))
    pairs = [(record, mailing_list) for record, mailing_list in rows]
    return paging.cut_page(pairs, page.limit, lambda pair: str(pair[0].id))
