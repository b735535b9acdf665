"""Computes which cells a sheet spans, before the sheet is loaded.

The positions of cells are computed as in the library that loads the sheet. Cells without a value
don't count, because the library skips these cells.
"""

import re
import time
from typing import IO, NamedTuple
from xml.parsers import expat

from services.subscriptions.imports.workbooks.refusals import (
    WorkbookRefused,
    refuse_damaged,
    refuse_large,
)
from services.subscriptions.imports.workbooks.xml_parts import Edit, parse_part, remove_prefix

MAX_COLUMNS = 300
MAX_CELLS = 5_000_000
# The limits of Excel.
MAX_ROW = 1_048_576
MAX_COLUMN = 16_384
MAX_MERGED_RANGES = 100_000
MAX_ERROR_CELLS = 100_000
MAX_ERROR_CHARACTERS = 40

# The errors that the library knows. The library refuses a sheet with any other error.
_KNOWN_ERRORS = frozenset(("", "#DIV/0!", "#N/A", "#NAME?", "#NULL!", "#NUM!", "#REF!", "#VALUE!"))
_SUBSTITUTE_ERROR = "#N/A"
_DIGITS = "0123456789"
_LETTERS = re.compile(r"[A-Za-z]{1,3}\Z", re.ASCII)
_ROW = re.compile(r"[0-9]{1,7}\Z", re.ASCII)
_ALPHABET_LETTERS = 26


class CellRange(NamedTuple):
    """A rectangle of cells. Rows and columns are counted from 1."""

    first_row: int
    first_column: int
    last_row: int
    last_column: int


class SheetCheck:
    """A check of one sheet, which reads the XML of the sheet as a stream.

    Attributes:
        span: the smallest rectangle that contains all cells with values, or ``None`` if there is
            no such cell.
        merged: the merged ranges of the sheet.
        errors: maps a row's number to the errors in the row, such as ``#N/A``, by column number.
        edits: replace each error that the library doesn't know with an error that it knows.
    """

    def __init__(self, name: str, content: IO[bytes]) -> None:
        self._name = name
        self.span: CellRange | None = None
        self.merged: list[CellRange] = []
        self.errors: dict[int, dict[int, str]] = {}
        self.edits: list[Edit] = []
        # The number of the current row element, as an integer and as text. The reference of a cell
        # may contain a different row number.
        self._row = 0
        self._row_text = ""
        # The element that started last.
        self._element = ""
        self._cell_row = 0
        self._column = 0
        self._cells = 0
        self._error_cells = 0
        self._is_error = False
        self._error_text = ""
        self._error_start = 0
        # Maps the letters of each column to the column's number.
        self._columns: dict[str, int] = {}
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start_element
        self._parser.StartCdataSectionHandler = self._check_section
        self._pieces = parse_part(content, self._parser)

    def advance(self, seconds: float) -> bool:
        """Read the sheet for a while. Return whether the whole sheet has been read.

        Raises ``WorkbookRefused`` if the sheet is damaged or exceeds a limit.
        """
        ends_at = time.monotonic() + seconds
        return all(time.monotonic() <= ends_at for _ in self._pieces)

    def _start_element(self, name: str, attributes: dict[str, str]) -> None:
        if ":" in name:
            name = remove_prefix(name)
        last_element = self._element
        self._element = name
        if name == "c":
            reference = attributes.get("r")
            if reference is None:
                self._cell_row = self._row or 1
                self._column += 1
            elif column := self._columns.get(reference.removesuffix(self._row_text)):
                self._cell_row = self._row
                self._column = column
            else:
                self._cell_row, self._column = self._read_reference(reference)
            self._is_error = attributes.get("t") == "e"
        elif name in ("v", "is"):
            self._add_value()
        elif name == "row":
            number = attributes.get("r")
            self._row = self._row + 1 if number is None else _read_row(number)
            self._row_text = str(self._row)
            self._column = 0
        elif name == "mergeCell":
            self._add_merged(attributes.get("ref", ""))
        elif name == "f" and last_element == "v":
            # The library would lose the value.
            raise refuse_damaged("a formula follows its value")

    def _check_section(self) -> None:
        """Refuse a CDATA section in a value, because the library would lose the value."""
        if self._element == "v":
            raise refuse_damaged("a value is in a CDATA section")

    def _add_value(self) -> None:
        row = self._cell_row
        column = self._column
        self._cells += 1
        span = self.span
        if span is None:
            self.span = CellRange(row, column, row, column)
        elif not (
            span.first_row <= row <= span.last_row
            and span.first_column <= column <= span.last_column
        ):
            self.span = span = CellRange(
                min(span.first_row, row),
                min(span.first_column, column),
                max(span.last_row, row),
                max(span.last_column, column),
            )
            self._check_span(span)
        if self._cells > MAX_CELLS:
            raise self._refuse_cells()
        if self._is_error:
            self._error_text = ""
            self._error_start = self._parser.CurrentByteIndex
            self._parser.CharacterDataHandler = self._add_error_text
            self._parser.EndElementHandler = self._end_error

    def _check_span(self, span: CellRange) -> None:
        if span.last_row > MAX_ROW:
            raise refuse_damaged(f"it has more than {MAX_ROW:,} rows")
        columns = span.last_column - span.first_column + 1
        if columns > MAX_COLUMNS:
            raise refuse_large(
                f"the sheet {self._name!r} spans {columns:,} columns, and the limit is "
                f"{MAX_COLUMNS}"
            )
        if columns * (span.last_row - span.first_row + 1) > MAX_CELLS:
            raise self._refuse_cells()

    def _refuse_cells(self) -> WorkbookRefused:
        return refuse_large(f"the sheet {self._name!r} spans more than {MAX_CELLS:,} cells")

    def _add_error_text(self, text: str) -> None:
        self._error_text = (self._error_text + text)[:MAX_ERROR_CHARACTERS]

    def _end_error(self, name: str) -> None:
        self._parser.CharacterDataHandler = None
        self._parser.EndElementHandler = None
        self._error_cells += 1
        if self._error_cells > MAX_ERROR_CELLS:
            raise refuse_large(
                f"the sheet {self._name!r} has more than {MAX_ERROR_CELLS:,} cells with errors"
            )
        self.errors.setdefault(self._cell_row, {})[self._column] = (
            self._error_text or _SUBSTITUTE_ERROR
        )
        if self._error_text not in _KNOWN_ERRORS:
            text = f"<{name}>{_SUBSTITUTE_ERROR}".encode()
            self.edits.append(Edit(self._error_start, self._parser.CurrentByteIndex, text))

    def _add_merged(self, reference: str) -> None:
        first, _, last = reference.partition(":")
        start = self._read_reference(first)
        end = self._read_reference(last or first)
        self.merged.append(CellRange(*start, *end))
        if len(self.merged) > MAX_MERGED_RANGES:
            raise refuse_large(
                f"the sheet {self._name!r} has more than {MAX_MERGED_RANGES:,} merged ranges"
            )

    def _read_reference(self, reference: str) -> tuple[int, int]:
        """Return the row and the column of a reference such as ``B12``."""
        letters = reference.rstrip(_DIGITS)
        column = self._columns.get(letters)
        if column is None:
            column = self._columns[letters] = _read_column(letters)
        return _read_row(reference[len(letters) :]), column


def _read_row(text: str) -> int:
    row = int(text) if _ROW.match(text) else 0
    if not 1 <= row <= MAX_ROW:
        raise refuse_damaged("the number of a row is invalid")
    return row


def _read_column(letters: str) -> int:
    column = 0
    for letter in letters.upper() if _LETTERS.match(letters) else "":
        column = column * _ALPHABET_LETTERS + ord(letter) - ord("A") + 1
    if not 1 <= column <= MAX_COLUMN:
        raise refuse_damaged("the position of a cell is invalid")
    return column
