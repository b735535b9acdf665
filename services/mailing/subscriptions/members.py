"""What an owner does with the people on a list. None of it goes against what a person said."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import func, select

from core.keyring import Keyring
from core.refusals.mailing import MEMBER_NOT_FOUND, SUBSCRIPTION_OPTED_OUT
from models import (
    MailingList,
    MemberImport,
    Subscription,
    SubscriptionEvent,
    SubscriptionStatus,
)
from services.mailing.subscriptions import changes, locks, opt_outs
from services.mailing.subscriptions.changes import Actor, ActorKind, Via
from services.people import accounts
from storage.unit_of_work import UnitOfWork

MAX_SUBSCRIPTIONS = 1000


def get(uow: UnitOfWork, mailing_list: MailingList, user_id: int) -> Subscription:
    """Raises ``member.not_found``."""
    found = changes.find(uow, mailing_list.id, user_id)
    if found is None:
        raise MEMBER_NOT_FOUND()
    return found


def remove(uow: UnitOfWork, mailing_list: MailingList, user_id: int, actor: Actor) -> int:
    """Take the member off the list: 1, or 0 when they were off. Who opted out stays opted out."""
    member = _hold(uow, mailing_list, user_id)
    removed = SubscriptionStatus.REMOVED
    return int(changes.change(uow, member, "removed", actor, status=removed))


def set_email(
    uow: UnitOfWork,
    keyring: Keyring,
    mailing_list: MailingList,
    user_id: int,
    actor: Actor,
    *,
    enabled: bool,
) -> int:
    """Switch the member's mail off or on; raises ``subscription.opted_out`` for who said no."""
    member = _hold(uow, mailing_list, user_id)
    person = accounts.get(uow, user_id)
    if enabled and opt_outs.kinds_of(uow, keyring, mailing_list.id, person):
        raise SUBSCRIPTION_OPTED_OUT()
    action = "email_enabled" if enabled else "email_disabled"
    return int(changes.change(uow, member, action, actor, email_enabled=enabled))


def update(
    uow: UnitOfWork,
    mailing_list: MailingList,
    user_id: int,
    fields: Mapping[str, Any],
    actor: Actor,
) -> Subscription:
    """Set the list's own name for the member, their tier and its expiry."""
    member = _hold(uow, mailing_list, user_id)
    changes.change(uow, member, "edited", actor, **fields)
    return member


def _hold(uow: UnitOfWork, mailing_list: MailingList, user_id: int) -> Subscription:
    """The member, whom nobody else changes now; raises ``member.not_found``, if erased too."""
    if not locks.lock_pair(uow, user_id, mailing_list.id):
        raise MEMBER_NOT_FOUND()
    return get(uow, mailing_list, user_id)


def subscriptions_to_owner(
    uow: UnitOfWork, mailing_list: MailingList, user_id: int
) -> list[tuple[Subscription, MailingList]]:
    """The member's records on all lists of this list's owner, newest first."""
    get(uow, mailing_list, user_id)
    query = (
        select(Subscription, MailingList)
        .join(MailingList, MailingList.id == Subscription.list_id)
        .where(
            Subscription.user_id == user_id,
            MailingList.user_id == mailing_list.user_id,
            MailingList.archived_at.is_(None),
        )
        .order_by(Subscription.id.desc())
        .limit(MAX_SUBSCRIPTIONS)
    )
    return [(each, of) for each, of in uow.session.execute(query)]


def history(
    uow: UnitOfWork, mailing_list: MailingList, user_id: int, *, offset: int, limit: int
) -> list[SubscriptionEvent]:
    """What happened to the member's subscription, newest first.

    Last comes the import that brought them, where one did: it keeps no event for each member, so
    that entry has no id.
    """
    member = get(uow, mailing_list, user_id)
    theirs = (SubscriptionEvent.list_id == mailing_list.id, SubscriptionEvent.user_id == user_id)
    query = select(SubscriptionEvent).where(*theirs).order_by(SubscriptionEvent.id.desc())
    events = list(uow.session.scalars(query.offset(offset).limit(limit)))
    if member.import_id is None or member.source != "import" or len(events) == limit:
        return events
    kept = offset + len(events)
    if not events:
        kept = uow.session.scalar(select(func.count()).where(*theirs)) or 0
    return [*events, _brought(uow, member)] if offset <= kept else events


def _brought(uow: UnitOfWork, member: Subscription) -> SubscriptionEvent:
    """How an import made the member's record, told by the record itself."""
    # Of all imports into a list, the importer is its owner: one that came later names them as well.
    task = uow.session.get_one(MemberImport, member.import_id)
    first_change = (
        select(SubscriptionEvent.email_enabled_before)
        .where(
            SubscriptionEvent.list_id == member.list_id,
            SubscriptionEvent.user_id == member.user_id,
        )
        .order_by(SubscriptionEvent.id)
        .limit(1)
    )
    had_mail = uow.session.scalar(first_change)
    return SubscriptionEvent(
        list_id=member.list_id,
        user_id=member.user_id,
        action="imported",
        actor=ActorKind.IMPORT,
        actor_id=task.user_id,
        via=Via.IMPORT,
        status_after=SubscriptionStatus.ACTIVE,
        email_enabled_after=member.email_enabled if had_mail is None else had_mail,
        # The moment of the import: a record that it makes is as old as that.
        created_at=member.created_at,
    )
