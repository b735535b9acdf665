"""Detects the day-month order of the dates and the decimal mark of the numbers in each column."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from core.errors.imports import IMPORT_DATE_ORDER_NEEDED
from services.subscriptions.formula_guard import unguard_cell
from services.subscriptions.imports.columns.column_layout import ColumnLayout
from services.subscriptions.imports.columns.consent_words import is_date
from services.subscriptions.imports.columns.dates import NUMBERED_DATE, DateOrder, parse_date
from services.subscriptions.imports.columns.known_words import MAX_WORD_CHARACTERS
from services.subscriptions.imports.rows import TypedCell

_MONTHS = 12
# Matches spaces and apostrophes between groups of three digits in a number.
_GROUP_SEPARATORS = re.compile(r"(?<=\d)[ \u00a0\u202f\u2009'’](?=\d{3}(?!\d))")


def confirm_join_dates(layout: ColumnLayout, sample: Sequence[Sequence[str]]) -> None:
    """Remove the join date from columns with a header such as "Joined" whose cells aren't dates."""
    for index in layout.find_columns("joined"):
        cells = [record[index] for record in sample if index < len(record)]
        texts = [unguard_cell(cell).strip() for cell in cells]
        if any(texts) and not any(map(is_date, texts)):
            layout.roles["joined"].remove(index)


class DecimalMark(StrEnum):
    POINT = "point"
    COMMA = "comma"


_NUMBERS = {
    DecimalMark.POINT: re.compile(r"[+-]?(\d+|\d{1,3}(,\d{3})+)(\.\d+)?\Z", re.ASCII),
    DecimalMark.COMMA: re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?\Z", re.ASCII),
}
_GROUP_MARKS = {DecimalMark.POINT: ",", DecimalMark.COMMA: "."}


class ColumnForms:
    """Detects the day-month order of each date column, and the decimal mark of each number column.

    In a date such as 25/04/2025, the number over 12 reveals that the day comes first. A column's
    number or date format is guessed from the first records of the file, and later checked against
    all records. If a guess about a column's dates or numbers was wrong, the file is read a second
    time.

    Args:
        notations: the result of ``find_notations`` from the first reading of the file.
        date_order: the day-month order that the owner chose for ambiguous dates.
    """

    def __init__(
        self, notations: Mapping[str, str] | None = None, date_order: DateOrder | None = None
    ) -> None:
        self._date_order = date_order
        self._usual_order = date_order or DateOrder.DAY_FIRST
        # Maps each column index to the day-month order or decimal mark that is used to parse the
        # column.
        self._used_notations: dict[int, Any] = {
            int(index): DateOrder(form) if form in set(DateOrder) else DecimalMark(form)
            for index, form in (notations or {}).items()
        }
        # Maps a column's index to the number or date formats of the column's unambiguous cells.
        self._evident_notations: dict[int, set[DateOrder | DecimalMark]] = defaultdict(set)
        # Maps the indexes of columns with ambiguous dates to an example such as 03/04/2025.
        self._ambiguous_dates: dict[int, str] = {}
        # The indexes of columns with ambiguous numbers such as 1,234, where the comma may be a
        # decimal mark or a group separator.
        self._ambiguous_numbers: set[int] = set()

    def learn(
        self, dates: Iterable[int], numbers: Iterable[int], records: Sequence[Sequence[str]]
    ) -> None:
        for indexes, record_cell in ((dates, self._record_date), (numbers, self._record_number)):
            for index in indexes:
                for record in records:
                    if index < len(record) and not isinstance(record[index], TypedCell):
                        record_cell(index, unguard_cell(record[index]).strip())
                if len(self._evident_notations[index]) == 1:
                    self._used_notations.setdefault(index, *self._evident_notations[index])

    def parse_date(self, index: int, cell: str) -> datetime | None:
        text = unguard_cell(cell).strip()
        self._record_date(index, text)
        return parse_date(text, self._used_notations.get(index, self._usual_order))

    def normalise_number(self, index: int, text: str) -> str:
        if isinstance(text, TypedCell):
            return text
        self._record_number(index, text)
        return normalise_number(text, self._used_notations.get(index))

    def find_notations(self, header: Sequence[str]) -> dict[str, str]:
        notations: dict[str, str] = {}
        for index in self._ambiguous_dates.keys() | self._evident_notations.keys():
            evidence = self._evident_notations[index]
            if len(evidence) == 1:
                notations[str(index)] = next(iter(evidence))
            elif index in self._ambiguous_dates or evidence == set(DateOrder):
                if self._date_order is None:
                    raise IMPORT_DATE_ORDER_NEEDED(
                        column=header[index][:MAX_WORD_CHARACTERS] if index < len(header) else "",
                        cell=self._ambiguous_dates.get(index, "13/12/2025 and 12/13/2025"),
                    )
                notations[str(index)] = self._date_order
        return notations

    def has_misread_cells(self, notations: Mapping[str, str]) -> bool:
        """Return whether a column was read in a format that differs from ``notations``."""
        return any(
            self._find_used_notation(int(index), form) != form for index, form in notations.items()
        )

    def _record_date(self, index: int, text: str) -> None:
        match = NUMBERED_DATE.match(text)
        if match is None or match[2] == ".":
            return
        if int(match[1]) > _MONTHS:
            self._evident_notations[index].add(DateOrder.DAY_FIRST)
        elif int(match[3]) > _MONTHS:
            self._evident_notations[index].add(DateOrder.MONTH_FIRST)
        elif match[1] != match[3]:
            self._ambiguous_dates.setdefault(index, text[:MAX_WORD_CHARACTERS])

    def _record_number(self, index: int, text: str) -> None:
        marks = _find_possible_marks(_remove_separators(text))
        if len(marks) == 1:
            self._evident_notations[index].add(marks[0])
        elif marks and "," in text:
            self._ambiguous_numbers.add(index)

    def _find_used_notation(self, index: int, form: str) -> str | None:
        if index in self._used_notations or form in set(DateOrder):
            notation: str = self._used_notations.get(index, self._usual_order)
            return notation
        # While a column's decimal mark is unknown, ambiguous numbers are rejected.
        return None if index in self._ambiguous_numbers else DecimalMark.POINT


def normalise_number(text: str, mark: DecimalMark | None) -> str:
    """Format a number with a decimal point and without group separators.

    A text that isn't a number is returned unchanged.

    Raises ``ValueError`` for an ambiguous number such as 1,234 if ``mark`` is ``None``.
    """
    number = _remove_separators(text)
    marks = _find_possible_marks(number)
    if mark is None and len(marks) > 1 and "," in number:
        raise ValueError("must be written without an ambiguous comma")
    used_mark = mark or DecimalMark.POINT
    if used_mark not in marks:
        return text
    return number.replace(_GROUP_MARKS[used_mark], "").replace(",", ".")


def _find_possible_marks(text: str) -> list[DecimalMark]:
    return [mark for mark, pattern in _NUMBERS.items() if pattern.match(text)]


def _remove_separators(text: str) -> str:
    return _GROUP_SEPARATORS.sub("", text)
