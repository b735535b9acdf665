"""Parses dates in the notations that files use."""

import re
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache, lru_cache

from babel.dates import get_month_names

from services.subscriptions.export_sheets import bare_cell
from services.subscriptions.imports.column_vocabulary import is_no
from services.subscriptions.imports.known_words import MAX_WORD_CHARACTERS, key


class DateOrder(StrEnum):
    """The order of dates such as 03/04/2025; dates with dots have the day first."""

    DAY_FIRST = "dmy"
    MONTH_FIRST = "mdy"


# 31/12/2025, and with hyphens or dots.
_NUMBERED = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4})(?!\d)", re.ASCII)

_YEAR_FIRST = re.compile(r"(\d{4})[/.](\d{1,2})[/.](\d{1,2})(?!\d)", re.ASCII)

_CHINESE = re.compile(r"(\d{4})\s?年\s?(\d{1,2})\s?月\s?(\d{1,2})\s?日", re.ASCII)

# 31. Dezember 2025, 31 de diciembre de 2025; Russian has a letter for "year" behind it.
_DAY_MONTH = re.compile(
    r"(\d{1,2})(?:\.|er|º|-)?\s?(?:de )?([^\W\d_]+)\.?,?[ -]?(?:de )?(\d{4})(?: ?\u0433\.?)?(?!\d)"
)

_MONTH_DAY = re.compile(r"([^\W\d_]+)\.? (\d{1,2})(?:st|nd|rd|th)?,? (\d{4})(?!\d)")

_TIME = re.compile(
    r"(?:,| at| um| à| \u0432|T)? ?(\d{1,2}):(\d\d)(?::(\d\d)(?:\.\d+)?)?(?: ?([ap])\.?m\.?)?\Z",
    re.ASCII | re.IGNORECASE,
)

_SERIAL = re.compile(r"([2-7]\d{4})(?:[.,](\d{1,12}))?\Z", re.ASCII)

# Day 0 of Excel, LibreOffice and Google Sheets.
_SERIALS_SINCE = datetime(1899, 12, 30, tzinfo=UTC)

_LANGUAGES = ("en", "de", "fr", "es", "ru")

_NOON = 12


@cache
def _months() -> dict[str, int]:
    """Return the numbers of months by their names and short names, folded."""
    return {
        key(name): number
        for language in _LANGUAGES
        for context in ("format", "stand-alone")
        for width in ("wide", "abbreviated")
        for number, name in get_month_names(width, context, language).items()
    } | {"sept": 9}


def read_moment(cell: str, order: DateOrder = DateOrder.DAY_FIRST) -> datetime | None:
    """A time with its zone, UTC if it names none; ``None`` for a cell that says no.

    Reads ISO 8601, dates with dots, slashes or hyphens, names of months in six languages, serial
    numbers of spreadsheets, and seconds or milliseconds since 1970. Raises ``ValueError``, whose
    text is the rule.
    """
    text = bare_cell(cell).strip()
    if is_no(text):
        return None
    found = _moment(text, order) if len(text) <= MAX_WORD_CHARACTERS else None
    if found is None:
        raise ValueError("must be a date")
    return found


@lru_cache(1024)
def _moment(text: str, order: DateOrder) -> datetime | None:
    text = text.removesuffix(" UTC")
    # An offset may stand apart from the time.
    for written in (text, re.sub(r" ([+-]\d\d:?\d\d)\Z", r"\1", text)):
        try:
            found = datetime.fromisoformat(written)
            return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
        except (ValueError, OverflowError):
            continue
    # Seconds or milliseconds since 1970, as programs write them: from 2001 on.
    if len(text) in (10, 13) and text.isascii() and text.isdecimal():
        return datetime.fromtimestamp(int(text[:10]), UTC)
    if serial := _SERIAL.match(text):
        days = float(f"{serial[1]}.{serial[2] or 0}")
        return _SERIALS_SINCE + timedelta(seconds=round(days * 86_400))
    try:
        return _spelt(text, order)
    except ValueError:
        return None


def _spelt(text: str, order: DateOrder) -> datetime | None:
    """Return a date in numbers or words, with or without a time; raises ``ValueError``."""
    if found := _NUMBERED.match(text):
        is_month_first = found[2] != "." and order is DateOrder.MONTH_FIRST
        day, month = (found[3], found[1]) if is_month_first else (found[1], found[3])
        parts = found[4], month, day
    elif found := _YEAR_FIRST.match(text) or _CHINESE.match(text):
        parts = found[1], found[2], found[3]
    elif found := _DAY_MONTH.match(text):
        parts = found[3], str(_months().get(key(found[2]), 0)), found[1]
    elif found := _MONTH_DAY.match(text):
        parts = found[3], str(_months().get(key(found[1]), 0)), found[2]
    else:
        return None
    year, month_number, day_number = map(int, parts)
    moment = datetime(year, month_number, day_number, tzinfo=UTC)
    if not (rest := text[found.end() :]):
        return moment
    time = _TIME.match(rest)
    if time is None:
        return None
    hour = int(time[1])
    if half := time[4]:
        hour = hour % _NOON + (_NOON if half.lower() == "p" else 0)
    return moment.replace(hour=hour, minute=int(time[2]), second=int(time[3] or 0))


def is_written_date(text: str) -> bool:
    """Return whether the text is a date without a time, which a bare number is not."""
    if ":" in text or text.isdecimal() or _SERIAL.match(text) or len(text) > MAX_WORD_CHARACTERS:
        return False
    return any(_moment(text, order) is not None for order in DateOrder)
