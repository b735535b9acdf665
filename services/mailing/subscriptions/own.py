"""How a person stands with a list, as that person may see it. Nothing is held or changed here."""

from dataclasses import dataclass
from enum import StrEnum

from core.keyring import Keyring
from models import MailingList, OptOutKind, Subscription, SubscriptionStatus, User
from services.mailing.subscriptions import changes, opt_outs
from storage.unit_of_work import UnitOfWork


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
