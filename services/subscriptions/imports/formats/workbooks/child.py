"""The main program of the child process that reads a workbook.

The worker sends the file in several messages, and then asks for the rows of one sheet. Each child
process reads only one workbook.
"""

import codecs
import io
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any

import orjson
from python_calamine import CalamineError, CalamineSheet, CalamineWorkbook

from core.process import child_loop
from core.process.confinement import MAX_CPU_SECONDS, confine_process
from services.subscriptions.imports.formats.workbooks.cell_text import (
    MAX_ROW_CHARACTERS,
    CellText,
    convert_cells,
    shorten_cell,
)
from services.subscriptions.imports.formats.workbooks.package import WorkbookPackage
from services.subscriptions.imports.formats.workbooks.refusals import (
    WorkbookRefused,
    refuse_damaged,
    refuse_large,
)
from services.subscriptions.imports.formats.workbooks.sheet_check import (
    MAX_CELLS,
    CellRange,
    SheetCheck,
)

# Load the encoding of zip directories in advance, because the confined process can't load it later.
codecs.lookup("cp437")

# How long the child checks a sheet before it answers. Between two answers, the worker can run other
# jobs.
CHECK_SECONDS = 1.0
ROWS_PER_ANSWER = 1_000
CHARACTERS_PER_ANSWER = 256 * 1024
# A workbook that needs more CPU time is refused. The limit of the kernel is higher, so that the
# child can still answer.
_MAX_CPU_SECONDS = 60.0
_OUT_OF_MEMORY = "reading it takes more than 1 GB of memory"

# The answer if an earlier child process was killed, so the worker must send the file again.
_LOST = {"is_lost": True}

# A cell that a merged range hides shows the content of the range's first cell: the number of the
# first cell's row, the text, and what makes the first cell unreadable, or an empty text.
ShownCell = tuple[int, CellText, str]
# The number of a row, the cells of the row, the errors in the row, and what hidden cells show. If
# the row is too long, ``None`` replaces the cells. The keys are indexes of cells.
Row = tuple[int, list[CellText] | None, dict[str, str], dict[str, ShownCell]]


class WorkbookReader:
    def __init__(self) -> None:
        self._file = io.BytesIO()
        self._package: WorkbookPackage | None = None
        self._workbook: CalamineWorkbook | None = None
        self._check: SheetCheck | None = None
        self._rows: Iterator[Row] = iter(())
        self._steps: Mapping[str, Callable[[Any, bytes], tuple[Any, Sequence[bytes]]]] = {
            "append": self._append,
            "open": self._open,
            "check": self._check_sheet,
            "load": self._load_sheet,
            "read": self._read_rows,
        }

    def answer(self, request: Any, data: bytes) -> tuple[Any, Sequence[bytes]]:
        if request["step"] not in ("append", "open") and self._package is None:
            return _LOST, ()
        is_final = False
        is_out_of_memory = False
        try:
            if time.process_time() > _MAX_CPU_SECONDS:
                is_final = True
                raise refuse_large("reading it takes too long")
            return self._steps[request["step"]](request, data)
        except WorkbookRefused as refused:
            refusal = refused
        except MemoryError:
            is_final = is_out_of_memory = True
            refusal = refuse_large(_OUT_OF_MEMORY)
        except CalamineError:
            refusal = refuse_damaged("its content is invalid")
        self._check = None
        return {
            "refused": refusal.kind,
            "what": refusal.what,
            "is_final": is_final,
            "is_out_of_memory": is_out_of_memory,
        }, ()

    def _append(self, request: Any, data: bytes) -> tuple[Any, Sequence[bytes]]:
        if request["offset"] != self._file.tell():
            return _LOST, ()
        self._file.write(data)
        return {}, ()

    def _open(self, request: Any, _: bytes) -> tuple[Any, Sequence[bytes]]:
        if request["offset"] != self._file.tell():
            return _LOST, ()
        self._package = WorkbookPackage(self._file)
        self._file = self._package.file
        self._file.seek(0)
        self._workbook = CalamineWorkbook.from_filelike(self._file)
        sheets = self._package.sheets
        metadata = self._workbook.sheets_metadata
        if len(metadata) != len(sheets):
            raise refuse_damaged("its list of sheets is invalid")
        return {
            "sheets": [
                {
                    "name": sheet.name,
                    "is_visible": sheet.is_visible,
                    "has_cells": str(each.typ).endswith(".WorkSheet"),
                }
                for sheet, each in zip(sheets, metadata, strict=True)
            ]
        }, ()

    def _check_sheet(self, request: Any, _: bytes) -> tuple[Any, Sequence[bytes]]:
        assert self._package is not None
        if self._check is None:
            sheet = self._package.sheets[request["sheet"]]
            self._rows = iter(())
            self._check = SheetCheck(
                sheet.name,
                self._package.open_part(sheet.part),
                self._package.find_zero_format,
                has_placeholders=self._package.has_placeholders,
            )
        return {"is_checked": self._check.advance(CHECK_SECONDS)}, ()

    def _load_sheet(self, request: Any, _: bytes) -> tuple[Any, Sequence[bytes]]:
        assert self._package is not None
        assert self._workbook is not None
        assert self._check is not None
        check = self._check
        self._check = None
        if check.span is None:
            return {}, ()
        if check.edits:
            part = self._package.sheets[request["sheet"]].part
            # Free the memory of the old workbook first.
            self._workbook = None
            self._workbook = CalamineWorkbook.from_filelike(
                self._package.edit_part(part, check.edits)
            )
        sheet = self._workbook.get_sheet_by_index(request["sheet"])
        _compare_span(sheet, check.span)
        self._rows = _list_rows(sheet, check)
        return {}, ()

    def _read_rows(self, _: Any, __: bytes) -> tuple[Any, Sequence[bytes]]:
        rows: list[Row] = []
        characters = 0
        is_end = True
        for row in self._rows:
            rows.append(row)
            characters += sum(map(len, row[1] or ()))
            if len(rows) >= ROWS_PER_ANSWER or characters >= CHARACTERS_PER_ANSWER:
                is_end = False
                break
        text = orjson.dumps(rows)
        if rb"\u0000" in text:
            text = orjson.dumps(_remove_null_characters(rows))
        return {"is_end": is_end}, [text]


def main() -> None:
    child_loop.answer_messages(
        WorkbookReader().answer,
        confine=confine_process,
        max_resident_bytes=sys.maxsize,
        max_cpu_seconds=MAX_CPU_SECONDS,
    )


def _compare_span(sheet: CalamineSheet, span: CellRange) -> None:
    """Refuse a sheet with cells outside the checked span.

    The library may read another part than the check, because a list of sheets can be ambiguous.
    """
    if sheet.start is None or sheet.end is None:
        return
    first_row, first_column = sheet.start
    last_row, last_column = sheet.end
    if not (
        span.first_row <= first_row + 1
        and span.first_column <= first_column + 1
        and last_row + 1 <= span.last_row
        and last_column + 1 <= span.last_column
    ):
        raise refuse_damaged("its list of sheets is ambiguous")


def _list_rows(sheet: CalamineSheet, check: SheetCheck) -> Iterator[Row]:
    if sheet.start is None:
        return
    first_column = sheet.start[1] + 1
    formats = _ShownFormats(check, first_column)
    hidden_cells = _HiddenCells(check, first_column, sheet.width)
    for number, values in chain(_read_values(sheet), _list_unread_rows(sheet, check)):
        cells = convert_cells(values)
        formats.apply(number, cells)
        errors = {
            str(index): error
            for column, error in check.errors.get(number, {}).items()
            if 0 <= (index := column - first_column) < sheet.width
        }
        for error_index in map(int, errors):
            # The stored value of a formula that was never calculated means nothing.
            cells[error_index] = ""
        hidden = hidden_cells.hide(number, cells, errors)
        if cells.count("") == len(cells) and not errors:
            continue
        is_too_long = sum(map(len, cells)) > MAX_ROW_CHARACTERS
        yield number, None if is_too_long else cells, errors, hidden


def _list_unread_rows(sheet: CalamineSheet, check: SheetCheck) -> Iterator[tuple[int, list[Any]]]:
    """Yield the rows below the last value, which contain only formulas without values."""
    assert sheet.end is not None
    for number in sorted(number for number in check.errors if number > sheet.end[0] + 1):
        yield number, [""] * sheet.width


def _read_values(sheet: CalamineSheet) -> Iterator[tuple[int, list[Any]]]:
    rows = sheet.iter_rows()
    for number in count(1):
        try:
            values = next(rows, None)
        except (KeyboardInterrupt, SystemExit, MemoryError):
            raise
        except BaseException:  # noqa: BLE001 - panics of the library have no other public class
            # The library panics if a number is too large for a time, and a panic isn't an
            # ``Exception``.
            raise refuse_damaged(f"row {number} contains an invalid date or time") from None
        if values is None:
            return
        yield number, values


def _remove_null_characters(rows: Sequence[Row]) -> list[Row]:
    """Remove null characters from cells, because Postgres can't store them."""
    return [
        (
            number,
            cells and [cell.replace("\0", "") if isinstance(cell, str) else cell for cell in cells],
            errors,
            hidden,
        )
        for number, cells, errors, hidden in rows
    ]


class _ShownFormats:
    def __init__(self, check: SheetCheck, first_column: int) -> None:
        # The formatted rows by the index of the cell, the topmost rows last.
        self._waiting = {
            column - first_column: ranges[::-1] for column, ranges in check.formats.items()
        }

    def apply(self, row: int, cells: list[CellText]) -> None:
        for index, ranges in self._waiting.items():
            while ranges and ranges[-1].last_row < row:
                ranges.pop()
            if not ranges or ranges[-1].first_row > row or not 0 <= index < len(cells):
                continue
            cell = cells[index]
            if isinstance(cell, list):
                cells[index] = ranges[-1].format.show(cell[0])


class _OpenRange:
    def __init__(self, cells: CellRange) -> None:
        self.cells = cells
        self.shown: ShownCell | None = None


class _HiddenCells:
    """Finds the cells that a merged range hides. A merged range shows only its first cell."""

    def __init__(self, check: SheetCheck, first_column: int, width: int) -> None:
        self._first_column = first_column
        self._width = width
        span = check.span
        assert span is not None
        # The merged ranges that overlap the span of the sheet, the topmost range last.
        self._waiting = sorted(
            (
                merged
                for merged in check.merged
                if merged.last_row >= span.first_row
                and merged.first_row <= span.last_row
                and merged.last_column >= span.first_column
                and merged.first_column <= span.last_column
            ),
            reverse=True,
        )
        self._open: list[_OpenRange] = []
        self._steps = 0

    def hide(self, row: int, cells: list[CellText], errors: dict[str, str]) -> dict[str, ShownCell]:
        """Empty the hidden cells of a row, and return the shown content of these cells by index.

        Call this for each row in order. Raises ``WorkbookRefused`` if merged ranges hide more than
        about ``MAX_CELLS`` cells.
        """
        if not (self._waiting or self._open):
            return {}
        while self._waiting and self._waiting[-1].first_row <= row:
            self._open.append(_OpenRange(self._waiting.pop()))
        self._open = [merged for merged in self._open if merged.cells.last_row >= row]
        hidden: dict[str, ShownCell] = {}
        for merged in self._open:
            first = max(merged.cells.first_column - self._first_column, 0)
            last = min(merged.cells.last_column - self._first_column, self._width - 1)
            if row == merged.cells.first_row and merged.cells.first_column >= self._first_column:
                error = errors.get(str(first), "")
                merged.shown = (row, shorten_cell(cells[first]), error)
                first += 1
            for index in range(first, last + 1):
                cells[index] = ""
                errors.pop(str(index), None)
                if merged.shown is not None:
                    hidden[str(index)] = merged.shown
            self._steps += 1 + max(last - first, 0)
            if self._steps > MAX_CELLS:
                raise refuse_large(f"its merged ranges cover more than {MAX_CELLS:,} cells")
        return hidden


if __name__ == "__main__":
    main()
