"""The transfer of a member between two lists of one owner."""

from dataclasses import asdict, dataclass
from datetime import datetime

from core.keyring import Keyring
from core.refusals.mailing import MEMBER_NOT_FOUND, TRANSFER_SAME_LIST
from models import MailingList, OptOutKind, Subscription, SubscriptionStatus, Tier
from services.mailing.subscriptions import changes, locks, members, opt_outs, subscribe
from services.mailing.subscriptions.changes import Actor
from services.people import accounts, mailed_tokens
from storage.unit_of_work import UnitOfWork

_TIERS = (Tier.FREE, Tier.SILVER, Tier.GOLD)


@dataclass(frozen=True)
class MergedSubscription:
    """The values that the target list's record gets."""

    status: str
    type: str
    paid_expiry: datetime | None
    email_enabled: bool


def transfer(
    uow: UnitOfWork,
    keyring: Keyring,
    source: MailingList,
    target: MailingList,
    user_id: int,
    *,
    actor: Actor,
) -> int:
    """Move a member to another list: 1, or 0 for a member who was removed from the source already.

    The source keeps the record as removed; a record on the target is merged with it. The person's
    opt-outs from either hold on the target. Raises ``member.not_found``, ``transfer.same_list``.
    """
    if source.id == target.id:
        raise TRANSFER_SAME_LIST()
    if not locks.lock_pair(uow, user_id, source.id, target.id):
        raise MEMBER_NOT_FOUND()
    leaving = members.get(uow, source, user_id)
    if leaving.status == SubscriptionStatus.REMOVED:
        return 0
    there = changes.find(uow, target.id, user_id)
    values = asdict(merge(leaving, there, _carry_opt_outs(uow, keyring, source, target, user_id)))
    if there is None:
        arriving = Subscription(
            list_id=target.id,
            user_id=user_id,
            name=leaving.name,
            email=leaving.email,
            source="transfer",
            confirmation_asked_at=leaving.confirmation_asked_at,
            **values,
        )
        there = changes.add(uow, arriving, "transferred_in", actor)
    else:
        changes.change(uow, there, "transferred_in", actor, **values)
    if leaving.status == SubscriptionStatus.PENDING:
        _move_confirmation(uow, leaving, there, actor)
    changes.change(uow, leaving, "transferred_away", actor, status=SubscriptionStatus.REMOVED)
    return 1


def _carry_opt_outs(
    uow: UnitOfWork, keyring: Keyring, source: MailingList, target: MailingList, user_id: int
) -> set[OptOutKind]:
    """Copy the person's opt-outs from source to target; returns all that hold on the target now."""
    person = accounts.get(uow, user_id)
    carried = opt_outs.kinds_of(uow, keyring, source.id, person)
    for kind in sorted(carried):
        opt_outs.record(uow, keyring, target.id, person, kind=kind, source="transfer")
    return carried | opt_outs.kinds_of(uow, keyring, target.id, person)


def merge(
    leaving: Subscription, there: Subscription | None, opted_out: set[OptOutKind]
) -> MergedSubscription:
    """The values of both records in one: the better status and tier, and mail only if both have it.

    An opt-out from the list rules out active; a pending person may still confirm despite it.
    """
    # A record that was removed from the target tells the past, so it takes no part.
    present = there if there and there.status != SubscriptionStatus.REMOVED else None
    both = [leaving, *([present] if present else [])]
    statuses = {each.status for each in both}
    if SubscriptionStatus.ACTIVE in statuses and OptOutKind.LIST not in opted_out:
        status = SubscriptionStatus.ACTIVE
    elif SubscriptionStatus.PENDING in statuses:
        status = SubscriptionStatus.PENDING
    else:
        status = SubscriptionStatus.UNSUBSCRIBED
    paid = [each.paid_expiry for each in both if each.type != Tier.FREE]
    known = [each.paid_expiry for each in both if each.paid_expiry is not None]
    return MergedSubscription(
        status=status,
        type=max((Tier(each.type) for each in both), key=_TIERS.index),
        # A paid tier without an expiry never ends.
        paid_expiry=None if None in paid else max(known, default=None),
        email_enabled=OptOutKind.EMAIL not in opted_out
        and all(each.email_enabled for each in both),
    )


def _move_confirmation(
    uow: UnitOfWork, leaving: Subscription, there: Subscription, actor: Actor
) -> None:
    """Let the mailed token confirm the subscription to the target instead."""
    moved = mailed_tokens.move_to_list(
        uow, user_id=leaving.user_id, list_id=leaving.list_id, to_list_id=there.list_id
    )
    # No token exists before the mail is sent; its job then finds no pending record on the source.
    if not moved and there.status == SubscriptionStatus.PENDING:
        subscribe.mail(uow, subscribe.MAIL_CONFIRMATION, there, actor)
