"""Creates and changes fields, in which owners store additional data about members.

A member's record contains field ids as keys, so that renaming or retiring a field changes no
records. Texts, choices and dates are stored as JSON strings, and dates have the form
``YYYY-MM-DD``. If a member has no value for a field, the record doesn't contain the field's id.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import date
from typing import Any, NewType
from unicodedata import normalize

from sqlalchemy import func, select

from core.errors import FieldProblem
from core.errors import mailing as errors
from core.ids import AccountId
from core.languages.shown_lines import fold_case, is_shown
from models import FieldType, MemberField
from services.access import sessions
from services.subscriptions import misleading_texts, text_reviews
from storage.expected_errors import raise_if_taken
from storage.unit_of_work import UnitOfWork

# The largest value of a number field, because JavaScript can represent all integers up to this
# number exactly.
MAX_NUMBER = 2**53
MAX_VALUE_CHARACTERS = 1_000
MAX_FIELDS = 50
# The maximum number of fields that an owner may have, including retired fields.
MAX_FIELDS_EVER = 1_000
MAX_KEY_CHARACTERS = 40
MAX_LABEL_CHARACTERS = 100
MAX_CHOICES = 100
MAX_CHOICE_CHARACTERS = 100
KEY_PATTERN = re.compile(r"[a-z][a-z0-9_]{0,39}\Z", re.ASCII)
_DATE_PATTERN = re.compile(r"\d{4}-\d{2}-\d{2}\Z", re.ASCII)
_NUMBER_PATTERN = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?\Z", re.ASCII)
_BOOLEAN_BY_WORD = {
    **dict.fromkeys(("1", "true", "yes", "on", "y", "t"), True),
    **dict.fromkeys(("0", "false", "no", "off", "n", "f"), False),
}

FieldValue = str | bool | int | float
# Maps field ids, as strings, to one member's values.
StoredValues = Mapping[str, FieldValue]
# Values for columns of the table ``fields`` that ``validate_columns`` has validated.
CheckedColumns = NewType("CheckedColumns", dict[str, Any])


class InvalidAttribute(ValueError):
    """Raised with an explanation for an invalid field value or tag name."""


def normalise_value(field: MemberField, value: object) -> FieldValue | None:
    """Return the stored form, or ``None`` for an empty value."""
    if isinstance(value, str):
        value = value.strip()
    if value is None or value == "":
        return None
    return _NORMALISERS[FieldType(field.type)](field, value)


def parse_value(field: MemberField, text: str) -> FieldValue | None:
    text = text.strip()
    value: object = text
    if field.type == FieldType.NUMBER and _NUMBER_PATTERN.match(text):
        value = float(text)
    elif field.type == FieldType.BOOLEAN:
        value = _BOOLEAN_BY_WORD.get(text.casefold(), text)
    elif field.type == FieldType.CHOICE:
        choices_by_key = {fold_case(each): each for each in reversed(field.choices)}
        value = choices_by_key.get(fold_case(text), text) if text not in field.choices else text
    return normalise_value(field, value)


def format_value(value: FieldValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _normalise_text(_: MemberField, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidAttribute("must be a string")
    value = normalize("NFC", value)
    if len(value) > MAX_VALUE_CHARACTERS or "\0" in value:
        raise InvalidAttribute(
            f"must have at most {MAX_VALUE_CHARACTERS} characters, without NUL characters"
        )
    return value


def _normalise_number(_: MemberField, value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidAttribute("must be a number")
    if not math.isfinite(value) or abs(value) > MAX_NUMBER:
        raise InvalidAttribute(f"must be a number from -{MAX_NUMBER} to {MAX_NUMBER}")
    return int(value) if value == int(value) else value


def _normalise_date(_: MemberField, value: object) -> str:
    if isinstance(value, str) and _DATE_PATTERN.match(value):
        with suppress(ValueError):
            return date.fromisoformat(value).isoformat()
    raise InvalidAttribute("must be a date in the form YYYY-MM-DD")


def _normalise_boolean(_: MemberField, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidAttribute("must be true or false")
    return value


def _normalise_choice(field: MemberField, value: object) -> str:
    if isinstance(value, str):
        if value in field.choices:
            return value
        composed_value = normalize("NFC", value)
        for choice in field.choices:
            if normalize("NFC", choice) == composed_value:
                return choice
    raise InvalidAttribute("must be one of the field's choices")


_NORMALISERS: Mapping[FieldType, Callable[[MemberField, object], FieldValue]] = {
    FieldType.TEXT: _normalise_text,
    FieldType.NUMBER: _normalise_number,
    FieldType.DATE: _normalise_date,
    FieldType.BOOLEAN: _normalise_boolean,
    FieldType.CHOICE: _normalise_choice,
}


class OwnFields:
    def __init__(self, fields: Iterable[MemberField]) -> None:
        self.by_key = {each.key: each for each in fields}
        self._keys_by_id = {str(each.id): each.key for each in self.by_key.values()}

    def replace_ids(self, values: StoredValues) -> dict[str, FieldValue]:
        return {key: values[name] for name, key in self._keys_by_id.items() if name in values}

    def select_public(self) -> "OwnFields":
        return OwnFields(each for each in self.by_key.values() if each.is_public)

    def select_valid_values(self, values: StoredValues) -> dict[str, FieldValue]:
        valid_values = {}
        for field_id, value in values.items():
            if field_id in self._keys_by_id:
                with suppress(InvalidAttribute):
                    normalise_value(self.by_key[self._keys_by_id[field_id]], value)
                    valid_values[field_id] = value
        return valid_values

    def parse_values(
        self, values: Mapping[str, object], *, is_text: bool = False
    ) -> dict[str, FieldValue | None]:
        """Return stored values by field id, with ``None`` for empty values.

        Raises ``field.value`` with all invalid values. ``is_text``: whether the values are texts
        from an HTML form.
        """
        stored_values: dict[str, FieldValue | None] = {}
        problems = []
        for key, value in values.items():
            field = self.by_key.get(key)
            try:
                if field is None:
                    raise InvalidAttribute("is not a field of this list's owner")  # noqa: TRY301 - one place for all
                if is_text and isinstance(value, str):
                    stored_values[str(field.id)] = parse_value(field, value)
                else:
                    stored_values[str(field.id)] = normalise_value(field, value)
            except InvalidAttribute as error:
                problems.append(FieldProblem(f"body.fields.{key}", "field.value", str(error)))
        if problems:
            rules = "; ".join(f"{each.field}: {each.message}" for each in problems)
            raise errors.FIELD_VALUE(rules=rules, problems=tuple(problems))
        return stored_values


def merge_values(
    values: StoredValues, changes: Mapping[str, FieldValue | None]
) -> dict[str, FieldValue]:
    """Return a changed copy. The value ``None`` in ``changes`` removes a field's value."""
    new_values = {**values, **changes}
    return {name: value for name, value in new_values.items() if value is not None}


def read_own_fields(uow: UnitOfWork, account_id: AccountId) -> OwnFields:
    return OwnFields(list_fields(uow, account_id))


def list_fields(uow: UnitOfWork, account_id: AccountId) -> list[MemberField]:
    query = select(MemberField).where(
        MemberField.user_id == account_id, MemberField.retired_at.is_(None)
    )
    return list(uow.session.scalars(query.order_by(MemberField.id)))


def validate_columns(values: Mapping[str, Any]) -> CheckedColumns:
    """Call this before a transaction begins, because searching texts for words takes time."""
    columns = dict(values)
    label = columns.get("label")
    choices = columns.get("choices")
    if label is not None:
        label = columns["label"] = label.strip()
        if len(label) > MAX_LABEL_CHARACTERS:
            raise errors.FIELD_LABEL(most=MAX_LABEL_CHARACTERS)
    if choices is not None:
        choices = columns["choices"] = [normalize("NFC", each.strip()) for each in choices]
        if len(choices) > MAX_CHOICES or any(len(each) > MAX_CHOICE_CHARACTERS for each in choices):
            raise errors.FIELD_CHOICES(most=MAX_CHOICES, characters=MAX_CHOICE_CHARACTERS)
    for name, texts in (("label", [label]), ("choices", choices or [])):
        for text in texts:
            misleading_texts.require_harmless(name, text)
            misleading_texts.require_no_secret(name, text)
    misleading_texts.require_no_secret("description", columns.get("description"))
    if label is not None and not is_shown(label):
        raise errors.FIELD_LABEL(most=MAX_LABEL_CHARACTERS)
    if choices and not (all(map(is_shown, choices)) and len({*choices}) == len(choices)):
        raise errors.FIELD_CHOICES(most=MAX_CHOICES, characters=MAX_CHOICE_CHARACTERS)
    return CheckedColumns(columns)


def create_field(
    uow: UnitOfWork,
    account_id: AccountId,
    *,
    type: FieldType,  # noqa: A002 - the name of the column
    **values: Any,
) -> MemberField:
    columns = validate_columns({"choices": [], **values})
    # Lock the owner, so that concurrent requests together can't exceed the maximum number of
    # fields.
    sessions.lock_account(uow, account_id)
    counts = select(func.count().filter(MemberField.retired_at.is_(None)), func.count())
    current_count, all_count = uow.session.execute(
        counts.where(MemberField.user_id == account_id)
    ).one()
    if current_count >= MAX_FIELDS or all_count >= MAX_FIELDS_EVER:
        raise errors.FIELD_TOO_MANY(most=MAX_FIELDS, ever=MAX_FIELDS_EVER)
    field = MemberField(user_id=account_id, type=type)
    uow.session.add(field)
    _set_columns(uow, field, columns)
    return field


def change_field(
    uow: UnitOfWork, account_id: AccountId, field_id: int, values: CheckedColumns
) -> MemberField:
    """Change columns other than the type (see ``field_types``). Members keep removed choices."""
    field = get_field(uow, account_id, field_id, lock=True)
    _set_columns(uow, field, values)
    return field


def retire_field(uow: UnitOfWork, account_id: AccountId, field_id: int) -> int:
    """Hide a field and free its key, but keep its values."""
    get_field(uow, account_id, field_id, lock=True).retired_at = func.now()
    return 1


def get_field(
    uow: UnitOfWork, account_id: AccountId, field_id: int, *, lock: bool = False
) -> MemberField:
    query = select(MemberField).where(
        MemberField.id == field_id,
        MemberField.user_id == account_id,
        MemberField.retired_at.is_(None),
    )
    field = uow.session.scalar(query.with_for_update() if lock else query)
    if field is None:
        raise errors.FIELD_NOT_FOUND()
    return field


def _set_columns(uow: UnitOfWork, field: MemberField, values: CheckedColumns) -> None:
    before = text_reviews.list_reviewed_texts(field)
    for name, value in values.items():
        setattr(field, name, value)
    text_reviews.update_suspicion(uow, field, before)
    if not KEY_PATTERN.match(field.key):
        raise errors.FIELD_KEY(most=MAX_KEY_CHARACTERS)
    if bool(field.choices) != (field.type == FieldType.CHOICE):
        raise errors.FIELD_CHOICES(most=MAX_CHOICES, characters=MAX_CHOICE_CHARACTERS)
    with raise_if_taken("uq_fields_user_id_key", errors.FIELD_KEY_TAKEN(key=field.key)):
        uow.session.flush()
