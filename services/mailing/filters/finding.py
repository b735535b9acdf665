"""Lists and members by the words that their owner remembers of them, over all of the owner's lists.

What a search costs grows with the owner's lists, and not with their members.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, literal, or_, select, true
from sqlalchemy.orm import aliased

from models import MailingList, Subscription, SubscriptionStatus
from services.access.caller import Caller
from storage.unit_of_work import UnitOfWork

MIN_SOUGHT_CHARACTERS = 2
MAX_SOUGHT_CHARACTERS = 200
MAX_FOUND_OF_EACH = 10


@dataclass(frozen=True)
class FoundMember:
    list_id: int
    list_title: str
    user_id: int
    email: str
    name: str | None


@dataclass(frozen=True)
class Found:
    lists: Sequence[MailingList]
    members: Sequence[FoundMember]


def find(uow: UnitOfWork, caller: Caller, sought: str) -> Found:
    """The caller's lists whose title or slug has these words, and active members whose address
    begins so. Nothing for fewer than ``MIN_SOUGHT_CHARACTERS``."""
    words = unicodedata.normalize("NFC", sought.strip()).lower()
    if not MIN_SOUGHT_CHARACTERS <= len(words) <= MAX_SOUGHT_CHARACTERS:
        return Found([], [])
    pattern = re.sub(r"([\\%_])", r"\\\1", words)
    return Found(_lists(uow, caller, pattern), _members(uow, caller, pattern))


def _lists(uow: UnitOfWork, caller: Caller, pattern: str) -> Sequence[MailingList]:
    query = (
        select(MailingList)
        .where(MailingList.user_id == caller.user_id, MailingList.archived_at.is_(None))
        .where(
            or_(
                func.lower(MailingList.title).like(f"%{pattern}%"),
                MailingList.slug.like(f"%{pattern}%"),
            )
        )
        .order_by(MailingList.created_at.desc(), MailingList.id.desc())
        .limit(MAX_FOUND_OF_EACH)
    )
    return uow.session.scalars(query).all()


def _members(uow: UnitOfWork, caller: Caller, pattern: str) -> Sequence[FoundMember]:
    """Each list has its own look into the index of addresses, so that a long list costs no more."""
    record = aliased(Subscription)
    of_list = (
        select(record.user_id, record.email, record.name)
        .where(
            record.list_id == MailingList.id,
            # Written out, as the index's own condition is.
            record.status == literal(SubscriptionStatus.ACTIVE.value, literal_execute=True),
            record.email.like(f"{pattern}%"),
        )
        .limit(MAX_FOUND_OF_EACH)
        .lateral()
    )
    query = (
        select(
            MailingList.id, MailingList.title, of_list.c.user_id, of_list.c.email, of_list.c.name
        )
        .join(of_list, true())
        .where(MailingList.user_id == caller.user_id, MailingList.archived_at.is_(None))
        .order_by(of_list.c.email, MailingList.id)
        .limit(MAX_FOUND_OF_EACH)
    )
    return [
        FoundMember(list_id, title, user_id, email or "", name)
        for list_id, title, user_id, email, name in uow.session.execute(query).tuples()
    ]
