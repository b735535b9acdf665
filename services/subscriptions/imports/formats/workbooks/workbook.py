"""Reads the rows of one sheet in a workbook through a child process."""

import sys
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from itertools import chain
from typing import IO, Any, NamedTuple

import orjson

from core.errors import DomainError, MachineBusy, TransientError
from core.errors import imports as errors
from core.errors.catalogue import ErrorType
from core.logging import get_logger
from core.process.child_process import ChildCrashed, ChildLate, ChildProcess, ChildTooSlow
from services.subscriptions.imports.columns.column_layout import detect_layout
from services.subscriptions.imports.formats.dialect import (
    SAMPLE_RECORDS,
    Dialect,
    detect_table_dialect,
)
from services.subscriptions.imports.formats.workbooks.cell_text import MAX_ROW_CHARACTERS, CellText
from services.subscriptions.imports.formats.workbooks.reading_slots import MemoryLimit, ReadingSlot
from services.subscriptions.imports.formats.workbooks.refusals import RefusalKind
from services.subscriptions.imports.rows import RejectedRecord, TypedCell

_log = get_logger(__name__)

MAX_WORKBOOK_BYTES = 100 * 1024**2
# The CPU time limit for one step of the child process. The child also limits the CPU time for the
# whole workbook.
STEP_CPU_SECONDS = 50.0
MAX_SHEETS_SHOWN = 100
MAX_SHEETS_IN_ERROR = 20
MAX_SHEET_NAME_CHARACTERS_IN_ERROR = 60
PIECE_BYTES = 1024**2
_MODULE = "services.subscriptions.imports.formats.workbooks.child"
REFUSALS: Mapping[RefusalKind, ErrorType] = {
    RefusalKind.TOO_LARGE: errors.IMPORT_WORKBOOK_TOO_LARGE,
    RefusalKind.ENCRYPTED: errors.IMPORT_WORKBOOK_ENCRYPTED,
    RefusalKind.DAMAGED: errors.IMPORT_WORKBOOK_DAMAGED,
    RefusalKind.OTHER_SPREADSHEET: errors.IMPORT_OTHER_SPREADSHEET,
    RefusalKind.UNKNOWN_FORMAT: errors.IMPORT_UNKNOWN_FORMAT,
}
_TOO_SLOW = "reading it takes too long"
_KILLED = "The process that read the workbook was killed."
_NEEDS_MEMORY = "The workbook needs more memory."
_OUT_OF_MEMORY = "reading it takes more than 1 GB of memory"


class Sheet(NamedTuple):
    """A sheet of a workbook. ``position`` is the sheet's index among all sheets."""

    position: int
    name: str
    is_visible: bool


class ShownCell(NamedTuple):
    """The content of a merged range's first cell, which the hidden cells of the range show.

    Attributes:
        error: what makes the first cell unreadable, or an empty text.
    """

    first_line: int
    text: str
    error: str


class SheetRecord(NamedTuple):
    """A row of a sheet.

    Attributes:
        hidden: what the hidden cells of merged ranges show, by index. The cells themselves are
            empty.
    """

    line: int
    cells: list[str]
    errors: dict[int, str]
    hidden: Mapping[int, ShownCell]


class Workbook:
    """A workbook that a child process reads.

    The owner of a ``ReadingSlot`` passes it to the workbook, which releases the slot at its end. If
    the child process needs more memory than a limit below ``MemoryLimit.FULL``, a
    ``TransientError`` is raised.

    The generators ``open`` and ``choose_sheet`` must be exhausted before ``records`` is read.

    Attributes:
        sheets: the sheets in the order of the workbook. Hidden sheets are included, and sheets that
            can't have cells, such as chart sheets, are missing.
        unreadable_headers: the indexes of the columns whose header contains an error, or a formula
            that was never calculated.
    """

    def __init__(
        self,
        file: IO[bytes],
        size: int,
        slot: ReadingSlot | None = None,
        limit: MemoryLimit = MemoryLimit.FULL,
    ) -> None:
        self._file = file
        self._size = size
        self._slot = slot
        self._limit = limit
        # States whether the child process can read another sheet after the last error.
        self._can_continue = False
        self._child = ChildProcess(
            _MODULE,
            cpu_seconds=STEP_CPU_SECONDS,
            memory_bytes=limit,
            max_messages=sys.maxsize,
        )
        self.sheets: Sequence[Sheet] = ()
        self.sheet: Sheet | None = None
        self.dialect = Dialect(None, [], [], None)
        self.records: Iterator[SheetRecord | RejectedRecord] = iter(())

    @property
    def pid(self) -> int | None:
        return self._child.pid

    def close(self) -> None:
        self._child.close()
        if self._slot is not None:
            self._slot.release()

    def open(self) -> Generator[None, None, None]:
        """Send the file to the child process, and find the sheets.

        The generator yields between short steps.
        """
        if self._size > MAX_WORKBOOK_BYTES:
            what = f"it has {self._size / 1024**2:,.0f} MB, and the limit is 100 MB"
            raise errors.IMPORT_WORKBOOK_TOO_LARGE(what=what)
        offset = 0
        while piece := self._file.read(PIECE_BYTES):
            self._ask("append", offset=offset, data=piece)
            offset += len(piece)
            yield
        sheets = self._ask("open", offset=offset)["sheets"]
        self.sheets = [
            Sheet(position, sheet["name"], sheet["is_visible"])
            for position, sheet in enumerate(sheets)
            if sheet["has_cells"]
        ]

    def choose_sheet(
        self, name: str | None, mapping: Mapping[str, str] | None
    ) -> Generator[None, None, None]:
        """Choose a sheet, and read its first rows.

        Args:
            name: the name of the sheet. ``None`` chooses the first visible sheet with an address
                column. If there is none, the first visible sheet with cells is chosen.

        If ``name`` is ``None``, the error of a sheet is raised only if no other visible sheet has
        an address column.
        """
        if name is None:
            yield from self._choose_visible_sheet(mapping)
            return
        yield from self._load(self._find_sheet(name), mapping)
        if not self.dialect.header:
            raise errors.IMPORT_EMPTY()

    def describe(self) -> dict[str, Any]:
        return {
            "sheet": None if self.sheet is None else self.sheet.name,
            "sheets": [
                {"name": sheet.name, "hidden": not sheet.is_visible}
                for sheet in self.sheets[:MAX_SHEETS_SHOWN]
            ],
        }

    def _choose_visible_sheet(
        self, mapping: Mapping[str, str] | None
    ) -> Generator[None, None, None]:
        first_sheet: Sheet | None = None
        refusal: DomainError | None = None
        for sheet in self.sheets:
            if not sheet.is_visible:
                continue
            try:
                yield from self._load(sheet, mapping)
            except DomainError as error:
                if not self._can_continue:
                    raise
                refusal = refusal or error
                continue
            if _has_address_column(self.dialect, mapping):
                return
            if first_sheet is None and self.dialect.header:
                first_sheet = sheet
        if refusal is not None:
            raise refusal
        if first_sheet is None:
            self.sheet = None
            raise errors.IMPORT_EMPTY()
        if self.sheet != first_sheet:
            yield from self._load(first_sheet, mapping)

    def _find_sheet(self, name: str) -> Sheet:
        for fold in (str, str.casefold):
            for sheet in self.sheets:
                if fold(sheet.name) == fold(name):
                    return sheet
        names = ", ".join(repr(_shorten(sheet.name)) for sheet in self.sheets[:MAX_SHEETS_IN_ERROR])
        omitted = len(self.sheets) - MAX_SHEETS_IN_ERROR
        more = f" and {omitted} more" if omitted > 0 else ""
        sentence = f"The sheets are: {names}{more}." if self.sheets else "It has no sheets."
        raise errors.IMPORT_SHEET_NOT_FOUND(sheet=_shorten(name), sheets=sentence)

    def _load(self, sheet: Sheet, mapping: Mapping[str, str] | None) -> Generator[None, None, None]:
        self.sheet = sheet
        while not self._ask("check", sheet=sheet.position)["is_checked"]:
            yield
        self._ask("load", sheet=sheet.position)
        records = self._read_records()
        first_records: list[SheetRecord | RejectedRecord] = []
        sample: dict[int, list[str]] = {}
        characters = 0
        while len(sample) <= SAMPLE_RECORDS and characters <= MAX_ROW_CHARACTERS:
            record = next(records, None)
            if record is None:
                break
            first_records.append(record)
            if isinstance(record, SheetRecord):
                sample[record.line] = record.cells
                characters += sum(map(len, record.cells))
        self.dialect = detect_table_dialect(sample, mapping or {})
        self.unreadable_headers = self._name_unreadable_headers(first_records)
        self.records = chain(first_records, records)

    def _name_unreadable_headers(
        self, records: Sequence[SheetRecord | RejectedRecord]
    ) -> Collection[int]:
        """Name columns whose header can't be read after the content of the header's cell."""
        line = self.dialect.header_line
        for record in records:
            if isinstance(record, SheetRecord) and record.line == line:
                for index, error in record.errors.items():
                    self.dialect.header[index] = error
                return record.errors.keys()
        return ()

    def _read_records(self) -> Iterator[SheetRecord | RejectedRecord]:
        is_end = False
        while not is_end:
            answer, data = self._exchange({"step": "read"})
            is_end = answer["is_end"]
            for line, cells, cell_errors, hidden in orjson.loads(data):
                if cells is None:
                    reason = f"The row is longer than {MAX_ROW_CHARACTERS:,} characters."
                    yield RejectedRecord(line, "row.too_long", reason, ())
                    continue
                yield SheetRecord(
                    line,
                    [*map(_read_text, cells)],
                    {int(index): error for index, error in cell_errors.items()},
                    {
                        int(index): ShownCell(first_line, _read_text(text), error)
                        for index, (first_line, text, error) in hidden.items()
                    },
                )

    def _ask(self, step: str, *, sheet: int = 0, offset: int = 0, data: bytes = b"") -> Any:
        answer, _ = self._exchange({"step": step, "sheet": sheet, "offset": offset}, data)
        return answer

    def _exchange(self, request: Mapping[str, Any], data: bytes = b"") -> tuple[Any, bytes]:
        """Send a message to the child process, and return its answer.

        Raises the error for a refused workbook. Raises ``TransientError`` if the child process
        was killed or didn't answer in time, because the workbook may be valid.
        """
        self._can_continue = False
        try:
            answer, rows = self._child.ask(request, data)
        except ChildTooSlow:
            raise errors.IMPORT_WORKBOOK_TOO_LARGE(what=_TOO_SLOW) from None
        except ChildLate:
            raise MachineBusy from None
        except ChildCrashed as crash:
            if self._limit < MemoryLimit.FULL:
                raise TransientError(_NEEDS_MEMORY) from None
            _log.error("workbook.crashed", cause=crash.cause, printed=crash.printed)
            raise _explain_crash(crash) from None
        if answer.get("is_lost"):
            raise TransientError(_KILLED)
        if answer.get("is_out_of_memory") and self._limit < MemoryLimit.FULL:
            raise TransientError(_NEEDS_MEMORY)
        if "refused" in answer:
            self._can_continue = not answer["is_final"]
            error_type = REFUSALS[RefusalKind(answer["refused"])]
            raise error_type(what=answer["what"]) if answer["what"] else error_type()
        return answer, rows


def _read_text(cell: CellText) -> str:
    return cell if isinstance(cell, str) else TypedCell(cell[0])


def _explain_crash(crash: ChildCrashed) -> DomainError | TransientError:
    if "memory allocation" in crash.printed:
        # The library ends the process when no more memory is available.
        return errors.IMPORT_WORKBOOK_TOO_LARGE(what=_OUT_OF_MEMORY)
    if crash.cause in ("signal SIGKILL", "signal SIGTERM"):
        return TransientError(_KILLED)
    return errors.IMPORT_WORKBOOK_DAMAGED(what="its content is invalid")


def _has_address_column(dialect: Dialect, mapping: Mapping[str, str] | None) -> bool:
    if dialect.email is not None:
        return True
    try:
        return detect_layout(dialect.header, mapping).find_first_column("email") is not None
    except DomainError:
        # The sheet lacks a column that the owner has mapped.
        return False


def _shorten(name: str) -> str:
    return name[:MAX_SHEET_NAME_CHARACTERS_IN_ERROR]
