"""Reads and changes which fields a list's sign-up form contains."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from core.errors import mailing as errors
from models import MailingList, MemberField
from services.subscriptions.fields import read_own_fields
from storage.unit_of_work import UnitOfWork

# The list settings that refer to member fields. API requests contain the keys of the fields, and
# the database contains their ids.
FIELD_KEY_COLUMNS = ("asked_fields", "required_fields")


class SignUpField(NamedTuple):
    field: MemberField
    is_required: bool


def read_sign_up_fields(uow: UnitOfWork, mailing_list: MailingList) -> list[SignUpField]:
    asked_ids = mailing_list.asked_field_ids
    # Before a new list is stored, ``required_field_ids`` is ``None``.
    required_ids = set(mailing_list.required_field_ids or ())
    public_fields = read_own_fields(uow, mailing_list.user_id).select_public().by_key.values()
    return [
        SignUpField(each, each.id in required_ids)
        for each in public_fields
        if asked_ids is None or each.id in asked_ids
    ]


def read_field_keys(
    uow: UnitOfWork, mailing_list: MailingList
) -> tuple[list[str] | None, list[str]]:
    """Return the keys of the form's fields, and of the required ones.

    The first result is ``None`` if the form contains all public fields by default.
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
    if not values.keys() & set(FIELD_KEY_COLUMNS):
        return {}
    current_keys = read_field_keys(uow, mailing_list)
    asked_keys, required_keys = (
        values.get(name, keys) for name, keys in zip(FIELD_KEY_COLUMNS, current_keys, strict=True)
    )
    fields_by_key = read_own_fields(uow, mailing_list.user_id).select_public().by_key
    for key in [*(asked_keys or ()), *required_keys]:
        if key not in fields_by_key or (asked_keys is not None and key not in asked_keys):
            raise errors.LIST_FIELDS(key=key[:60])
    asked_ids = None if asked_keys is None else [fields_by_key[key].id for key in asked_keys]
    return {
        "asked_field_ids": asked_ids,
        "required_field_ids": [fields_by_key[key].id for key in required_keys],
    }
