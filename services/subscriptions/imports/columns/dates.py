"""Parses dates in imported files."""

import re
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache, lru_cache

from babel.dates import get_month_names

from core import clock
from services.subscriptions.formula_guard import unguard_cell
from services.subscriptions.imports.columns.column_vocabulary import is_no
from services.subscriptions.imports.columns.known_words import MAX_WORD_CHARACTERS, normalise_word

# Matches dates such as 31/12/2025, 31-12-2025, 31.12.2025, 31/12/25 and 31.12.25. A date such as
# 25-12-31 doesn't match, because it may begin with the year or with the day.
NUMBERED_DATE = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4}|(?<!-)\d\d)(?!\d)", re.ASCII)
_YEAR_FIRST = re.compile(r"(\d{4})[/.](\d{1,2})[/.](\d{1,2})(?!\d)", re.ASCII)
_CHINESE = re.compile(r"(\d{4})\s?年\s?(\d{1,2})\s?月\s?(\d{1,2})\s?日", re.ASCII)
# Matches dates such as "31 de diciembre de 2025". In Russian dates, an abbreviation of the word for
# "year" may follow the year.
_DAY_MONTH = re.compile(
    r"(\d{1,2})(?:\.|er|º|-)?\s?(?:de )?([^\W\d_]+)\.?,?[ -]?(?:de )?(\d{4}|\d\d)"
    r"(?: ?\u0433\.?)?(?!\d)"
)
_MONTH_DAY = re.compile(r"([^\W\d_]+)\.? (\d{1,2})(?:st|nd|rd|th)?,? (\d{4}|\d\d)(?!\d)")
_TIME = re.compile(
    r"(?:,| at| um| à| \u0432|T)? ?(\d{1,2}):(\d\d)(?::(\d\d)(?:\.\d+)?)?(?: ?([ap])\.?m\.?)?\Z",
    re.ASCII | re.IGNORECASE,
)
# Spreadsheets store a date as a serial number, the number of days since day 0.
_SERIAL = re.compile(r"([2-7]\d{4})(?:[.,](\d{1,12}))?\Z", re.ASCII)
# Day 0 of the serial numbers in Excel, LibreOffice and Google Sheets.
_SERIAL_EPOCH = datetime(1899, 12, 30, tzinfo=UTC)
# Two-digit years up to this number are in the 2000s, and higher ones are in the 1900s.
_LAST_YEAR_OF_2000S = 68
_YEARS_PER_CENTURY = 100
_SHORT_YEAR_DIGITS = 2
_LANGUAGES = ("en", "de", "fr", "es", "ru")
_NOON_HOUR = 12


class DateOrder(StrEnum):
    """The order of day and month in dates such as 03/04/2025.

    In dates with dots, such as 03.04.2025, the day always comes first.
    """

    DAY_FIRST = "dmy"
    MONTH_FIRST = "mdy"


def parse_date(cell: str, order: DateOrder = DateOrder.DAY_FIRST) -> datetime | None:
    """Return the date and time in a cell, or ``None`` if the cell is empty or means "no".

    A time without a time zone is interpreted as UTC. A date is in ISO 8601, consists of three
    numbers, or contains the name of a month in one of five languages. A cell with only a number is
    read as a spreadsheet's serial date, or as a Unix time in seconds or milliseconds. The two-digit
    years 00 to 68 stand for 2000 to 2068, and the years 69 to 99 stand for 1969 to 1999.

    Raises ``ValueError`` if the cell contains no valid date.
    """
    text = unguard_cell(cell).strip()
    if is_no(text):
        return None
    moment = _parse(text, order) if len(text) <= MAX_WORD_CHARACTERS else None
    if moment is None:
        raise ValueError("must be a date")
    return moment


def complete_birthday(moment: datetime, cell: str) -> datetime:
    """Move a future birthday with a two-digit year back by 100 years."""
    if moment > clock.now() and _has_short_year(cell):
        return moment.replace(year=moment.year - _YEARS_PER_CENTURY)
    return moment


def require_past(moment: datetime, cell: str) -> None:
    """Raise ``ValueError`` if a date with a two-digit year is in the future. The previous century
    would be wrong too, because no event on a mailing list happened that long ago.
    """
    # A time zone may be up to a day ahead of UTC.
    if moment > clock.now() + timedelta(days=1) and _has_short_year(cell):
        raise ValueError("must not be in the future")


def is_written_date(text: str) -> bool:
    """Return whether the text is a date without a time of day."""
    if ":" in text or text.isdecimal() or _SERIAL.match(text) or len(text) > MAX_WORD_CHARACTERS:
        return False
    return any(_parse(text, order) is not None for order in DateOrder)


@lru_cache(1024)
def _parse(text: str, order: DateOrder) -> datetime | None:
    text = text.removesuffix(" UTC")
    # A space may separate a time from its UTC offset.
    for notation in (text, re.sub(r" ([+-]\d\d:?\d\d)\Z", r"\1", text)):
        try:
            moment = datetime.fromisoformat(notation)
            return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        except (ValueError, OverflowError):
            continue
    # A number with 10 digits counts seconds since 1970, and a number with 13 digits counts
    # milliseconds. Unix times with fewer than 10 digits aren't recognised, because they lie before
    # September 2001.
    if len(text) in (10, 13) and text.isascii() and text.isdecimal():
        return datetime.fromtimestamp(int(text[:10]), UTC)
    if serial := _SERIAL.match(text):
        days = float(f"{serial[1]}.{serial[2] or 0}")
        return _SERIAL_EPOCH + timedelta(seconds=round(days * 86_400))
    try:
        return _parse_notation(text, order)
    except ValueError:
        return None


def _parse_notation(text: str, order: DateOrder) -> datetime | None:
    """Parse a date such as 31/12/2025 or "31 December 2025", with or without a time of day.

    Raises ``ValueError``.
    """
    if match := NUMBERED_DATE.match(text):
        is_month_first = match[2] != "." and order is DateOrder.MONTH_FIRST
        year = match[4]
        month: str | int = match[1] if is_month_first else match[3]
        day = match[3] if is_month_first else match[1]
    elif match := _YEAR_FIRST.match(text) or _CHINESE.match(text):
        year, month, day = match.groups()
    elif match := _DAY_MONTH.match(text):
        day, month_name, year = match.groups()
        month = _find_month(month_name)
    elif match := _MONTH_DAY.match(text):
        month_name, day, year = match.groups()
        month = _find_month(month_name)
    else:
        return None
    moment = datetime(_complete_year(year), int(month), int(day), tzinfo=UTC)
    if not (rest := text[match.end() :]):
        return moment
    time = _TIME.match(rest)
    if time is None:
        return None
    hour = int(time[1])
    if half := time[4]:
        hour = hour % _NOON_HOUR + (_NOON_HOUR if half.lower() == "p" else 0)
    return moment.replace(hour=hour, minute=int(time[2]), second=int(time[3] or 0))


def _complete_year(year: str) -> int:
    if len(year) > _SHORT_YEAR_DIGITS:
        return int(year)
    return int(year) + (2000 if int(year) <= _LAST_YEAR_OF_2000S else 1900)


def _has_short_year(cell: str) -> bool:
    text = unguard_cell(cell).strip()
    matches = (notation.match(text) for notation in (NUMBERED_DATE, _DAY_MONTH, _MONTH_DAY))
    return any(match and len(match.groups()[-1]) == _SHORT_YEAR_DIGITS for match in matches)


def _find_month(name: str) -> int:
    return _load_months().get(normalise_word(name), 0)


@cache
def _load_months() -> dict[str, int]:
    return {
        normalise_word(name): number
        for language in _LANGUAGES
        for context in ("format", "stand-alone")
        for width in ("wide", "abbreviated")
        for number, name in get_month_names(width, context, language).items()
    } | {"sept": 9}
