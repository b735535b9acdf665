"""Reads the rows of an uploaded file, and groups the rows into chunks.

If several rows have the same address, only the row with the most restrictive status is applied.
Some rejected rows block a person, which means that no row of the file may add the person. Opt-outs
and rows that block a person are stored in separate chunks, and these chunks are applied first. In
the file, the row with a person's opt-out can come after a row that would add the person. After the
whole file has been read, ``StoredChunks.mark_next_chunk`` rejects each row that an opt-out
overrides.
"""

import dataclasses
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from core.errors import DomainError
from core.languages.shown_lines import strip_invisible
from models import MemberImport
from services.subscriptions.imports.chunks.chunks import (
    MAX_FILE_CHUNK_CHARACTERS,
    ROWS_PER_CHUNK,
    Chunk,
    PendingChunk,
)
from services.subscriptions.imports.chunks.judging import judge_rows
from services.subscriptions.imports.chunks.seen_addresses import SeenAddresses
from services.subscriptions.imports.columns.column_plan import MAX_COLUMNS_SHOWN
from services.subscriptions.imports.columns.consent_cells import STATUS_UNKNOWN
from services.subscriptions.imports.columns.consent_interpreter import ConsentInterpreter
from services.subscriptions.imports.columns.samples import Problems, mark_duplicates
from services.subscriptions.imports.formats.encoding_detection import EncodingUnclear
from services.subscriptions.imports.formats.workbooks.workbook import Workbook
from services.subscriptions.imports.judged_rows import JudgedRow
from services.subscriptions.imports.opened_file import open_file, readings_by_encoding
from storage.resources import Resources

# The error codes of rejected rows that may be valid in a different encoding.
_CODES_OF_DAMAGED_ROWS = frozenset({"encoding.invalid", "row.unreadable"})


class BlankColumns:
    """Finds the columns of a file that have only blank cells.

    Only columns with an index below ``MAX_COLUMNS_SHOWN`` are examined.
    """

    def __init__(self) -> None:
        self._columns = 0
        # The columns that have had only blank cells so far.
        self.indexes: list[int] = []

    def add_rows(self, rows: Iterable[JudgedRow], columns: int) -> None:
        """Examine more rows. ``columns`` is the number of columns in the file so far."""
        columns = min(columns, MAX_COLUMNS_SHOWN)
        self.indexes += range(self._columns, columns)
        self._columns = columns
        for row in rows:
            if not self.indexes:
                return
            cells = row.cells
            # Most columns have text in one of the first rows. In later rows, only the few remaining
            # columns are checked.
            if any(cells[index] for index in self.indexes if index < len(cells)):
                self.indexes = [
                    index
                    for index in self.indexes
                    if index >= len(cells) or not strip_invisible(cells[index])
                ]


@dataclass(frozen=True)
class FileFacts:
    """Facts about a file that are known only after the whole file has been read.

    Attributes:
        forms: the day-month order or decimal mark of each date or number column, by column index.
        are_applied: whether all rows were interpreted according to the facts in this object. If
            some rows were read before all facts about the file were known, the file must be read
            again.
    """

    forms: Mapping[str, str] = field(default_factory=dict)
    consent: Mapping[str, bool] | None = None
    encoding: str | None = None
    are_applied: bool = True
    error: DomainError | None = None


class FileRows:
    """The rows of an imported file that is being read.

    Attributes:
        samples: example cells and rows to show to the owner. ``samples`` is incomplete until the
            whole file has been read.
        blank_columns: the columns that have only blank cells, or ``None`` if the import isn't a dry
            run.
    """

    def __init__(
        self,
        resources: Resources,
        task: MemberImport,
        source: io.BufferedReader | Workbook,
        rows_per_chunk: int = ROWS_PER_CHUNK,
    ) -> None:
        self._file = open_file(resources, task, source)
        self.seen = SeenAddresses()
        self._rows_per_chunk = rows_per_chunk
        self._batches = judge_rows(self._file.rows, self.seen, rows_per_chunk)
        self._opt_outs = PendingChunk(rows_per_chunk, MAX_FILE_CHUNK_CHARACTERS)
        self._ordinary_rows = PendingChunk(rows_per_chunk, MAX_FILE_CHUNK_CHARACTERS)
        self._is_read = False
        self._problems = Problems()
        self._has_damaged_row = False
        self._description = dataclasses.asdict(self._file.reader.description)
        self.received = 0
        self.count = 0
        self.unknown_status = 0
        self.blank_columns = BlankColumns() if task.dry_run else None
        self.samples = self._file.samples

    @property
    def description(self) -> dict[str, Any]:
        """Return the detected format and the header of the file. The records of a JSON Lines file
        may add columns to the header while the file is being read.
        """
        return {**self._description, "header": self._file.reader.header}

    @property
    def is_complete(self) -> bool:
        return self._is_read and not (self._opt_outs.rows or self._ordinary_rows.rows)

    def next_chunk(self) -> Chunk | None:
        """Read rows until a chunk is full or the file ends."""
        while not (self._is_read or self._opt_outs.is_full() or self._ordinary_rows.is_full()):
            batch, characters = next(self._batches, ([], 0))
            if batch:
                self._add_batch(batch, characters)
            else:
                self._end_file()
        is_first = self._opt_outs.is_full() or (self._is_read and bool(self._opt_outs.rows))
        rows = (self._opt_outs if is_first else self._ordinary_rows).take_rows()
        if not rows:
            return None
        chunk = Chunk(self.count, rows, has_opt_outs=is_first)
        self.count += 1
        return chunk

    def find_facts(self) -> FileFacts:
        try:
            encoding = self._file.reader.text.find_final_encoding()
            if encoding and not self._is_read_in(encoding):
                return FileFacts(encoding=encoding, are_applied=False)
            forms = self._file.forms.find_notations(self._file.reader.header)
        except DomainError as error:
            if isinstance(error, EncodingUnclear):
                self.samples = self.samples._replace(readings=readings_by_encoding(error))
            return FileFacts(error=error)
        statuses = self._file.statuses
        are_applied = not (self._file.forms.has_misread_cells(forms) or statuses.has_misread_rows())
        return FileFacts(forms, statuses.find_decisions(), are_applied=are_applied)

    def close(self) -> None:
        self.seen.close()

    def _add_batch(self, batch: list[JudgedRow], characters: int) -> None:
        self.received += len(batch)
        self._has_damaged_row |= any(row.code in _CODES_OF_DAMAGED_ROWS for row in batch)
        self._problems.add_rows(batch)
        if self.blank_columns is not None:
            self.blank_columns.add_rows(batch, len(self._file.reader.header))
            if isinstance(self._file.statuses, ConsentInterpreter):
                for row in batch:
                    self._file.statuses.search_status_words(row.cells)
        self.unknown_status += sum(row.code == STATUS_UNKNOWN for row in batch)
        if self._file.may_mix_opt_outs:
            opt_outs = [row for row in batch if row.opt_out or row.is_withheld]
            if opt_outs:
                batch = [row for row in batch if not (row.opt_out or row.is_withheld)]
                opt_out_characters = sum(len(cell) for row in opt_outs for cell in row.cells)
                characters -= opt_out_characters
                self._opt_outs.add(opt_outs, opt_out_characters)
        self._ordinary_rows.add(batch, characters)

    def _end_file(self) -> None:
        self._is_read = True
        rows = self._opt_outs.rows + self._ordinary_rows.rows
        if not self.count and len(rows) <= self._rows_per_chunk:
            # If all rows fit into one chunk, don't put the opt-outs into a separate chunk.
            self._opt_outs.take_rows()
            self._ordinary_rows.rows = sorted(rows, key=attrgetter("line"))
        preview = self.samples.preview
        strictest = self.seen.find([row["email"] for row in preview if "email" in row])
        self.samples = self.samples._replace(
            preview=mark_duplicates(preview, strictest),
            problems=self._problems.groups(),
            consent=self._file.interpreted_values(),
        )

    def _is_read_in(self, encoding: str) -> bool:
        """Return whether all rows would be the same if the file was decoded with ``encoding``."""
        text = self._file.reader.text
        if encoding == text.encoding:
            return True
        self._description["encoding"] = encoding
        return text.is_equivalent_to(encoding) and not self._has_damaged_row
