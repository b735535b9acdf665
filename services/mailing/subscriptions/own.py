"""How a person stands with a list, as that person may see it. Nothing is held or changed here."""

from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import select

from core.keyring import Keyring
from core.refusals.mailing import SUBSCRIPTION_NOT_FOUND
from models import MailingList, OptOutKind, Subscription, SubscriptionStatus, User
from services.mailing.subscriptions import changes, opt_outs
from storage.unit_of_work import UnitOfWork

MAX_SUBSCRIPTIONS = 1000
# What the person takes part in; what they left they know.
_CURRENT = (SubscriptionStatus.ACTIVE, SubscriptionStatus.PENDING)


class OwnSubscriptionState(StrEnum):
    SUBSCRIBED = "subscribed"
    WITHOUT_MAIL = "without_mail"  # a subscriber, and nothing is mailed to them
    PENDING = "pending"
    LEFT = "left"  # by their own act, with or without a record of them
    ABSENT = "absent"


@dataclass(frozen=True)
class OwnSubscription:
    state: OwnSubscriptionState
    # Where the list is sent to, as its record has it.
    email: str | None


def read(
    uow: UnitOfWork, keyring: Keyring, mailing_list: MailingList, person: User
) -> OwnSubscription:
    record = changes.find(uow, mailing_list.id, person.id)
    refused = opt_outs.kinds_of(uow, keyring, mailing_list.id, person)
    return OwnSubscription(_state(record, refused), None if record is None else record.email)


def _state(record: Subscription | None, refused: set[OptOutKind]) -> OwnSubscriptionState:
    status = None if record is None else record.status
    if record is not None and status == SubscriptionStatus.ACTIVE:
        return (
            OwnSubscriptionState.SUBSCRIBED
            if record.email_enabled
            else OwnSubscriptionState.WITHOUT_MAIL
        )
    if status == SubscriptionStatus.PENDING:
        return OwnSubscriptionState.PENDING
    if status == SubscriptionStatus.UNSUBSCRIBED or OptOutKind.LIST in refused:
        return OwnSubscriptionState.LEFT
    return OwnSubscriptionState.ABSENT


def own_subscriptions(uow: UnitOfWork, user_id: int) -> list[tuple[Subscription, MailingList]]:
    """What the person subscribes to, newest first; at most 1,000."""
    query = (
        select(Subscription, MailingList)
        .join(MailingList, MailingList.id == Subscription.list_id)
        .where(
            Subscription.user_id == user_id,
            Subscription.status.in_(_CURRENT),
            MailingList.archived_at.is_(None),
        )
        .order_by(Subscription.id.desc())
        .limit(MAX_SUBSCRIPTIONS)
    )
    return [(each, of) for each, of in uow.session.execute(query)]


def own_subscription(uow: UnitOfWork, list_id: int, user_id: int) -> Subscription:
    """The person's record on a list, in whatever status; raises ``subscription.not_found``."""
    found = changes.find(uow, list_id, user_id)
    if found is None:
        raise SUBSCRIPTION_NOT_FOUND()
    return found
