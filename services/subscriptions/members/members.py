"""Reads and changes single members on behalf of a list's owner.

A list's owner can never override a person's opt-out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select

from core.errors import mailing as errors
from core.ids import PersonId
from core.settings.notations import PlanQuota
from models import (
    MailingList,
    MemberImport,
    OptOutKind,
    Plan,
    Subscription,
    SubscriptionEvent,
    SubscriptionStatus,
)
from services import paging
from services.access import quotas
from services.accounts import accounts
from services.paging import PageOfRows, PageRequest
from services.subscriptions import deny_lists, member_attributes
from services.subscriptions.imports.chunks.chunks import ROWS_PER_CHUNK
from services.subscriptions.member_attributes import AttributeChanges
from services.subscriptions.members import bounces, changes, locks, opt_out_checks
from services.subscriptions.members.changes import Actor, ActorKind, Via
from services.subscriptions.members.locks import LockedSubscription
from storage.unit_of_work import UnitOfWork

# The value of the column ``source`` for members that the list's owner adds.
OWNER_SOURCE = "owner"


def get_member(uow: UnitOfWork, mailing_list: MailingList, key: PersonId | str) -> Subscription:
    record = changes.find_record_by_key(uow, mailing_list.id, key)
    if record is None:
        raise errors.MEMBER_NOT_FOUND()
    return record


def remove_member(
    uow: UnitOfWork, mailing_list: MailingList, person_id: PersonId, actor: Actor
) -> int:
    """Keep the member's opt-outs, and return the number of removed members."""
    member = _lock_member(uow, mailing_list, person_id)
    return int(
        changes.change_record(uow, member, "removed", actor, status=SubscriptionStatus.REMOVED)
    )


def set_email(
    uow: UnitOfWork,
    mailing_list: MailingList,
    person_id: PersonId,
    actor: Actor,
    *,
    enabled: bool,
) -> int:
    """Enable or disable mail on behalf of the list's owner.

    Raises ``subscription.bounced`` if the owner tries to turn mail on after a bounce, but has
    already done so for this member in the last 30 days.
    """
    member = _lock_member(uow, mailing_list, person_id)
    person = accounts.get_user(uow, person_id)
    if enabled and opt_out_checks.find_opt_outs(uow, mailing_list.id, person):
        raise errors.SUBSCRIPTION_OPTED_OUT()
    if enabled and bounces.claim_bounces(uow, mailing_list.id, person):
        if bounces.has_owner_lifted(uow, mailing_list.id, person_id):
            raise errors.SUBSCRIPTION_BOUNCED()
        bounces.lift_bounces(uow, mailing_list.id, person, by_owner=True)
    return int(changes.switch_mail(uow, member, actor, enabled=enabled))


@dataclass(frozen=True)
class MemberEdit:
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
    uow: UnitOfWork, mailing_list: MailingList, key: PersonId | str, edit: MemberEdit, actor: Actor
) -> Subscription:
    member = _lock_member(uow, mailing_list, get_member(uow, mailing_list, key).user_id)
    changes.change_record(
        uow, member, "edited", actor, **edit.all_columns(uow, mailing_list, member)
    )
    return member


def upsert_member(
    uow: UnitOfWork, mailing_list: MailingList, key: PersonId | str, edit: MemberEdit, actor: Actor
) -> Subscription:
    """Edit or add the member with this user id or address.

    A new member becomes active without a confirmation mail. A pending member stays pending.
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
    if accounts.get_account(uow, mailing_list.user_id).plan != Plan.PAID:
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


def _lock_by_key(
    uow: UnitOfWork, mailing_list: MailingList, key: PersonId | str
) -> LockedSubscription:
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


def _lock_member(uow: UnitOfWork, mailing_list: MailingList, person_id: PersonId) -> Subscription:
    if not locks.lock_pair(uow, person_id, mailing_list.id):
        raise errors.MEMBER_NOT_FOUND()
    return get_member(uow, mailing_list, person_id)


def list_history(
    uow: UnitOfWork, mailing_list: MailingList, person_id: PersonId, page: PageRequest
) -> PageOfRows[SubscriptionEvent]:
    """Return the newest events first.

    Imports store no history events, so the function creates an event without an id for the import.
    """
    member = get_member(uow, mailing_list, person_id)
    is_of_member = (
        SubscriptionEvent.list_id == mailing_list.id,
        SubscriptionEvent.user_id == person_id,
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
