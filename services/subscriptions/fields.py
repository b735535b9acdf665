"""The fields of an owner: what members of all their lists may have beside name and address.

A member's row keeps values by the ids of fields, so a field that is renamed or ends rewrites no
member.
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
from core.languages.shown_lines import fold_case, is_shown
from models import FieldType, MemberField
from services.access import sessions
from services.subscriptions import misleading_texts, text_reviews
from storage.expected_errors import raise_if_taken
from storage.unit_of_work import UnitOfWork

# A value is stored as JSON: a text or a choice by its characters, a number as such, a date as
# ``YYYY-MM-DD``, a boolean. Nothing is stored for a field without a value.

# Programs in JavaScript read integers up to here exactly.
MAX_NUMBER = 2**53
MAX_VALUE_CHARACTERS = 1_000

FieldValue = str | bool | int | float
# The stored values of one member, by the fields' ids as text.
StoredValues = Mapping[str, FieldValue]


class ValueRefused(ValueError):
    """A value breaks a rule, which the text of this says."""


_DATE = re.compile(r"\d{4}-\d{2}-\d{2}\Z", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?\Z", re.ASCII)
_WORDS = {
    **dict.fromkeys(("1", "true", "yes", "on", "y", "t"), True),
    **dict.fromkeys(("0", "false", "no", "off", "n", "f"), False),
}


def normalise_value(field: MemberField, value: object) -> FieldValue | None:
    """Return the stored form of a value, without spaces at its ends; ``None`` if it is empty.

    Raises ``ValueRefused``.
    """
    if isinstance(value, str):
        value = value.strip()
    return None if value is None or value == "" else _BY_TYPE[FieldType(field.type)](field, value)


def parse_value(field: MemberField, text: str) -> FieldValue | None:
    """Return the stored value of a text that a person wrote into a form or a file.

    Raises ``ValueRefused``.
    """
    text = text.strip()
    value: object = text
    if field.type == FieldType.NUMBER and _NUMBER.match(text):
        value = float(text)
    elif field.type == FieldType.BOOLEAN:
        value = _WORDS.get(text.casefold(), text)
    elif field.type == FieldType.CHOICE:
        spelt = {fold_case(each): each for each in reversed(field.choices)}
        value = spelt.get(fold_case(text), text) if text not in field.choices else text
    return normalise_value(field, value)


def as_text(value: FieldValue) -> str:
    """The value in a file: ``parse_value`` makes the same value of it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _text(_: MemberField, value: object) -> str:
    if not isinstance(value, str):
        raise ValueRefused("must be a text")
    value = normalize("NFC", value)
    if len(value) > MAX_VALUE_CHARACTERS or "\0" in value:
        raise ValueRefused(f"must have at most {MAX_VALUE_CHARACTERS} characters, none of them NUL")
    return value


def _number(_: MemberField, value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueRefused("must be a number")
    if not math.isfinite(value) or abs(value) > MAX_NUMBER:
        raise ValueRefused(f"must be a number from -{MAX_NUMBER} to {MAX_NUMBER}")
    return int(value) if value == int(value) else value


def _date(_: MemberField, value: object) -> str:
    if isinstance(value, str) and _DATE.match(value):
        with suppress(ValueError):
            return date.fromisoformat(value).isoformat()
    raise ValueRefused("must be a date, written YYYY-MM-DD")


def _boolean(_: MemberField, value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueRefused("must be true or false")
    return value


def _choice(field: MemberField, value: object) -> str:
    if isinstance(value, str):
        if value in field.choices:
            return value
        composed = normalize("NFC", value)
        for choice in field.choices:
            if normalize("NFC", choice) == composed:
                return choice
    raise ValueRefused("must be one of the field's choices")


_BY_TYPE: Mapping[FieldType, Callable[[MemberField, object], FieldValue]] = {
    FieldType.TEXT: _text,
    FieldType.NUMBER: _number,
    FieldType.DATE: _date,
    FieldType.BOOLEAN: _boolean,
    FieldType.CHOICE: _choice,
}


MAX_FIELDS = 50
# Members keep values of retired fields, so that these are bounded too.
MAX_FIELDS_EVER = 1_000
MAX_KEY_CHARACTERS = 40
MAX_LABEL_CHARACTERS = 100
MAX_CHOICES = 100
MAX_CHOICE_CHARACTERS = 100

KEY_FORM = re.compile(r"[a-z][a-z0-9_]{0,39}\Z", re.ASCII)


class OwnFields:
    """The fields of one owner that are not retired, read once for any number of members."""

    def __init__(self, fields: Iterable[MemberField]) -> None:
        self.by_key = {each.key: each for each in fields}
        self._keys = {str(each.id): each.key for each in self.by_key.values()}

    def shown(self, values: StoredValues) -> dict[str, FieldValue]:
        """A member's values by the fields' keys, in the order in which the fields were made."""
        return {key: values[name] for name, key in self._keys.items() if name in values}

    def public(self) -> "OwnFields":
        """Return the fields that people may set themselves."""
        return OwnFields(each for each in self.by_key.values() if each.is_public)

    def of_ids(self, values: StoredValues) -> dict[str, FieldValue]:
        """The values that still fit these fields, by the fields' ids still."""
        found = {}
        for name, value in values.items():
            if name in self._keys:
                with suppress(ValueRefused):
                    normalise_value(self.by_key[self._keys[name]], value)
                    found[name] = value
        return found

    def read(
        self, given: Mapping[str, object], *, is_text: bool = False
    ) -> dict[str, FieldValue | None]:
        """Return given values by ids, as they are stored; ``None`` deletes a value.

        ``is_text``: it comes from a form. Raises ``field.value``, which names each place.
        """
        found: dict[str, FieldValue | None] = {}
        problems = []
        for key, value in given.items():
            field = self.by_key.get(key)
            try:
                if field is None:
                    raise ValueRefused("is no field of this owner")  # noqa: TRY301 - one place for all
                if is_text and isinstance(value, str):
                    found[str(field.id)] = parse_value(field, value)
                else:
                    found[str(field.id)] = normalise_value(field, value)
            except ValueRefused as error:
                problems.append(FieldProblem(f"body.fields.{key}", "field.value", str(error)))
        if problems:
            rules = "; ".join(f"{each.field}: {each.message}" for each in problems)
            raise errors.FIELD_VALUE(rules=rules, problems=tuple(problems))
        return found


def merge_values(
    values: StoredValues, changes: Mapping[str, FieldValue | None]
) -> dict[str, FieldValue]:
    """A member's values after changes, of which ``None`` removes a value."""
    after = {**values, **changes}
    return {name: value for name, value in after.items() if value is not None}


def read_own_fields(uow: UnitOfWork, owner_id: int) -> OwnFields:
    return OwnFields(list_fields(uow, owner_id))


def list_fields(uow: UnitOfWork, owner_id: int) -> list[MemberField]:
    """The owner's fields that are not retired, in the order in which they were made."""
    own = MemberField.user_id == owner_id, MemberField.retired_at.is_(None)
    return list(uow.session.scalars(select(MemberField).where(*own).order_by(MemberField.id)))


# The columns of a member field, after ``validate_columns`` has checked their texts.
CheckedColumns = NewType("CheckedColumns", dict[str, Any])


def validate_columns(values: Mapping[str, Any]) -> CheckedColumns:
    """Check the texts that an owner set, and strip whitespace around them.

    Call this before a transaction begins, because searching the texts for links and misleading
    words takes time. Overlong texts are rejected before the search. Raises ``field.label``,
    ``field.choices``, ``text.leads_away``, ``text.misleading``.
    """
    columns = dict(values)
    label, choices = columns.get("label"), columns.get("choices")
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


def create_field(uow: UnitOfWork, owner_id: int, *, type: FieldType, **values: Any) -> MemberField:  # noqa: A002 - the name of the column
    """A new field of the owner.

    Raises ``user.not_found``, ``field.too_many`` and what ``change_field`` raises.
    """
    columns = validate_columns({"choices": [], **values})
    # Two that are made at once are counted one after the other.
    sessions.lock_person(uow, owner_id)
    is_living = MemberField.retired_at.is_(None)
    counts = select(func.count().filter(is_living), func.count())
    living, ever = uow.session.execute(counts.where(MemberField.user_id == owner_id)).one()
    if living >= MAX_FIELDS or ever >= MAX_FIELDS_EVER:
        raise errors.FIELD_TOO_MANY(most=MAX_FIELDS, ever=MAX_FIELDS_EVER)
    field = MemberField(user_id=owner_id, type=type)
    uow.session.add(field)
    _set(uow, field, columns)
    return field


def change_field(
    uow: UnitOfWork, owner_id: int, field_id: int, values: CheckedColumns
) -> MemberField:
    """Set the named columns. ``field_types.change_field_and_type`` changes the type too.

    A choice that is taken away stays the value of the members who have it. Raises
    ``field.not_found``, and the error of each column.
    """
    field = get_field(uow, owner_id, field_id, lock=True)
    _set(uow, field, values)
    return field


def retire_field(uow: UnitOfWork, owner_id: int, field_id: int) -> int:
    """Show the field no more, and let another field have its key. Members keep their values.

    Raises ``field.not_found``.
    """
    get_field(uow, owner_id, field_id, lock=True).retired_at = func.now()
    return 1


def get_field(uow: UnitOfWork, owner_id: int, field_id: int, *, lock: bool = False) -> MemberField:
    """Return a field of the owner.

    Another owner's field, or one that was retired, is as if it were not there. Raises
    ``field.not_found``.
    """
    own = MemberField.user_id == owner_id, MemberField.retired_at.is_(None)
    query = select(MemberField).where(MemberField.id == field_id, *own)
    found = uow.session.scalar(query.with_for_update() if lock else query)
    if found is None:
        raise errors.FIELD_NOT_FOUND()
    return found


def _set(uow: UnitOfWork, field: MemberField, values: CheckedColumns) -> None:
    before = text_reviews.reviewed_texts(field)
    for name, value in values.items():
        setattr(field, name, value)
    text_reviews.update_suspicion(uow, field, before)
    if not KEY_FORM.match(field.key):
        raise errors.FIELD_KEY(most=MAX_KEY_CHARACTERS)
    if bool(field.choices) != (field.type == FieldType.CHOICE):
        raise errors.FIELD_CHOICES(most=MAX_CHOICES, characters=MAX_CHOICE_CHARACTERS)
    with raise_if_taken("uq_fields_user_id_key", errors.FIELD_KEY_TAKEN(key=field.key)):
        uow.session.flush()
