"""The values of a filter's conditions, read strictly by the kind of what they are compared with."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import NamedTuple, TypeGuard

from core.ids import MAX_ID
from models import FieldType, MemberField, SubscriptionStatus, Tier
from services.subscriptions import tags
from services.subscriptions.fields import ValueRefused


class Operator(StrEnum):
    IS = "is"
    IS_NOT = "is_not"
    IN = "in"
    CONTAINS = "contains"
    BEGINS = "begins"
    BEFORE = "before"
    AFTER = "after"
    NOT_BEFORE = "at_least"
    NOT_AFTER = "at_most"
    EXISTS = "exists"


class ValueKind(StrEnum):
    """The kinds of values that a name is compared with."""

    WORD = "word"  # one of a few
    TEXT = "text"
    LABEL = "label"  # a text that is compared as a whole: a source, a tag, a choice
    NUMBER = "number"
    ID = "id"
    BOOLEAN = "boolean"
    MOMENT = "moment"  # or a day in UTC
    DAY = "day"
    TAG_ID = "tag_id"  # in a stored filter; or the name of a tag that the list did not have


_EQUAL = frozenset({Operator.IS, Operator.IS_NOT})
_ORDERED = frozenset({Operator.BEFORE, Operator.AFTER, Operator.NOT_BEFORE, Operator.NOT_AFTER})
# ``exists`` also goes with each name that a member may have no value of.
_OPERATORS: Mapping[ValueKind, frozenset[Operator]] = {
    ValueKind.WORD: _EQUAL | {Operator.IN},
    ValueKind.TEXT: _EQUAL | {Operator.IN, Operator.CONTAINS, Operator.BEGINS},
    ValueKind.LABEL: _EQUAL | {Operator.IN},
    ValueKind.NUMBER: _EQUAL | {Operator.IN, Operator.NOT_BEFORE, Operator.NOT_AFTER},
    ValueKind.ID: _EQUAL | {Operator.IN},
    ValueKind.BOOLEAN: _EQUAL,
    ValueKind.MOMENT: _EQUAL | _ORDERED,
    ValueKind.DAY: _EQUAL | _ORDERED | {Operator.IN},
    ValueKind.TAG_ID: _EQUAL | {Operator.IN},
}
_KINDS: Mapping[str, ValueKind] = {
    FieldType.TEXT: ValueKind.TEXT,
    FieldType.NUMBER: ValueKind.NUMBER,
    FieldType.DATE: ValueKind.DAY,
    FieldType.BOOLEAN: ValueKind.BOOLEAN,
    # A choice that was taken away stays the value of the members who have it.
    FieldType.CHOICE: ValueKind.LABEL,
}


@dataclass(frozen=True)
class FilterName:
    """A name that a condition may have.

    Attributes:
        is_optional: whether a member may have no value of it.
        words: the values of a name whose kind is ``WORD``.
        field_id: of an owner's field.
    """

    name: str
    kind: ValueKind
    is_optional: bool = False
    words: tuple[str, ...] = ()
    field_id: int | None = None

    @property
    def operators(self) -> list[Operator]:
        """Return the operators that go with the name, in the order in which documents have them."""
        able = _OPERATORS[self.kind] | ({Operator.EXISTS} if self.is_optional else set())
        return [operator for operator in Operator if operator in able]


# Before the key of a field.
OF_FIELD = "fields."
STATUS = FilterName("status", ValueKind.WORD, words=tuple(SubscriptionStatus))
TAG = FilterName("tag", ValueKind.LABEL, is_optional=True)
STORED_TAG = FilterName(TAG.name, ValueKind.TAG_ID, is_optional=True)
# Names that every list has.
COMMON = (
    STATUS,
    FilterName("type", ValueKind.WORD, words=tuple(Tier)),
    FilterName("email", ValueKind.TEXT, is_optional=True),
    FilterName("name", ValueKind.TEXT, is_optional=True),
    FilterName("source", ValueKind.LABEL),
    FilterName("import_id", ValueKind.ID, is_optional=True),
    FilterName("email_enabled", ValueKind.BOOLEAN),
    FilterName("joined_at", ValueKind.MOMENT),
    FilterName("created_at", ValueKind.MOMENT),
    FilterName("updated_at", ValueKind.MOMENT),
    TAG,
)


def known_names(
    fields: Iterable[MemberField], *, are_stored: bool = False
) -> dict[str, FilterName]:
    """All names, with those of an owner's fields: ``fields.`` and the field's key.

    Stored filters have the ids of fields and tags instead.
    """
    tag = [STORED_TAG] if are_stored else []
    own = [
        FilterName(
            f"{OF_FIELD}{each.id if are_stored else each.key}",
            _KINDS[each.type],
            is_optional=True,
            field_id=each.id,
        )
        for each in fields
    ]
    return {each.name: each for each in (*COMMON, *tag, *own)}


MAX_TEXT_CHARACTERS = 1000
# Near the ends of the calendar a day has no next one.
_YEARS = range(1970, 9999)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}\Z", re.ASCII)
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}", re.ASCII)
# Characters that no stored text holds: NUL, and half a character.
_NO_CHARACTER = re.compile("[\0\ud800-\udfff]")


class Span(NamedTuple):
    """The time of a day in UTC, or of one moment: from ``begin`` until before ``end``."""

    begin: datetime
    end: datetime


Value = str | bool | int | Decimal | Span


class WrongValue(Exception):
    """A value that is none of its kind; the message is the rule that it breaks."""


def read(name: FilterName, value: object) -> Value:
    """The value in the form in which it is compared. Raises ``WrongValue``."""
    if name.kind is ValueKind.WORD:
        folded = value.casefold() if isinstance(value, str) else None
        for word in name.words:
            if word.casefold() == folded:
                return word
        raise WrongValue(f"must be one of {', '.join(name.words)}")
    if name == TAG:
        return _tag(value)
    return _READERS[name.kind](value)


def _text(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_TEXT_CHARACTERS:
        raise WrongValue(f"must be a text of 1 to {MAX_TEXT_CHARACTERS} characters")
    if _NO_CHARACTER.search(value):
        raise WrongValue("must not hold NUL characters and half ones")
    return value


def _tag(value: object) -> str:
    try:
        return tags.normalise_tag(_text(value))
    except ValueRefused as error:
        raise WrongValue(str(error)) from None


def _number(value: object) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise WrongValue("must be a number")
    # The shortest text of a fraction is what was written, up to 15 digits.
    return Decimal(repr(value))


def _id(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MAX_ID:
        raise WrongValue("must be an id")
    return value


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise WrongValue("must be true or false")
    return value


def _span(value: object) -> Span:
    try:
        if _has_form(value, _DAY):
            begin = datetime.combine(date.fromisoformat(value), time(), UTC)
            length = timedelta(days=1)
        elif _has_form(value, _MOMENT):
            # Moments are stored in microseconds.
            begin, length = datetime.fromisoformat(value), timedelta(microseconds=1)
        else:
            raise WrongValue(_SPAN_RULE)
    except ValueError:
        raise WrongValue(_SPAN_RULE) from None
    if begin.tzinfo is None or begin.year not in _YEARS:
        raise WrongValue(_SPAN_RULE)
    return Span(begin, begin + length)


_SPAN_RULE = (
    "must be a day such as 2026-11-21, or a moment with an offset such as 2026-11-21T09:30:00Z, "
    f"in the years {_YEARS[0]} to {_YEARS[-1]}"
)


def _day(value: object) -> str:
    with suppress(ValueError):  # such as the 30th of February
        if _has_form(value, _DAY):
            return date.fromisoformat(value).isoformat()
    raise WrongValue("must be a day such as 2026-11-21")


def _has_form(value: object, form: re.Pattern[str]) -> TypeGuard[str]:
    return isinstance(value, str) and form.match(value) is not None


_READERS: Mapping[ValueKind, Callable[[object], Value]] = {
    ValueKind.TEXT: _text,
    ValueKind.LABEL: _text,
    ValueKind.NUMBER: _number,
    ValueKind.ID: _id,
    ValueKind.BOOLEAN: _boolean,
    ValueKind.MOMENT: _span,
    ValueKind.DAY: _day,
    ValueKind.TAG_ID: lambda value: _tag(value) if isinstance(value, str) else _id(value),
}
