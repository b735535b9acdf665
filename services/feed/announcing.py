"""Announcing: an event of the feed is written in the transaction of the change that it tells of."""

from sqlalchemy import select

from models import FeedEvent, MailingList
from services.feed.catalogue import FeedEventType
from storage.unit_of_work import UnitOfWork

# Ids, counts and our own words. Never an address, a name or another text of a person's.
StoredFact = int | str | bool | None


def announce(
    uow: UnitOfWork,
    user_id: int,
    kind: FeedEventType,
    /,
    subject_id: int | None = None,
    *,
    list_id: int | None = None,
    **data: StoredFact,
) -> None:
    """Write an event of this owner; it is there if the transaction commits.

    Args:
        subject_id: of the record that the event is about, of the kind that the catalogue says.
        list_id: the list that the event is about, if it is about one.
        data: 2,000 bytes at most.
    """
    row = FeedEvent(user_id=user_id, type=kind, subject_id=subject_id, list_id=list_id, data=data)
    uow.session.add(row)


def announce_of_list(
    uow: UnitOfWork,
    list_id: int,
    kind: FeedEventType,
    /,
    subject_id: int | None = None,
    **data: StoredFact,
) -> None:
    """``announce`` to the owner of the list, who is looked up by the insert itself."""
    owner = select(MailingList.user_id).where(MailingList.id == list_id).scalar_subquery()
    row = FeedEvent(user_id=owner, type=kind, subject_id=subject_id, list_id=list_id, data=data)
    uow.session.add(row)
