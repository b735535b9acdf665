"""Defines which columns, tags and fields a filter can name, and parses the values in a filter."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, NamedTuple, TypeGuard

from core.ids import MAX_ID
from models import FieldType, MemberField, SubscriptionStatus, Tier
from services.subscriptions import tags
from services.subscriptions.fields import InvalidAttribute
from services.subscriptions.members.departures import LeftReason, StatedReason
from services.subscriptions.sign_up_origins import ORIGIN_NAMES

# The prefix of field keys in a filter, which distinguishes fields from columns.
FIELD_PREFIX = "fields."
MAX_TEXT_CHARACTERS = 1000
# The range excludes the year 9999, because Python can't represent the day after 9999-12-31.
_YEARS = range(1970, 9999)
_DAY_PATTERN = re.compile(r"\d{4}-\d{2}-\d{2}\Z", re.ASCII)
_MOMENT_PATTERN = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}", re.ASCII)
# Matches NUL characters and surrogates, which Postgres can't store.
_INVALID_CHARACTER = re.compile("[\0\ud800-\udfff]")
_SPAN_RULE = (
    "must be a date such as 2026-11-21 or a time such as 2026-11-21T09:30:00Z, in the years "
    f"{_YEARS[0]} to {_YEARS[-1]}"
)
# In a filter, the JSON object ``{"days_ago": 90}`` stands for the day 90 days before today. A
# negative number stands for a day in the future.
DAYS_AGO = "days_ago"
MAX_DAYS_AGO = 3650
# The operator ``anniversary`` can find members up to this many days before or after the day.
MAX_ANNIVERSARY_DAYS = 60


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
    ANNIVERSARY = "anniversary"
    EXISTS = "exists"


class ValueKind(StrEnum):
    WORD = "word"  # A word from a fixed set, such as a status.
    TEXT = "text"
    LABEL = "label"  # A source, tag or choice, which is always compared as a whole.
    NUMBER = "number"
    ID = "id"
    BOOLEAN = "boolean"
    MOMENT = "moment"  # A time with a UTC offset, or a day in UTC.
    DAY = "day"
    # A tag id in a stored filter, or the name of a tag that didn't exist when the filter was
    # stored.
    TAG_ID = "tag_id"


class BounceState(StrEnum):
    """A member's most severe bounce that is still in effect."""

    NONE = "none"
    SOFT = "soft"
    HARD = "hard"


class EngagementChoice(StrEnum):
    """A person's answer to the question whether the list may record the person's engagement."""

    YES = "yes"
    NO = "no"
    NONE = "none"


_DAY_KINDS = frozenset({ValueKind.MOMENT, ValueKind.DAY})
_EQUALITY_OPERATORS = frozenset({Operator.IS, Operator.IS_NOT})
_ORDER_OPERATORS = frozenset(
    {Operator.BEFORE, Operator.AFTER, Operator.NOT_BEFORE, Operator.NOT_AFTER}
)
# The operators that each kind of value supports. All optional values also support ``exists``. Some
# dates also support ``anniversary``.
_OPERATORS_BY_KIND: Mapping[ValueKind, frozenset[Operator]] = {
    ValueKind.WORD: _EQUALITY_OPERATORS | {Operator.IN},
    ValueKind.TEXT: _EQUALITY_OPERATORS | {Operator.IN, Operator.CONTAINS, Operator.BEGINS},
    ValueKind.LABEL: _EQUALITY_OPERATORS | {Operator.IN},
    ValueKind.NUMBER: _EQUALITY_OPERATORS | {Operator.IN, Operator.NOT_BEFORE, Operator.NOT_AFTER},
    ValueKind.ID: _EQUALITY_OPERATORS | {Operator.IN},
    ValueKind.BOOLEAN: _EQUALITY_OPERATORS,
    ValueKind.MOMENT: _EQUALITY_OPERATORS | _ORDER_OPERATORS,
    ValueKind.DAY: _EQUALITY_OPERATORS | _ORDER_OPERATORS | {Operator.IN},
    ValueKind.TAG_ID: _EQUALITY_OPERATORS | {Operator.IN},
}
_KIND_BY_FIELD_TYPE: Mapping[str, ValueKind] = {
    FieldType.TEXT: ValueKind.TEXT,
    FieldType.NUMBER: ValueKind.NUMBER,
    FieldType.DATE: ValueKind.DAY,
    FieldType.BOOLEAN: ValueKind.BOOLEAN,
    # A filter can name a removed choice, because the field of some members still has this value.
    FieldType.CHOICE: ValueKind.LABEL,
}


@dataclass(frozen=True)
class FilterName:
    """A column, tag or field.

    Attributes:
        is_optional: whether members may have no value.
        has_anniversary: whether a filter can find the anniversaries of the date.
    """

    name: str
    kind: ValueKind
    is_optional: bool = False
    words: tuple[str, ...] = ()
    field_id: int | None = None
    has_anniversary: bool = False

    @property
    def operators(self) -> list[Operator]:
        supported = _OPERATORS_BY_KIND[self.kind]
        if self.has_anniversary:
            supported |= {Operator.ANNIVERSARY}
        if self.is_optional:
            supported |= {Operator.EXISTS}
        return [operator for operator in Operator if operator in supported]


STATUS_NAME = FilterName("status", ValueKind.WORD, words=tuple(SubscriptionStatus))
LEFT_REASON_NAME = FilterName(
    "left_reason", ValueKind.WORD, is_optional=True, words=(*LeftReason, *StatedReason)
)
# The id of the mailing that bounced, or that made the member complain or leave.
BOUNCED_MAILING_NAME = FilterName("bounced_mailing", ValueKind.ID)
COMPLAINED_MAILING_NAME = FilterName("complained_mailing", ValueKind.ID)
LEFT_MAILING_NAME = FilterName("left_mailing", ValueKind.ID)
MAILING_NAMES = (BOUNCED_MAILING_NAME, COMPLAINED_MAILING_NAME, LEFT_MAILING_NAME)
# A filter with one of these names isn't limited to active members.
NAMES_OF_ALL_STATUSES = (STATUS_NAME, LEFT_REASON_NAME, *MAILING_NAMES)
# The columns of the engagement that a list records of its active members. Other members have no
# value.
ENGAGEMENT_NAMES = (
    *(
        FilterName(name, ValueKind.NUMBER, is_optional=True)
        for name in ("delivered", "opens", "machine_opens", "clicks")
    ),
    *(
        FilterName(name, ValueKind.DAY, is_optional=True)
        for name in (
            "measured_since",
            "last_delivered",
            "last_opened",
            "last_machine_opened",
            "last_clicked",
        )
    ),
)
TAG_NAME = FilterName("tag", ValueKind.LABEL, is_optional=True)
STORED_TAG_NAME = FilterName(TAG_NAME.name, ValueKind.TAG_ID, is_optional=True)
# The names that filters of every list can use. The filters of a list can also use the names of the
# owner's member fields.
COMMON_NAMES = (
    STATUS_NAME,
    FilterName("type", ValueKind.WORD, words=tuple(Tier)),
    FilterName("paid_expiry", ValueKind.MOMENT, is_optional=True),
    FilterName("email", ValueKind.TEXT, is_optional=True),
    FilterName("name", ValueKind.TEXT, is_optional=True),
    FilterName("source", ValueKind.LABEL),
    FilterName("import_id", ValueKind.ID, is_optional=True),
    FilterName("email_enabled", ValueKind.BOOLEAN),
    FilterName("bounced", ValueKind.WORD, words=tuple(BounceState)),
    LEFT_REASON_NAME,
    *MAILING_NAMES,
    FilterName("joined_at", ValueKind.MOMENT, has_anniversary=True),
    FilterName("created_at", ValueKind.MOMENT, has_anniversary=True),
    FilterName("updated_at", ValueKind.MOMENT),
    *(FilterName(name, ValueKind.TEXT, is_optional=True) for name in ORIGIN_NAMES),
    *ENGAGEMENT_NAMES,
    FilterName("engagement_choice", ValueKind.WORD, words=tuple(EngagementChoice)),
    TAG_NAME,
)


def build_filter_names(
    fields: Iterable[MemberField], *, are_stored: bool = False
) -> dict[str, FilterName]:
    """Return names with ids of fields and tags if ``are_stored``."""
    tag_names = [STORED_TAG_NAME] if are_stored else []
    field_names = [
        FilterName(
            f"{FIELD_PREFIX}{each.id if are_stored else each.key}",
            _KIND_BY_FIELD_TYPE[each.type],
            is_optional=True,
            field_id=each.id,
            has_anniversary=each.type == FieldType.DATE,
        )
        for each in fields
    ]
    return {each.name: each for each in (*COMMON_NAMES, *tag_names, *field_names)}


class Span(NamedTuple):
    """A period from ``begin`` until just before ``end``."""

    begin: datetime
    end: datetime


Value = str | bool | int | Decimal | date | Span


class InvalidValue(Exception):
    """Raised with an explanation for an invalid value in a filter."""


def parse_value(name: FilterName, value: object, *, today: date | None) -> Value:
    """Parse a value. ``today`` is ``None`` if the operator doesn't accept ``days_ago``."""
    if name.kind is ValueKind.WORD:
        folded = value.casefold() if isinstance(value, str) else None
        for word in name.words:
            if word.casefold() == folded:
                return word
        raise InvalidValue(f"must be one of {', '.join(name.words)}")
    if name == TAG_NAME:
        return _parse_tag(value)
    if today is not None and name.kind in _DAY_KINDS and isinstance(value, dict):
        value = _parse_days_ago(value, today)
    return _PARSERS[name.kind](value)


def _parse_days_ago(value: Mapping[Any, Any], today: date) -> str:
    days = _parse_days(value.get(DAYS_AGO), MAX_DAYS_AGO)
    if days is None or len(value) != 1:
        limits = f"-{MAX_DAYS_AGO} to {MAX_DAYS_AGO}"
        raise InvalidValue(f'must be {limits} days ago, such as {{"{DAYS_AGO}": 90}}')
    return (today - timedelta(days=days)).isoformat()


def parse_anniversary(value: object, *, today: date) -> date:
    """Return the day whose anniversaries the filter finds."""
    days = _parse_days(value, MAX_ANNIVERSARY_DAYS)
    if days is None:
        limits = f"-{MAX_ANNIVERSARY_DAYS} to {MAX_ANNIVERSARY_DAYS}"
        raise InvalidValue(f"must be a whole number of days from {limits}")
    return today + timedelta(days=days)


def _parse_days(value: object, max_days: int) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > max_days:
        return None
    return value


def _parse_text(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_TEXT_CHARACTERS:
        raise InvalidValue(f"must be a string of 1 to {MAX_TEXT_CHARACTERS} characters")
    if _INVALID_CHARACTER.search(value):
        raise InvalidValue("must not contain NUL characters or lone surrogates")
    return value


def _parse_tag(value: object) -> str:
    try:
        return tags.normalise_tag(_parse_text(value))
    except InvalidAttribute as error:
        raise InvalidValue(str(error)) from None


def _parse_number(value: object) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidValue("must be a number")
    # ``repr`` ensures that the float 0.1 becomes exactly the decimal number 0.1.
    return Decimal(repr(value))


def _parse_id(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MAX_ID:
        raise InvalidValue("must be an id")
    return value


def _parse_boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidValue("must be true or false")
    return value


def _parse_span(value: object) -> Span:
    try:
        if _matches(value, _DAY_PATTERN):
            begin = datetime.combine(date.fromisoformat(value), time(), UTC)
            length = timedelta(days=1)
        elif _matches(value, _MOMENT_PATTERN):
            begin = datetime.fromisoformat(value)
            # A time in a filter stands for one microsecond, the precision with which Postgres
            # stores times.
            length = timedelta(microseconds=1)
        else:
            raise InvalidValue(_SPAN_RULE)
    except ValueError:
        raise InvalidValue(_SPAN_RULE) from None
    if begin.tzinfo is None or begin.year not in _YEARS:
        raise InvalidValue(_SPAN_RULE)
    return Span(begin, begin + length)


def _parse_day(value: object) -> str:
    with suppress(ValueError):  # The pattern also matches invalid days such as 2026-02-30.
        if _matches(value, _DAY_PATTERN):
            return date.fromisoformat(value).isoformat()
    raise InvalidValue("must be a date such as 2026-11-21")


def _matches(value: object, pattern: re.Pattern[str]) -> TypeGuard[str]:
    return isinstance(value, str) and pattern.match(value) is not None


def _parse_tag_or_id(value: object) -> str | int:
    return _parse_tag(value) if isinstance(value, str) else _parse_id(value)


_PARSERS: Mapping[ValueKind, Callable[[object], Value]] = {
    ValueKind.TEXT: _parse_text,
    ValueKind.LABEL: _parse_text,
    ValueKind.NUMBER: _parse_number,
    ValueKind.ID: _parse_id,
    ValueKind.BOOLEAN: _parse_boolean,
    ValueKind.MOMENT: _parse_span,
    ValueKind.DAY: _parse_day,
    ValueKind.TAG_ID: _parse_tag_or_id,
}
