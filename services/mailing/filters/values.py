"""The values of a filter's conditions, read strictly by the kind of what they are compared with."""

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import NamedTuple, TypeGuard

from core.ids import MAX_ID
from services.mailing.attributes import tags
from services.mailing.attributes.field_values import ValueRefused
from services.mailing.filters.filter_names import TAG, FilterName, ValueKind

MAX_TEXT_CHARACTERS = 1000
# Near the ends of the calendar a day has no next one.
_YEARS = range(1970, 9999)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}\Z", re.ASCII)
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}", re.ASCII)
# What no stored text holds: NUL, and half a character.
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
        return _word(name, value)
    if name == TAG:
        return _tag(value)
    return _READERS[name.kind](value)


def _word(name: FilterName, value: object) -> str:
    folded = value.casefold() if isinstance(value, str) else None
    for word in name.words:
        if word.casefold() == folded:
            return word
    raise WrongValue(f"must be one of {', '.join(name.words)}")


def _text(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_TEXT_CHARACTERS:
        raise WrongValue(f"must be a text of 1 to {MAX_TEXT_CHARACTERS} characters")
    if _NO_CHARACTER.search(value):
        raise WrongValue("must not hold NUL characters and half ones")
    return value


def _tag(value: object) -> str:
    try:
        return tags.read(_text(value))
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
    try:
        if _has_form(value, _DAY):
            return date.fromisoformat(value).isoformat()
    except ValueError:
        pass  # such as the 30th of February
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
}
