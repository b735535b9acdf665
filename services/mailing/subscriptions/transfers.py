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
    """What the target list's record becomes."""

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
    """Move a member between two lists of one owner: 1, or 0 for one who was taken off already.

    The source keeps them as removed. Where the target has them the records merge, and what the
    person said no to on either list holds on the target. Raises ``member.not_found``,
    ``transfer.same_list``.
    """
    if source.id == target.id:
        raise TRANSFER_SAME_LIST()
    if not locks.lock_pair(uow, user_id, source.id, target.id):
        raise MEMBER_NOT_FOUND()
    leaving = members.get(uow, source, user_id)
    if leaving.status == SubscriptionStatus.REMOVED:
        return 0
    said_no_to = _carry_opt_outs(uow, keyring, source, target, user_id)
    there = changes.find(uow, target.id, user_id)
    merged = merge(leaving, there, said_no_to)
    if there is None:
        there = _arrive(uow, leaving, target, merged, actor)
    else:
        changes.change(uow, there, "transferred_in", actor, **asdict(merged))
    if leaving.status == SubscriptionStatus.PENDING:
        _let_confirmation_follow(uow, leaving, there, actor)
    removed = SubscriptionStatus.REMOVED
    changes.change(uow, leaving, "transferred_away", actor, status=removed)
    return 1


def _carry_opt_outs(
    uow: UnitOfWork, keyring: Keyring, source: MailingList, target: MailingList, user_id: int
) -> set[OptOutKind]:
    """What the person said no to on either list, which holds on the target from now on."""
    person = accounts.get(uow, user_id)
    carried = opt_outs.kinds_of(uow, keyring, source.id, person)
    for kind in sorted(carried):
        opt_outs.record(uow, keyring, target.id, person, kind=kind, source="transfer")
    return carried | opt_outs.kinds_of(uow, keyring, target.id, person)


def merge(
    leaving: Subscription, there: Subscription | None, said_no_to: set[OptOutKind]
) -> MergedSubscription:
    # A record that was taken off the target says how things were, not how they are.
    present = there if there and there.status != SubscriptionStatus.REMOVED else None
    both = [leaving, *([present] if present else [])]
    return MergedSubscription(
        status=_status({each.status for each in both}, said_no_to),
        type=max((Tier(each.type) for each in both), key=_TIERS.index),
        paid_expiry=_later_expiry(both),
        email_enabled=OptOutKind.EMAIL not in said_no_to
        and all(each.email_enabled for each in both),
    )


def _status(statuses: set[str], said_no_to: set[OptOutKind]) -> str:
    if SubscriptionStatus.ACTIVE in statuses and OptOutKind.LIST not in said_no_to:
        return SubscriptionStatus.ACTIVE
    # Waiting for the person's own yes goes well with an earlier no.
    if SubscriptionStatus.PENDING in statuses:
        return SubscriptionStatus.PENDING
    return SubscriptionStatus.UNSUBSCRIBED


def _later_expiry(records: list[Subscription]) -> datetime | None:
    """The later expiry; a paid tier without one never ends."""
    paid = [each.paid_expiry for each in records if each.type != Tier.FREE]
    if None in paid:
        return None
    known = [each.paid_expiry for each in records if each.paid_expiry is not None]
    return max(known, default=None)


def _arrive(
    uow: UnitOfWork,
    leaving: Subscription,
    target: MailingList,
    merged: MergedSubscription,
    actor: Actor,
) -> Subscription:
    arriving = Subscription(
        list_id=target.id,
        user_id=leaving.user_id,
        name=leaving.name,
        email=leaving.email,
        source="transfer",
        confirmation_asked_at=leaving.confirmation_asked_at,
        **asdict(merged),
    )
    return changes.add(uow, arriving, "transferred_in", actor)


def _let_confirmation_follow(
    uow: UnitOfWork, leaving: Subscription, there: Subscription, actor: Actor
) -> None:
    mailed = mailed_tokens.move_to_list(
        uow, user_id=leaving.user_id, list_id=leaving.list_id, to_list_id=there.list_id
    )
    # Before the mail is out there is no link yet, and its job finds nobody waiting on the source.
    if not mailed and there.status == SubscriptionStatus.PENDING:
        subscribe.mail_confirmation(uow, there, actor)
