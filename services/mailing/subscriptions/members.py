"""Acts of an owner on the members of a list. None of them overrides a person's opt-out."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import func, select

from core.keyring import Keyring
from core.refusals.mailing import MEMBER_NOT_FOUND, SUBSCRIPTION_OPTED_OUT
from models import MailingList, MemberImport, Subscription, SubscriptionEvent, SubscriptionStatus
from services import paging
from services.mailing.subscriptions import changes, locks, opt_outs
from services.mailing.subscriptions.changes import Actor, ActorKind, Via
from services.paging import PageOfRows, PageRequest
from services.people import accounts
from storage.unit_of_work import UnitOfWork


def get(uow: UnitOfWork, mailing_list: MailingList, user_id: int) -> Subscription:
    """Raises ``member.not_found``."""
    found = changes.find(uow, mailing_list.id, user_id)
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


def update(
    uow: UnitOfWork,
    mailing_list: MailingList,
    user_id: int,
    fields: Mapping[str, Any],
    actor: Actor,
) -> Subscription:
    """Set the list's own name for the member, the member's tier and its expiry."""
    member = _hold(uow, mailing_list, user_id)
    changes.change(uow, member, "edited", actor, **fields)
    return member


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
    return changes.find_with_lists(uow, wanted, Subscription.user_id == user_id, of_owner)


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
