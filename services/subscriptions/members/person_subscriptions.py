"""Reads the subscriptions of one person, for the person or for the owner of the lists."""

from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import ColumnElement, not_, select

from core.errors import mailing as errors
from core.ids import PersonId
from models import MailingList, OptOutKind, Subscription, SubscriptionStatus, User
from services import paging
from services.paging import PageOfRows, PageRequest
from services.subscriptions.members import changes, opt_out_checks
from services.subscriptions.members.members import get_member
from storage.unit_of_work import UnitOfWork

# A person's overview of subscriptions contains only subscriptions with these statuses.
_CURRENT_STATUSES = (SubscriptionStatus.ACTIVE, SubscriptionStatus.PENDING)


class OwnSubscriptionState(StrEnum):
    SUBSCRIBED = "subscribed"
    WITHOUT_MAIL = "without_mail"  # The subscriber has disabled the list's mail.
    PENDING = "pending"
    # The person has unsubscribed from the list. A person who has opted out of the list has this
    # state even if the list has no record of the person.
    LEFT = "left"
    ABSENT = "absent"
    # The links in a mail contain a trace id, which authenticates the mail's recipient. A visitor
    # with a revoked trace id can unsubscribe, but can't see the state of the subscription.
    HIDDEN = "untold"


@dataclass(frozen=True)
class OwnSubscription:
    state: OwnSubscriptionState
    email: str | None


def read_own_subscription(
    uow: UnitOfWork, mailing_list: MailingList, person: User | None
) -> OwnSubscription:
    """Return the state after opt-outs. ``person`` is ``None`` if the account was purged."""
    if person is None:
        return OwnSubscription(OwnSubscriptionState.ABSENT, None)
    record = changes.find_record(uow, mailing_list.id, person.id)
    opt_out_kinds = opt_out_checks.find_opt_outs(uow, mailing_list.id, person)
    if record is not None:
        _display_opt_outs(uow, record)
    status = None if record is None else record.status
    if record is not None and status == SubscriptionStatus.ACTIVE:
        has_mail = record.email_enabled
        state = OwnSubscriptionState.SUBSCRIBED if has_mail else OwnSubscriptionState.WITHOUT_MAIL
    elif status == SubscriptionStatus.PENDING:
        state = OwnSubscriptionState.PENDING
    elif status == SubscriptionStatus.UNSUBSCRIBED or OptOutKind.LIST in opt_out_kinds:
        state = OwnSubscriptionState.LEFT
    else:
        state = OwnSubscriptionState.ABSENT
    return OwnSubscription(state, None if record is None else record.email)


def hide_personal_state(subscription: OwnSubscription) -> OwnSubscription:
    """Hide the state and the address from a visitor with a revoked trace id.

    An opt-out isn't hidden, because the visitor may just have opted out with the trace id.
    """
    has_opted_out = subscription.state in (
        OwnSubscriptionState.LEFT,
        OwnSubscriptionState.WITHOUT_MAIL,
    )
    state = subscription.state if has_opted_out else OwnSubscriptionState.HIDDEN
    return OwnSubscription(state, None)


def get_own_subscription(uow: UnitOfWork, list_id: int, person_id: PersonId) -> Subscription:
    record = changes.find_record(uow, list_id, person_id)
    if record is None:
        raise errors.SUBSCRIPTION_NOT_FOUND()
    _display_opt_outs(uow, record)
    return record


def _display_opt_outs(uow: UnitOfWork, record: Subscription) -> None:
    """Apply opt-outs without storing them, because a job does so only after a bulk action."""
    values = opt_out_checks.find_opt_out_changes(uow, record)
    # Detach the record from the SQLAlchemy session, so that changes to the record aren't stored.
    uow.session.expunge(record)
    for name, value in values.items():
        setattr(record, name, value)


def list_subscriptions(
    uow: UnitOfWork, person_id: PersonId, page: PageRequest
) -> PageOfRows[tuple[Subscription, MailingList]]:
    return _find_subscriptions_with_lists(
        uow,
        page,
        Subscription.user_id == person_id,
        Subscription.status.in_(_CURRENT_STATUSES),
        not_(opt_out_checks.HAS_LEFT),
    )


def list_subscriptions_to_owner(
    uow: UnitOfWork, mailing_list: MailingList, person_id: PersonId, page: PageRequest
) -> PageOfRows[tuple[Subscription, MailingList]]:
    get_member(uow, mailing_list, person_id)
    is_owned = MailingList.user_id == mailing_list.user_id
    return _find_subscriptions_with_lists(uow, page, Subscription.user_id == person_id, is_owned)


def _find_subscriptions_with_lists(
    uow: UnitOfWork, page: PageRequest, *conditions: ColumnElement[bool]
) -> PageOfRows[tuple[Subscription, MailingList]]:
    query = (
        select(Subscription, MailingList)
        .join(MailingList, MailingList.id == Subscription.list_id)
        .where(*conditions, MailingList.archived_at.is_(None))
    )
    rows = uow.session.execute(paging.select_page_by_id(query, Subscription.id, page))
    pairs = [(record, mailing_list) for record, mailing_list in rows]
    return paging.cut_page(pairs, page.limit, lambda pair: str(pair[0].id))
