"""Acts of an owner on the members of a list. None of them overrides a person's opt-out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select

from core.keyring import Keyring
from core.refusals.mailing import (
    MEMBER_ELSEWHERE,
    MEMBER_NOT_FOUND,
    PLAN_REQUIRED,
    SUBSCRIPTION_OPTED_OUT,
)
from core.settings import Settings
from core.settings.plan_quotas import PlanQuota
from models import (
    MailingList,
    MemberImport,
    OptOutKind,
    Plan,
    Subscription,
    SubscriptionEvent,
    SubscriptionStatus,
    User,
)
from services import paging
from services.access import quotas
from services.mailing import deny_lists
from services.mailing.attributes import member_attributes
from services.mailing.attributes.member_attributes import GivenAttributes
from services.mailing.imports.chunks import ROWS_PER_CHUNK
from services.mailing.subscriptions import changes, locks, opt_outs, own
from services.mailing.subscriptions.changes import Actor, ActorKind, Via
from services.mailing.subscriptions.locks import LockedSubscription
from services.paging import PageOfRows, PageRequest
from services.people import accounts
from storage.unit_of_work import UnitOfWork

# The source of a member whom the owner added alone.
BY_OWNER = "owner"


def get(uow: UnitOfWork, mailing_list: MailingList, named: int | str) -> Subscription:
    """The member of a user id, or of a normalised address; raises ``member.not_found``."""
    found = changes.find_named(uow, mailing_list.id, named)
    if found is None:
        raise MEMBER_NOT_FOUND()
    return found


def remove(uow: UnitOfWork, mailing_list: MailingList, user_id: int, actor: Actor) -> int:
    """Take the member off the list: 1, or 0 when they were off already. Opt-outs stay."""
    member = _hold(uow, mailing_list, user_id)
    return int(changes.change(uow, member, "removed", actor, status=SubscriptionStatus.REMOVED))


def set_email(
    uow: UnitOfWork,
    keyring: Keyring,
    mailing_list: MailingList,
    user_id: int,
    actor: Actor,
    *,
    enabled: bool,
) -> int:
    """Switch the member's mail off or on; raises ``subscription.opted_out`` after an opt-out."""
    member = _hold(uow, mailing_list, user_id)
    person = accounts.get(uow, user_id)
    if enabled and opt_outs.kinds_of(uow, keyring, mailing_list.id, person):
        raise SUBSCRIPTION_OPTED_OUT()
    return int(changes.switch_mail(uow, member, actor, enabled=enabled))


@dataclass(frozen=True)
class MemberEdit:
    """What an owner sets of a member: columns, and fields and tags by their names."""

    columns: Mapping[str, Any]
    attributes: GivenAttributes

    def all_columns(
        self, uow: UnitOfWork, mailing_list: MailingList, record: Subscription | None
    ) -> dict[str, Any]:
        given = member_attributes.columns(uow, mailing_list, record, self.attributes)
        return {**self.columns, **given}


def update(
    uow: UnitOfWork, mailing_list: MailingList, named: int | str, edit: MemberEdit, actor: Actor
) -> Subscription:
    """Set the list's own name for the member, the tier and its expiry, fields and tags.

    Raises ``member.not_found`` and what ``member_attributes.columns`` raises.
    """
    member = _hold(uow, mailing_list, get(uow, mailing_list, named).user_id)
    changes.change(uow, member, "edited", actor, **edit.all_columns(uow, mailing_list, member))
    return member


def upsert(
    uow: UnitOfWork,
    mailing_list: MailingList,
    named: int | str,
    edit: MemberEdit,
    actor: Actor,
    *,
    settings: Settings,
) -> Subscription:
    """Change the member of this address, or make them one: an owner's act, without a confirmation.

    A pending member stays pending. Raises ``subscription.opted_out``, ``member.elsewhere`` for who
    moved to this address since they joined, for a person who is no member ``member.denied``,
    ``plan.required`` and ``quota.exceeded``, and what ``update`` raises.
    """
    locked = _lock_named(uow, mailing_list, named)
    record = locked.record
    refused = opt_outs.kinds_of(uow, settings.keyring, mailing_list.id, locked.person)
    has_left = record is not None and record.status == SubscriptionStatus.UNSUBSCRIBED
    if has_left or OptOutKind.LIST in refused:
        raise SUBSCRIPTION_OPTED_OUT()
    if isinstance(named, str) and record is not None and record.email != named:
        # No owner learns of two addresses that they are one person's.
        raise MEMBER_ELSEWHERE()
    columns = edit.all_columns(uow, mailing_list, record)
    if record is not None and record.status != SubscriptionStatus.REMOVED:
        changes.change(uow, record, "edited", actor, **columns)
        return record
    deny_lists.require_allowed(uow, settings, mailing_list.user_id, locked.person.email)
    _require_room(uow, settings, mailing_list.user_id)
    has_mail = OptOutKind.EMAIL not in refused and (record is None or record.email_enabled)
    columns |= {"status": SubscriptionStatus.ACTIVE, "email_enabled": has_mail}
    if record is not None:
        changes.change(uow, record, "added", actor, **columns)
        return record
    of_person = {"user_id": locked.person.id, "email": locked.person.email, "source": BY_OWNER}
    made = Subscription(list_id=mailing_list.id, **of_person, **columns)
    return changes.add(uow, made, "added", actor)


def _lock_named(uow: UnitOfWork, mailing_list: MailingList, named: int | str) -> LockedSubscription:
    locks.lock_list_shared(uow, mailing_list.id)
    while True:
        person = _person_named(uow, mailing_list, named)
        locked = locks.lock_subscription(uow, mailing_list, person)
        if locked is not None:
            return locked
        # They were erased meanwhile, and have the address no more: look it up again.
        uow.session.expire(person)


def _person_named(uow: UnitOfWork, mailing_list: MailingList, named: int | str) -> User:
    """The person of the list's record, or of the address; raises ``member.not_found`` by an id.

    A record whose person was erased just now may still have the address, which is free.
    """
    record = changes.find_named(uow, mailing_list.id, named)
    person = None if record is None else accounts.get(uow, record.user_id)
    if person is not None and person.erased_at is None:
        return person
    if isinstance(named, int):
        raise MEMBER_NOT_FOUND()
    return accounts.find_or_create_person(uow, named)


def _require_room(uow: UnitOfWork, settings: Settings, owner_id: int) -> None:
    """Raises ``plan.required``, ``quota.exceeded``."""
    if accounts.get(uow, owner_id).plan != Plan.PAID:
        raise PLAN_REQUIRED()
    # An import of the owner's may hold the quota for seconds.
    with locks.waiting_briefly(uow):
        if not quotas.share(uow, settings, owner_id, PlanQuota.MEMBERS, most=ROWS_PER_CHUNK):
            quotas.require(uow, settings, owner_id, PlanQuota.MEMBERS)


def _hold(uow: UnitOfWork, mailing_list: MailingList, user_id: int) -> Subscription:
    """The member, under the pair's lock; raises ``member.not_found``, also for an erased person."""
    if not locks.lock_pair(uow, user_id, mailing_list.id):
        raise MEMBER_NOT_FOUND()
    return get(uow, mailing_list, user_id)


def subscriptions_to_owner(
    uow: UnitOfWork, mailing_list: MailingList, user_id: int, wanted: PageRequest
) -> PageOfRows[tuple[Subscription, MailingList]]:
    """The member's records on all lists of this list's owner, newest first.

    Raises ``member.not_found``, ``cursor.invalid``.
    """
    get(uow, mailing_list, user_id)
    of_owner = MailingList.user_id == mailing_list.user_id
    return own.find_with_lists(uow, wanted, Subscription.user_id == user_id, of_owner)


def history(
    uow: UnitOfWork, mailing_list: MailingList, user_id: int, wanted: PageRequest
) -> PageOfRows[SubscriptionEvent]:
    """The events of the member's subscription, newest first. Raises ``cursor.invalid``.

    For a member who came by an import the last event is that import. Imports store no event for
    each new member, so this one is made up here and has no id.
    """
    member = get(uow, mailing_list, user_id)
    own = (SubscriptionEvent.list_id == mailing_list.id, SubscriptionEvent.user_id == user_id)
    query = paging.by_id(select(SubscriptionEvent).where(*own), SubscriptionEvent.id, wanted)
    events = list(uow.session.scalars(query))
    is_last_page = len(events) <= wanted.limit
    if is_last_page and member.import_id is not None and member.source == "import":
        stored = select(func.count()).where(*own)
        is_within = bool(events) or wanted.cursor is not None
        if is_within or wanted.offset <= (uow.session.scalar(stored) or 0):
            events.append(_imported(uow, member, member.import_id))
    return paging.cut(events, wanted.limit, lambda event: str(event.id))


def _imported(uow: UnitOfWork, member: Subscription, import_id: int) -> SubscriptionEvent:
    """The event of the import by which the member came."""
    own = (
        SubscriptionEvent.list_id == member.list_id,
        SubscriptionEvent.user_id == member.user_id,
    )
    # The owner of the list makes every import into it, so a later import names the same person.
    task = uow.session.get_one(MemberImport, import_id)
    first_change = select(SubscriptionEvent.email_enabled_before).where(*own)
    had_mail = uow.session.scalar(first_change.order_by(SubscriptionEvent.id).limit(1))
    return SubscriptionEvent(
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
