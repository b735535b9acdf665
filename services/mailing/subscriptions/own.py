"""How a person stands with a list, as that person may see it. Nothing is held or changed here."""

from dataclasses import dataclass
from enum import StrEnum

from core.keyring import Keyring
from models import MailingList, OptOutKind, Subscription, SubscriptionStatus, User
from services.mailing.subscriptions import changes, opt_outs
from storage.unit_of_work import UnitOfWork


class OwnState(StrEnum):
    SUBSCRIBED = "subscribed"
    WITHOUT_MAIL = "without_mail"  # a subscriber, and nothing is mailed to them
    PENDING = "pending"
    LEFT = "left"  # by their own act, with or without a record of them
    ABSENT = "absent"


@dataclass(frozen=True)
class Own:
    state: OwnState
    # Where the list is sent to, as its record has it.
    email: str | None


def read(uow: UnitOfWork, keyring: Keyring, mailing_list: MailingList, person: User) -> Own:
    record = changes.find(uow, mailing_list.id, person.id)
    refused = opt_outs.kinds_of(uow, opt_outs.signer(keyring), mailing_list.id, person)
    return Own(_state(record, refused), None if record is None else record.email)


def _state(record: Subscription | None, refused: set[OptOutKind]) -> OwnState:
    status = None if record is None else record.status
    if record is not None and status == SubscriptionStatus.ACTIVE:
        return OwnState.SUBSCRIBED if record.email_enabled else OwnState.WITHOUT_MAIL
    if status == SubscriptionStatus.PENDING:
        return OwnState.PENDING
    if status == SubscriptionStatus.UNSUBSCRIBED or OptOutKind.LIST in refused:
        return OwnState.LEFT
    return OwnState.ABSENT
