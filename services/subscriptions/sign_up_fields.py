"""The fields that a list's sign-up form asks for."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from core.errors import mailing as errors
from models import MailingList, MemberField
from services.subscriptions.fields import read_own_fields
from storage.unit_of_work import UnitOfWork

# These values of a list are keys of fields. The list stores the ids of the fields.
COLUMNS = ("asked_fields", "required_fields")


class SignUpField(NamedTuple):
    """A field that a list's sign-up form asks for."""

    field: MemberField
    is_required: bool


def read_sign_up_fields(uow: UnitOfWork, mailing_list: MailingList) -> list[SignUpField]:
    """Return the public fields that the list's form asks for, oldest first."""
    asked_ids = mailing_list.asked_field_ids
    # A list that is not stored yet has no required fields.
    required_ids = set(mailing_list.required_field_ids or ())
    public = read_own_fields(uow, mailing_list.user_id).public().by_key.values()
    return [
        SignUpField(each, each.id in required_ids)
        for each in public
        if asked_ids is None or each.id in asked_ids
    ]


def read_field_keys(
    uow: UnitOfWork, mailing_list: MailingList
) -> tuple[list[str] | None, list[str]]:
    """Return the keys of the fields that the owner chose for the form, and of the required fields.

    The first value is ``None`` if the owner chose no fields. The form then asks for every field.
    """
    has_chosen = mailing_list.asked_field_ids is not None
    if not has_chosen and not mailing_list.required_field_ids:
        return None, []
    sign_up_fields = read_sign_up_fields(uow, mailing_list)
    required_keys = [each.field.key for each in sign_up_fields if each.is_required]
    return [each.field.key for each in sign_up_fields] if has_chosen else None, required_keys


def find_field_ids(
    uow: UnitOfWork, mailing_list: MailingList, values: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the columns for the keys in ``values``; raises ``list.fields``."""
    if not values.keys() & set(COLUMNS):
        return {}
    before = read_field_keys(uow, mailing_list)
    asked_keys, required_keys = (
        values.get(name, keys) for name, keys in zip(COLUMNS, before, strict=True)
    )
    public = read_own_fields(uow, mailing_list.user_id).public().by_key
    for key in [*(asked_keys or ()), *required_keys]:
        if key not in public or (asked_keys is not None and key not in asked_keys):
            raise errors.LIST_FIELDS(key=key[:60])
    return {
        "asked_field_ids": None if asked_keys is None else [public[key].id for key in asked_keys],
        "required_field_ids": [public[key].id for key in required_keys],
    }
