"""How the cells of a file write dates and numbers, decided for each column over the whole file."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache, lru_cache
from typing import Any

from babel.dates import get_month_names

from core.errors.imports import IMPORT_DATE_ORDER_NEEDED
from services.subscriptions.export_sheets import bare_cell
from services.subscriptions.imports.vocabulary import MAX_WORD_CHARACTERS, is_no, key


class DateOrder(StrEnum):
    """The order of dates such as 03/04/2025; dates with dots have the day first."""

    DAY_FIRST = "dmy"
    MONTH_FIRST = "mdy"


class DecimalMark(StrEnum):
    POINT = "point"
    COMMA = "comma"


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


_GROUPED = re.compile(r"(?<=\d)[ \u00a0\u202f\u2009'’](?=\d{3}(?!\d))")
_BY_MARK = {
    DecimalMark.POINT: re.compile(r"[+-]?(\d+|\d{1,3}(,\d{3})+)(\.\d+)?\Z", re.ASCII),
    DecimalMark.COMMA: re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?\Z", re.ASCII),
}
_OTHER_MARK = {DecimalMark.POINT: ",", DecimalMark.COMMA: "."}


def _marks_of(text: str) -> list[DecimalMark]:
    """Return the decimal marks by which the text is a number."""
    return [mark for mark, form in _BY_MARK.items() if form.match(text)]


def _ungrouped(text: str) -> str:
    return _GROUPED.sub("", text)


def plain_number(text: str, mark: DecimalMark | None) -> str:
    """The number as programs write it, or the text as it is if it is none.

    Without a mark, 1,234 may be two numbers. Raises ``ValueError``, whose text is the rule.
    """
    written = _ungrouped(text)
    marks = _marks_of(written)
    if mark is None and len(marks) > 1 and "," in written:
        raise ValueError("could be a thousand times as much: write it without the comma")
    used = mark or DecimalMark.POINT
    if used not in marks:
        return text
    return written.replace(_OTHER_MARK[used], "").replace(",", ".")


class ColumnForms:
    """The order of dates and the decimal mark of each column of a file, by the column's index.

    A column of dates such as 03/04/2025 shows its order by any number over 12 in the whole file.
    Reading therefore begins with what some first records show, and is to begin again if the others
    show something else.

    Args:
        kept: what an earlier reading of the same file found.
        date_order: for columns in which nothing shows the order, or that have both.
    """

    def __init__(
        self, kept: Mapping[str, str] | None = None, date_order: DateOrder | None = None
    ) -> None:
        self._date_order = date_order
        self._usual_order = date_order or DateOrder.DAY_FIRST
        # By the index: the form by which the column is read, and those that its cells show.
        self._used: dict[int, Any] = {
            int(index): DateOrder(form) if form in set(DateOrder) else DecimalMark(form)
            for index, form in (kept or {}).items()
        }
        self._shown: dict[int, set[DateOrder | DecimalMark]] = defaultdict(set)
        # Columns with cells that leave the form open, and one such date of each.
        self._open_dates: dict[int, str] = {}
        self._open_numbers: set[int] = set()

    def learn(self, dates: Iterable[int], numbers: Iterable[int], records: Any) -> None:
        """Begin with what these records show of these columns, unless more is known of them."""
        for indexes, note in ((dates, self._note_date), (numbers, self._note_number)):
            for index in indexes:
                for record in records:
                    if index < len(record):
                        note(index, bare_cell(record[index]).strip())
                if len(self._shown[index]) == 1:
                    self._used.setdefault(index, *self._shown[index])

    def moment(self, index: int, cell: str) -> datetime | None:
        """``read_moment`` of a cell of this column."""
        text = bare_cell(cell).strip()
        self._note_date(index, text)
        return read_moment(text, self._used.get(index, self._usual_order))

    def number(self, index: int, text: str) -> str:
        """``plain_number`` of a cell of this column."""
        self._note_number(index, text)
        return plain_number(text, self._used.get(index))

    def _note_date(self, index: int, text: str) -> None:
        found = _NUMBERED.match(text)
        if found is None or found[2] == ".":
            return
        if int(found[1]) > _NOON:
            self._shown[index].add(DateOrder.DAY_FIRST)
        elif int(found[3]) > _NOON:
            self._shown[index].add(DateOrder.MONTH_FIRST)
        elif found[1] != found[3]:
            # Two days, by the order.
            self._open_dates.setdefault(index, text[:MAX_WORD_CHARACTERS])

    def _note_number(self, index: int, text: str) -> None:
        marks = _marks_of(_ungrouped(text))
        if len(marks) == 1:
            self._shown[index].add(marks[0])
        elif marks and "," in text:
            self._open_numbers.add(index)

    def settled(self, header: list[str]) -> dict[str, str]:
        """Return what the whole file shows of each column, once it has been read.

        Raises ``import.date_order_needed``.
        """
        found: dict[str, str] = {}
        for index in self._open_dates.keys() | self._shown.keys():
            shown = self._shown[index]
            if len(shown) == 1:
                found[str(index)] = next(iter(shown))
            elif index in self._open_dates or shown == set(DateOrder):
                if self._date_order is None:
                    raise IMPORT_DATE_ORDER_NEEDED(
                        column=header[index][:MAX_WORD_CHARACTERS] if index < len(header) else "",
                        cell=self._open_dates.get(index, "13/12/2025 and 12/13/2025"),
                    )
                found[str(index)] = self._date_order
        return found

    def differs(self, settled: Mapping[str, str]) -> bool:
        """Return whether some cells of the file were read in another way than this."""
        return any(self._read_as(int(index), form) != form for index, form in settled.items())

    def _read_as(self, index: int, form: str) -> str | None:
        """Return the form of this column's cells; ``None`` if some have another one."""
        if index in self._used or form in set(DateOrder):
            used: str = self._used.get(index, self._usual_order)
            return used
        # Without a mark only numbers with a comma were not read as with a point.
        return None if index in self._open_numbers else DecimalMark.POINT
