"""The values of fields: what each type takes, stores and shows.

A value is stored as JSON: a text or a choice by its characters, a number as such, a date as
``YYYY-MM-DD``, a boolean. Nothing is stored for a field without a value.
"""

import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date

from models import FieldType, MemberField

# Programs in JavaScript read integers up to here exactly.
MAX_NUMBER = 2**53
MAX_VALUE_CHARACTERS = 1_000

FieldValue = str | bool | int | float
# Of one member: the stored values, by the fields' ids as text.
StoredValues = Mapping[str, FieldValue]


class ValueRefused(ValueError):
    """A value breaks a rule, which the text of this says."""


_DATE = re.compile(r"\d{4}-\d{2}-\d{2}\Z", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?\Z", re.ASCII)
_WORDS = {
    **dict.fromkeys(("1", "true", "yes", "on", "y", "t"), True),
    **dict.fromkeys(("0", "false", "no", "off", "n", "f"), False),
}


def stored(field: MemberField, value: object) -> FieldValue | None:
    """The value as it is stored, without spaces at its ends; ``None`` for an empty one.

    Raises ``ValueRefused``.
    """
    if isinstance(value, str):
        value = value.strip()
    return None if value is None or value == "" else _BY_TYPE[FieldType(field.type)](field, value)


def stored_of_text(field: MemberField, text: str) -> FieldValue | None:
    """As ``stored``, of what a person wrote into a form or a file."""
    text = text.strip()
    value: object = text
    if field.type == FieldType.NUMBER and _NUMBER.match(text):
        value = float(text)
    elif field.type == FieldType.BOOLEAN:
        value = _WORDS.get(text.casefold(), text)
    elif field.type == FieldType.CHOICE:
        spelt = {each.casefold(): each for each in reversed(field.choices)}
        value = spelt.get(text.casefold(), text) if text not in field.choices else text
    return stored(field, value)


def as_text(value: FieldValue) -> str:
    """The value in a file: ``stored_of_text`` makes the same value of it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _text(_: MemberField, value: object) -> str:
    if not isinstance(value, str):
        raise ValueRefused("must be a text")
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
    if not isinstance(value, str) or value not in field.choices:
        raise ValueRefused("must be one of the field's choices")
    return value


_BY_TYPE: Mapping[FieldType, Callable[[MemberField, object], FieldValue]] = {
    FieldType.TEXT: _text,
    FieldType.NUMBER: _number,
    FieldType.DATE: _date,
    FieldType.BOOLEAN: _boolean,
    FieldType.CHOICE: _choice,
}
