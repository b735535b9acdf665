"""Detects the notation of each column: its order of dates or its decimal mark."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from core.errors.imports import IMPORT_DATE_ORDER_NEEDED
from services.subscriptions.export_sheets import bare_cell
from services.subscriptions.imports.dates import _NOON, _NUMBERED, DateOrder, read_moment
from services.subscriptions.imports.known_words import MAX_WORD_CHARACTERS


class DecimalMark(StrEnum):
    POINT = "point"
    COMMA = "comma"


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
