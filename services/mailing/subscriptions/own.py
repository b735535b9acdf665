"""A person's own view of their subscriptions. It takes no lock and changes nothing."""

from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import ColumnElement, not_, select

from core.keyring import Keyring
from core.refusals.mailing import SUBSCRIPTION_NOT_FOUND
from models import MailingList, OptOutKind, Subscription, SubscriptionStatus, User
from services import paging
from services.mailing.subscriptions import changes, opt_outs
from services.paging import PageOfRows, PageRequest
from storage.unit_of_work import UnitOfWork

# Lists that the person left are not shown to them.
_CURRENT = (SubscriptionStatus.ACTIVE, SubscriptionStatus.PENDING)


class OwnSubscriptionState(StrEnum):
    SUBSCRIBED = "subscribed"
    WITHOUT_MAIL = "without_mail"  # a subscriber who gets no mail
    PENDING = "pending"
    LEFT = "left"  # by the person's own act, with or without a record of them
    ABSENT = "absent"
    UNTOLD = "untold"  # the one who asks may leave, and learns no more


@dataclass(frozen=True)
class OwnSubscription:
    state: OwnSubscriptionState
    # The address of the list's record, to which the list is sent.
    email: str | None


def read(
    uow: UnitOfWork, keyring: Keyring, mailing_list: MailingList, person: User | None
) -> OwnSubscription:
    """The person's state on the list; ``None`` stands for a person who was purged."""
    if person is None:
        return OwnSubscription(OwnSubscriptionState.ABSENT, None)
    record = changes.find(uow, mailing_list.id, person.id)
    refused = opt_outs.kinds_of(uow, keyring, mailing_list.id, person)
    if record is not None:
        _show_settled(uow, record)
    status = None if record is None else record.status
    if record is not None and status == SubscriptionStatus.ACTIVE:
        has_mail = record.email_enabled
        state = OwnSubscriptionState.SUBSCRIBED if has_mail else OwnSubscriptionState.WITHOUT_MAIL
    elif status == SubscriptionStatus.PENDING:
        state = OwnSubscriptionState.PENDING
    elif status == SubscriptionStatus.UNSUBSCRIBED or OptOutKind.LIST in refused:
        state = OwnSubscriptionState.LEFT
    else:
        state = OwnSubscriptionState.ABSENT
    return OwnSubscription(state, None if record is None else record.email)


_LEFT_STATES = (OwnSubscriptionState.LEFT, OwnSubscriptionState.WITHOUT_MAIL)


def without_what_identifies(subscription: OwnSubscription) -> OwnSubscription:
    """What a revoked trace id shows: that its own click had an effect."""
    has_left = subscription.state in _LEFT_STATES
    return OwnSubscription(subscription.state if has_left else OwnSubscriptionState.UNTOLD, None)


def get(uow: UnitOfWork, list_id: int, user_id: int) -> Subscription:
    """The person's record on a list, in any status; raises ``subscription.not_found``."""
    found = changes.find(uow, list_id, user_id)
    if found is None:
        raise SUBSCRIPTION_NOT_FOUND()
    _show_settled(uow, found)
    return found


def _show_settled(uow: UnitOfWork, record: Subscription) -> None:
    """Show the person what they decided, though the record itself is not settled yet."""
    values = opt_outs.unsettled(uow, record)
    # Nothing may write this back.
    uow.session.expunge(record)
    for name, value in values.items():
        setattr(record, name, value)


def list_of(
    uow: UnitOfWork, user_id: int, wanted: PageRequest
) -> PageOfRows[tuple[Subscription, MailingList]]:
    """The person's active and pending subscriptions, newest first. Raises ``cursor.invalid``."""
    return find_with_lists(
        uow,
        wanted,
        Subscription.user_id == user_id,
        Subscription.status.in_(_CURRENT),
        not_(opt_outs.HAS_LEFT),
    )


def find_with_lists(
    uow: UnitOfWork, wanted: PageRequest, *conditions: ColumnElement[bool]
) -> PageOfRows[tuple[Subscription, MailingList]]:
    """Subscriptions to lists that are not archived, newest first. Raises ``cursor.invalid``."""
    query = (
        select(Subscription, MailingList)
        .join(MailingList, MailingList.id == Subscription.list_id)
        .where(*conditions, MailingList.archived_at.is_(None))
    )
    rows = uow.session.execute(paging.by_id(query, Subscription.id, wanted))
    found = [(record, mailing_list) for record, mailing_list in rows]
    return paging.cut(found, wanted.limit, lambda pair: str(pair[0].id))
