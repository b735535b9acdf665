"""Reads and changes a person's subscriptions to the lists of one owner for the preferences page."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Select, select

from core.errors import FieldProblem
from core.errors.mailing import FIELD_VALUE, LIST_NOT_FOUND, SUBSCRIPTION_NOT_FOUND
from models import MailingList, Subscription, SubscriptionStatus
from services.subscriptions import branding, fields
from services.subscriptions.branding import Look
from services.subscriptions.members import changes, person_subscriptions
from services.subscriptions.members.changes import Actor
from services.subscriptions.members.locks import lock_subscription
from services.subscriptions.members.person_subscriptions import OwnSubscription
from services.subscriptions.preferences.visits import Visit
from storage.unit_of_work import UnitOfWork

# The maximum number of lists on the preferences page.
MAX_SHOWN_LISTS = 100
MAX_NAME_CHARACTERS = 200
# A visitor may leave subscriptions with these statuses, and change their name and fields.
_CURRENT_STATUSES = (SubscriptionStatus.ACTIVE, SubscriptionStatus.PENDING)


@dataclass(frozen=True)
class OwnList:
    mailing_list: MailingList
    subscription: OwnSubscription


def read_lists(uow: UnitOfWork, visit: Visit) -> list[OwnList]:
    """Omit lists from which the owner has removed the visitor.

    The list on whose page the visitor requested the link comes first.
    """
    mailing_lists = uow.session.scalars(_select_lists(visit).limit(MAX_SHOWN_LISTS)).all()
    return [
        OwnList(each, person_subscriptions.read_own_subscription(uow, each, visit.person))
        for each in mailing_lists
    ]


def read_look(uow: UnitOfWork, visit: Visit) -> Look:
    """Return the list's look if the visitor has exactly one list, or else the default look."""
    mailing_lists = uow.session.scalars(_select_lists(visit).limit(2)).all()
    return branding.read_look(uow, mailing_lists[0]) if len(mailing_lists) == 1 else Look()


def _select_lists(visit: Visit) -> Select[MailingList]:
    return (
        select(MailingList)
        .join(Subscription, Subscription.list_id == MailingList.id)
        .where(MailingList.user_id == visit.owner_id, Subscription.user_id == visit.person.id)
        .where(Subscription.status != SubscriptionStatus.REMOVED)
        .order_by(MailingList.id != visit.mailing_list.id, MailingList.title, MailingList.id)
    )


def find_list(uow: UnitOfWork, visit: Visit, list_id: int) -> tuple[MailingList, Subscription]:
    mailing_list = uow.session.get(MailingList, list_id)
    record = changes.find_record(uow, list_id, visit.person.id)
    is_own = mailing_list is not None and mailing_list.user_id == visit.owner_id
    if mailing_list is None or record is None or not is_own:
        raise LIST_NOT_FOUND()
    return mailing_list, record


def find_joined_list_ids(uow: UnitOfWork, visit: Visit) -> list[int]:
    query = _select_lists(visit).where(Subscription.status.in_(_CURRENT_STATUSES))
    return list(uow.session.scalars(query.with_only_columns(MailingList.id)))


def change_answers(
    uow: UnitOfWork,
    visit: Visit,
    list_id: int,
    actor: Actor,
    *,
    name: str | None,
    values: Mapping[str, str],
) -> bool:
    """Change answers. An empty string deletes a value. The name ``None`` isn't changed.

    Return whether all answers were saved. Answers to fields that aren't public are ignored, because
    the owner may have changed the fields since the page was opened.
    """
    mailing_list, _ = find_list(uow, visit, list_id)
    locked = lock_subscription(uow, mailing_list, visit.person)
    record = None if locked is None else locked.record
    if record is None or record.status not in _CURRENT_STATUSES:
        raise SUBSCRIPTION_NOT_FOUND()
    name = record.name or "" if name is None else name
    if len(name) > MAX_NAME_CHARACTERS:
        problem = FieldProblem(
            "body.name", FIELD_VALUE.code, f"must have at most {MAX_NAME_CHARACTERS} characters"
        )
        raise FIELD_VALUE(rules=f"body.name: {problem.message}", problems=(problem,))
    public_fields = fields.read_own_fields(uow, mailing_list.user_id).select_public()
    public_values = {key: text for key, text in values.items() if key in public_fields.by_key}
    new_values = fields.merge_values(
        record.fields, public_fields.parse_values(public_values, is_text=True)
    )
    changes.change_record(
        uow, record, "edited", actor, name=name.strip() or None, fields=new_values
    )
    return len(public_values) == len(values)
