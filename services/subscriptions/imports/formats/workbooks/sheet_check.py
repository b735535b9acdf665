"""Computes which cells a sheet spans, before the sheet is loaded.

The positions of cells are computed as in the library that loads the sheet. Cells without a value
don't count, because the library skips these cells.
"""

import re
import time
from collections.abc import Callable
from typing import IO, NamedTuple
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from services.subscriptions.imports.formats.workbooks.cell_text import UNCALCULATED
from services.subscriptions.imports.formats.workbooks.number_formats import ZeroFormat
from services.subscriptions.imports.formats.workbooks.refusals import (
    refuse_damaged,
    refuse_large,
)
from services.subscriptions.imports.formats.workbooks.xml_parts import (
    Edit,
    parse_part,
    remove_prefix,
)

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
# The value that some programs store for a formula that they don't calculate.
_PLACEHOLDER = "0"
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


class FormattedRows(NamedTuple):
    first_row: int
    last_row: int
    format: ZeroFormat


class SheetCheck:
    """A check of one sheet, which reads the XML of the sheet as a stream.

    Attributes:
        errors: what the unreadable cells of a row contain, such as ``the error #N/A``, by the
            number of the row and the column.
        formats: the number formats with leading zeros, by column number.
        edits: replace what the library doesn't read with something that it reads.

    Args:
        has_placeholders: whether a formula with the stored value 0 was never calculated.
    """

    def __init__(
        self,
        name: str,
        content: IO[bytes],
        find_zero_format: Callable[[str], ZeroFormat | None],
        *,
        has_placeholders: bool = False,
    ) -> None:
        self._name = name
        self._find_zero_format = find_zero_format
        self._has_placeholders = has_placeholders
        self.formats: dict[int, list[FormattedRows]] = {}
        self.span: CellRange | None = None
        self.merged: list[CellRange] = []
        self.errors: dict[int, dict[int, str]] = {}
        self.edits: list[Edit] = []
        # The number of the current row element, as an integer and as text. The reference of a cell
        # may contain a different row number.
        self._row = 0
        self._row_text = ""
        # The element that contains the next text, or "" after the end of an element.
        self._element = ""
        self._cell_row = 0
        self._column = 0
        self._error_cells = 0
        self._is_error = False
        self._error_text = ""
        self._error_start = 0
        # The start, the element and the attributes of a cell with an inline text.
        self._inline_start = 0
        self._inline_element = ""
        self._inline_attributes: dict[str, str] | None = None
        self._has_value = False
        # States whether the cell has a formula, and no stored value so far.
        self._is_uncalculated = False
        self._is_text = False
        self._format: ZeroFormat | None = None
        # Maps the letters of each column to the column's number.
        self._columns: dict[str, int] = {}
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start_element
        self._parser.EndElementHandler = self._end_element
        self._parser.CharacterDataHandler = self._read_text
        self._parser.StartCdataSectionHandler = self._check_section
        self._pieces = parse_part(content, self._parser)

    def advance(self, seconds: float) -> bool:
        """Read the sheet for a while. Return whether the whole sheet has been read."""
        ends_at = time.monotonic() + seconds
        is_checked = all(time.monotonic() <= ends_at for _ in self._pieces)
        if is_checked:
            self._end_cell()
        return is_checked

    def _start_element(self, name: str, attributes: dict[str, str]) -> None:
        full_name = name
        if ":" in name:
            name = remove_prefix(name)
        self._element = name
        if name == "c":
            self._start_cell(full_name, attributes)
        elif name in ("v", "is"):
            self._add_value(name)
        elif name == "row":
            self._end_cell()
            number = attributes.get("r")
            self._row = self._row + 1 if number is None else _read_row(number)
            self._row_text = str(self._row)
            self._column = 0
        elif name == "mergeCell":
            self._add_merged(attributes.get("ref", ""))
        elif name == "f":
            if self._has_value:
                # The library would lose the value.
                raise refuse_damaged("a formula follows its value")
            self._is_uncalculated = True

    def _end_element(self, _: str) -> None:
        self._element = ""

    def _start_cell(self, element: str, attributes: dict[str, str]) -> None:
        self._end_cell()
        reference = attributes.get("r")
        if reference is None:
            self._cell_row = self._row or 1
            self._column += 1
        elif column := self._columns.get(reference.removesuffix(self._row_text)):
            self._cell_row = self._row
            self._column = column
        else:
            self._cell_row, self._column = self._read_reference(reference)
        kind = attributes.get("t", "n")
        self._is_error = kind == "e"
        self._is_text = kind == "str"
        self._has_value = False
        self._inline_attributes = None
        self._format = self._find_zero_format(attributes.get("s", "0")) if kind == "n" else None
        if kind == "inlineStr":
            self._inline_start = self._parser.CurrentByteIndex
            self._inline_element = element
            self._inline_attributes = attributes

    def _check_section(self) -> None:
        """Refuse a CDATA section in a value, because the library would lose the value."""
        if self._element == "v":
            raise refuse_damaged("a value is in a CDATA section")

    def _read_text(self, text: str) -> None:
        """Refuse text outside of values, because the library would lose the text."""
        element = self._element
        if element in ("c", "is", "r", ""):
            if not text.isspace():
                raise refuse_damaged("a cell contains text outside of its value")
        elif self._is_uncalculated and element in ("v", "t"):
            is_placeholder = self._has_placeholders and text == _PLACEHOLDER and not self._is_text
            self._is_uncalculated = is_placeholder or text.isspace()

    def _add_value(self, name: str) -> None:
        if self._has_value:
            # The library would lose one of the values.
            raise refuse_damaged("a cell contains two values")
        self._has_value = True
        if self._inline_attributes is not None:
            if name == "v":
                self._read_inline_value(self._inline_attributes)
            self._inline_attributes = None
        if self._is_text:
            # An empty text is a stored value, too.
            self._is_uncalculated = False
        if self._format is not None:
            self._add_format(self._format)
        row = self._cell_row
        column = self._column
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
        if self._is_error:
            self._error_text = ""
            self._error_start = self._parser.CurrentByteIndex
            self._parser.CharacterDataHandler = self._add_error_text
            self._parser.EndElementHandler = self._end_error

    def _read_inline_value(self, attributes: dict[str, str]) -> None:
        """Replace the type of a cell whose inline text is in the element for other values."""
        self._is_text = True
        others = {name: value for name, value in attributes.items() if name != "t"}
        text = "".join(f" {name}={quoteattr(value)}" for name, value in others.items())
        start = f'<{self._inline_element}{text} t="str">'.encode()
        self.edits.append(Edit(self._inline_start, self._parser.CurrentByteIndex, start))

    def _add_format(self, format_: ZeroFormat) -> None:
        row = self._cell_row
        ranges = self.formats.setdefault(self._column, [])
        if ranges and ranges[-1].format is format_ and ranges[-1].last_row == row - 1:
            ranges[-1] = ranges[-1]._replace(last_row=row)
        else:
            ranges.append(FormattedRows(row, row, format_))

    def _end_cell(self) -> None:
        if self._is_uncalculated:
            self._is_uncalculated = False
            self.errors.setdefault(self._cell_row, {})[self._column] = UNCALCULATED

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
            raise refuse_large(f"the sheet {self._name!r} spans more than {MAX_CELLS:,} cells")

    def _add_error_text(self, text: str) -> None:
        self._error_text = (self._error_text + text)[:MAX_ERROR_CHARACTERS]

    def _end_error(self, name: str) -> None:
        self._parser.CharacterDataHandler = self._read_text
        self._parser.EndElementHandler = self._end_element
        self._element = ""
        self._is_uncalculated = False
        self._error_cells += 1
        if self._error_cells > MAX_ERROR_CELLS:
            raise refuse_large(
                f"the sheet {self._name!r} has more than {MAX_ERROR_CELLS:,} cells with errors"
            )
        error = self._error_text or _SUBSTITUTE_ERROR
        self.errors.setdefault(self._cell_row, {})[self._column] = f"the error {error}"
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
