"""Parses ids, slugs and addresses that identify records in paths and forms."""

import re
from typing import Annotated

from fastapi import Depends, Path
from pydantic import BeforeValidator

from api.middleware.request_rewriting import ENCODED_SLASH
from api.state import StateOf
from core import ids
from core.errors import DomainError, mailing
from core.ids import PersonId
from models import MailingList
from services.accounts import email_addresses
from services.subscriptions import lists
from storage.unit_of_work import UnitOfWork

_LIST_NAME_RULE = "must be an unsigned 64-bit integer or the slug of a list"
_MEMBER_NAME_RULE = "must be an unsigned 64-bit integer or an e-mail address"


def parse_id(text: str) -> int | None:
    """Return ``None`` if the text isn't an unsigned 64-bit integer.

    A number above the largest id becomes 0, which identifies no record. Use ``parse_id`` for form
    fields, because ``int`` raises an error for thousands of digits.
    """
    if not re.fullmatch(r"[0-9]{1,20}", text) or int(text) > ids.MAX_UINT64:
        return None
    return int(text) if int(text) <= ids.MAX_ID else 0


def parse_id_or_text(text: str | None) -> int | str | None:
    """Return a text that isn't an id unchanged, because the form's validation rejects it."""
    number = parse_id(text) if text else None
    return (text or None) if number is None else number


def find_list(uow: UnitOfWork, name: str, *, archived: bool = False) -> MailingList:
    """Raise ``list.not_found`` for an invalid or unknown name."""
    try:
        return lists.get_named(uow, name, archived=archived)
    except DomainError as error:
        if error.code != mailing.LIST_NAME_INVALID.code:
            raise
        raise mailing.LIST_NOT_FOUND() from None


def _validate_path_id(value: object) -> int:
    number = parse_id(str(value))
    if number is None:
        raise ValueError("must be an unsigned 64-bit integer")
    return number


PathId = Annotated[int, BeforeValidator(_validate_path_id)]
PathPersonId = Annotated[PersonId, BeforeValidator(_validate_path_id)]


def _validate_list_name(value: object) -> int | str:
    """An id above the largest id becomes 0, which identifies no record."""
    try:
        number = lists.parse_list_id(str(value))
    except DomainError:
        raise ValueError(_LIST_NAME_RULE) from None
    return str(value) if number is None else number


ListName = Annotated[
    int | str, BeforeValidator(_validate_list_name), Path(description="The id or slug of the list")
]


async def _find_list_id(state: StateOf, list_id: ListName) -> int:
    if isinstance(list_id, int):
        return list_id
    # Accept archived mailing lists, because each route decides whether to refuse them.
    return (await state.in_unit_of_work(lists.get_named, list_id, archived=True)).id


ListId = Annotated[int, Depends(_find_list_id)]


def _validate_member_name(value: object) -> PersonId | str:
    """Return the user id or the normalised e-mail address of a member in a path."""
    text = str(value).replace(ENCODED_SLASH, "/")
    try:
        if "@" in text:
            return email_addresses.normalise_address(text)
        return PersonId(_validate_path_id(value))
    except (DomainError, ValueError):
        raise ValueError(_MEMBER_NAME_RULE) from None


MemberName = Annotated[
    PersonId | str,
    BeforeValidator(_validate_member_name),
    Path(description="The member's user id or e-mail address on the list"),
]
