"""Filters that are kept: each names its fields by their ids, and by their keys when it is shown.

So a field may get another key, and that key may go to another field: a filter that is kept means
the same members.
"""

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import select

from core.refusals.segments import SEGMENT_FIELD_RETIRED
from models import MailingList, MemberField
from services.mailing.filters import member_filter
from services.mailing.filters.member_filter import MemberFilter
from storage.unit_of_work import UnitOfWork

_OF_FIELD = "fields."


def keep(uow: UnitOfWork, mailing_list: MailingList, written: Any) -> dict[str, Any]:
    """A caller's filter as it is stored; raises ``filter.invalid``."""
    member_filter.read(uow, mailing_list, written)
    living = (each for each in _fields(uow, mailing_list) if each.retired_at is None)
    ids = {each.key: str(each.id) for each in living}
    kept: dict[str, Any] = _renamed(written, ids.__getitem__)
    return kept


def read(uow: UnitOfWork, mailing_list: MailingList, kept: Mapping[str, Any]) -> MemberFilter:
    """The filter as it is now.

    Raises ``segment.field_retired``, and ``filter.invalid`` for a choice that its field has lost.
    """
    fields = {str(each.id): each for each in _fields(uow, mailing_list)}

    def key_of(field_id: str) -> str:
        if fields[field_id].retired_at is not None:
            raise SEGMENT_FIELD_RETIRED(key=fields[field_id].key)
        return fields[field_id].key

    return member_filter.read(uow, mailing_list, _renamed(kept, key_of))


def shown(
    uow: UnitOfWork, mailing_list: MailingList, *kept: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The filters as callers see them; a field that was retired has its last key."""
    keys = {str(each.id): each.key for each in _fields(uow, mailing_list)}
    return [_renamed(each, keys.__getitem__) for each in kept]


def _fields(uow: UnitOfWork, mailing_list: MailingList) -> list[MemberField]:
    """Those of the list's owner, retired ones too, which are never deleted before the owner is."""
    query = select(MemberField).where(MemberField.user_id == mailing_list.user_id)
    return list(uow.session.scalars(query))


def _renamed(node: Any, name_of: Callable[[str], str]) -> Any:
    """A filter that was checked, with the other name of each field."""
    found = dict(node)
    for word, value in node.items():
        if word in {"all", "any"}:
            found[word] = [_renamed(each, name_of) for each in value]
        elif word == "not":
            found[word] = _renamed(value, name_of)
        elif word == "field" and value.startswith(_OF_FIELD):
            found[word] = _OF_FIELD + name_of(value.removeprefix(_OF_FIELD))
    return found
