"""Splits the file of an import into numbered chunks, and validates each row of the file.

The job that splits the file runs for a few seconds at a time. It stays in the same process until
the whole file is split, because an open file reader can't be moved. If the process crashes or has
too many open files, another process reads the file from the start and stores all chunks again.

If an address has several rows, only the strictest row is applied. Some rejected rows also keep
their person from being added. These rows and the opt-outs are stored in separate chunks, and these
chunks are applied first. A weaker row may already be stored when a stricter row of its address is
read. After the whole file has been read, such weaker rows are marked as duplicates in their stored
chunks.
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from operator import attrgetter
from typing import Any

import orjson

from core.errors import DomainError
from models import ImportKind, MemberImport
from services.subscriptions import bulk_files
from services.subscriptions.imports import chunks
from services.subscriptions.imports.chunks import PendingChunk, chunk_key
from services.subscriptions.imports.column_forms import ColumnForms
from services.subscriptions.imports.column_plan import ColumnPlan
from services.subscriptions.imports.consent_cells import STATUS_UNKNOWN
from services.subscriptions.imports.consent_interpreter import ConsentInterpreter
from services.subscriptions.imports.containers import ranged_file
from services.subscriptions.imports.dates import DateOrder
from services.subscriptions.imports.decoded_text import DecodedText
from services.subscriptions.imports.encoding_detection import EncodingUnclear
from services.subscriptions.imports.formats import (
    ignore_columns,
    open_member_rows,
    open_suppression_rows,
)
from services.subscriptions.imports.json_lines_reader import convert_document
from services.subscriptions.imports.judged_rows import (
    DUPLICATE_CODE,
    STRICTER_ROW_REASON,
    JudgedRow,
    decode,
    encode,
)
from services.subscriptions.imports.judging import MAX_BATCH_ROWS, _rejected, judge_rows
from services.subscriptions.imports.member_names import tidy_name
from services.subscriptions.imports.rows import MemberRow, SuppressionStatus
from services.subscriptions.imports.samples import (
    MAX_ROWS_SHOWN,
    AnyRow,
    ImportSamples,
    Problems,
    mark_duplicates,
    store_samples,
)
from services.subscriptions.imports.seen_addresses import SeenAddresses
from services.subscriptions.imports.suppression_files import SuppressionReader
from storage.encryption import seal, unseal
from storage.resources import Resources

# Unfinished files that one process keeps open; each holds a reader and a set of addresses.
MAX_OPEN_FILES = 4


@dataclass(frozen=True)
class FileFacts:
    """How to interpret a file: the formats, consent columns and encoding found in the whole file.

    Attributes:
        forms: maps the index of each column to the format of dates and numbers in the column.
        consent: maps the index of each column to whether the column is a consent column.
        encoding: the right encoding, if the file was decoded with a wrong encoding.
        is_read_so: whether the file was already split according to these findings. If not, the file
            is split again.
        error: an error that asks the owner to choose the order of dates or the encoding.
    """

    forms: Mapping[str, str] = field(default_factory=dict)
    consent: Mapping[str, bool] | None = None
    encoding: str | None = None
    is_read_so: bool = True
    error: DomainError | None = None


class FileSplit:
    """The state while the uploaded file or the JSON request of an import is split into chunks.

    Attributes:
        number: how many chunks exist so far. The next chunk gets this number, because numbers begin
            at 0.
        received: the number of rows that have been read.
        rows: the rows in the last chunk of a request. These rows are applied but not stored.
        total: the number of rows in a request, or ``None`` for a file, whose number of rows isn't
            known.
        opt_out_chunks: the numbers of the chunks with opt-outs, which are applied first.
        stored_bytes: the size of the stored chunks of a file.
    """

    def __init__(self, resources: Resources, task: MemberImport) -> None:
        self._objects = resources.objects
        self._prefix = task.object_prefix
        self._key = bulk_files.data_key(resources, task)
        self._seen = SeenAddresses()
        self.number = self.received = 0
        self.rows: list[JudgedRow] = []
        self.opt_out_chunks: list[int] = []
        self.stored_bytes = 0
        self.is_complete = False
        self.total: int | None = None
        self.samples: ImportSamples | None = None
        self._problems = Problems()
        # The number of rows whose consent value isn't recognised.
        self.unknown_status = 0
        self._suppressions: SuppressionReader | None = None
        self.read_as = _read_as(task)
        order = DateOrder(task.date_order) if task.date_order else None
        self._forms = ColumnForms(task.column_forms, order)
        self._readings = ConsentInterpreter(task.consent_columns, task.status_values)
        # True if the file has a rejected row that might be valid in another encoding.
        self._has_damaged_row = False
        self._text: DecodedText | None = None
        try:
            rows = self._open(resources, task)
        except EncodingUnclear as unclear:
            _keep_readings(resources, task, unclear)
            raise
        self._batches = judge_rows(rows, self._seen, min(MAX_BATCH_ROWS, chunks.ROWS_PER_CHUNK))
        # Requests and other kinds of files have only members or only opt-outs.
        self._may_have_both = task.kind == ImportKind.MEMBERS and self.total is None
        self._opt_outs, self._others = PendingChunk(), PendingChunk()
        # The numbers of the stored chunks in which duplicate rows must still be marked.
        self._unchecked: list[int] = []

    def _open(self, resources: Resources, task: MemberImport) -> Iterator[AnyRow]:
        """Raises a ``DomainError`` with a code ``import.…`` for a file that can't be read."""
        if task.source == "members":
            # It was checked when it arrived.
            body = b"".join(bulk_files.stored_file(resources, task).stream())
            self.header, self.description = ["email", "name"], {"format": "request"}
            members = orjson.loads(body)["members"]
            self.total = len(members)
            return _rows_of_request(members)
        stored = ranged_file(bulk_files.stored_file(resources, task))
        if task.kind != ImportKind.MEMBERS:
            reader = open_suppression_rows(
                convert_document(stored, task.size),
                task.filename,
                task.mapping,
                encoding=task.encoding,
            )
            self._text = reader.text
            self.header, self.description = reader.header, dataclasses.asdict(reader.description)
            self.samples = ImportSamples((), ())
            self._suppressions = SuppressionReader(
                reader.header,
                reader.sample,
                ImportKind(task.kind),
                mapping=task.mapping,
                status_values=task.status_values,
                settled=task.consent_columns,
            )
            return self._suppressions.read(reader)
        plan = ColumnPlan(resources, task)
        note = plan.note_header if task.dry_run else ignore_columns
        find = plan.find_fields
        reader = open_member_rows(
            stored,
            task.filename,
            task.mapping,
            find,
            note,
            forms=self._forms,
            consent=self._readings,
            encoding=task.encoding,
        )
        self._text = reader.text
        self.header, self.description = reader.header, dataclasses.asdict(reader.description)
        rows = iter(reader)
        first = list(islice(rows, MAX_ROWS_SHOWN)) if task.dry_run else []
        self.samples = ImportSamples.of(reader.header, reader.sample, first, plan.keys)
        return chain(first, rows)

    def read_next(self) -> int:
        """Read rows until a chunk is full, store it, and return the number of rows read.

        When the whole file has been read, each call instead marks the duplicates in one stored
        chunk.
        """
        if self._unchecked:
            self._mark_outdone_rows(self._unchecked.pop())
            self.is_complete = not self._unchecked
            return 0
        before = self.received
        while not (self._opt_outs.is_full() or self._others.is_full()):
            batch, characters = next(self._batches, ([], 0))
            if not batch:
                self._end_file()
                break
            self.received += len(batch)
            self._append(batch, characters)
        else:
            full = self._opt_outs if self._opt_outs.is_full() else self._others
            self._store(full)
        return self.received - before

    def _append(self, batch: list[JudgedRow], characters: int) -> None:
        self._has_damaged_row |= any(row.code in _OF_DAMAGED_ROWS for row in batch)
        if self.samples is not None:
            self._problems.note(batch)
            self.unknown_status += sum(row.code == STATUS_UNKNOWN for row in batch)
        others = batch
        if self._may_have_both:
            opt_outs = [row for row in batch if row.left or row.is_withheld]
            if opt_outs:
                others = [row for row in batch if not (row.left or row.is_withheld)]
                size = sum(len(cell) for row in opt_outs for cell in row.cells)
                characters -= size
                self._opt_outs.rows += opt_outs
                self._opt_outs.characters += size
        self._others.rows += others
        self._others.characters += characters

    def _end_file(self) -> None:
        opt_outs, others = self._opt_outs, self._others
        if not self.number and len(opt_outs.rows) + len(others.rows) <= chunks.ROWS_PER_CHUNK:
            # A single chunk is applied in one transaction, so opt-outs and members can share it.
            others.rows = sorted(opt_outs.rows + others.rows, key=attrgetter("line"))
            opt_outs.rows = []
        self._store(opt_outs)
        self._store(others)
        if self._seen.has_outdone:
            self._unchecked = [*range(self.number)]
        self.is_complete = not self._unchecked
        if self.samples is not None:
            preview = self.samples.preview
            strictest = self._seen.find([row["email"] for row in preview if "email" in row])
            self.samples = self.samples._replace(
                preview=mark_duplicates(preview, strictest),
                problems=self._problems.groups(),
                consent=self._consent_cells(),
            )

    def _store(self, chunk: PendingChunk) -> None:
        """Store rows of a file as the next chunk. Rows of a request go to ``rows`` instead."""
        rows, chunk.rows, chunk.characters = chunk.rows, [], 0
        self.rows = rows if self.total is not None else []
        if not rows:
            return
        if self.total is None:
            self._put(self.number, rows)
        if chunk is self._opt_outs:
            self.opt_out_chunks.append(self.number)
        self.number += 1

    def _put(self, number: int, rows: list[JudgedRow]) -> None:
        encoded = encode(rows)
        key = chunk_key(self._prefix, number)
        self._objects.put(key, seal(encoded, self._key, key), "application/octet-stream")
        self.stored_bytes += len(encoded)

    def _mark_outdone_rows(self, number: int) -> None:
        """Mark rows of a stored chunk as duplicates if their address also has a stricter row."""
        key = chunk_key(self._prefix, number)
        rows = decode(unseal(self._objects.get(key), self._key, key))
        strictest = self._seen.find([row.email for row in rows if row.code is None])
        outdone = [
            place
            for place, row in enumerate(rows)
            if row.code is None and row.strictness < strictest[row.email]
        ]
        for place in outdone:
            rows[place] = _rejected(rows[place], DUPLICATE_CODE, STRICTER_ROW_REASON)
        if outdone:
            self._objects.put(key, seal(encode(rows), self._key, key), "application/octet-stream")

    def _consent_cells(self) -> dict[str, Any]:
        """Return the consent values in the file and how they were interpreted, for the owner."""
        if self._suppressions is not None:
            return {"unknown": self._suppressions.unknown_values()}
        readings = self._readings
        return {
            "values": readings.values_by_column(),
            "ignored_opt_outs": readings.ignored_opt_outs(),
            "unknown": readings.unknown_values(self.header),
        }

    def settle(self) -> FileFacts:
        """Return how to interpret the file. The result is empty until the file has been read."""
        if not self.is_complete:
            return FileFacts()
        try:
            encoding = self._text.settled_encoding() if self._text else None
            if self._text and encoding and not self._is_read_in(encoding):
                return FileFacts(encoding=encoding, is_read_so=False)
            forms = self._forms.settled(self.header)
        except DomainError as error:
            if isinstance(error, EncodingUnclear) and self.samples is not None:
                self.samples = self.samples._replace(readings=_readings_of(error))
            return FileFacts(error=error)
        readings = self._suppressions or self._readings
        is_read_so = not (self._forms.differs(forms) or readings.differs())
        return FileFacts(forms, readings.settled(), is_read_so=is_read_so)

    def can_continue(self, task: MemberImport) -> bool:
        """Return whether the import can continue with the chunks that are already stored."""
        if self.read_as != _read_as(task):
            # A dry run's file can be imported later with other options (``records.read_again``).
            return False
        if self.total is not None:
            return self.number <= task.chunks
        # A worker of release 1.0.0 updates ``chunks`` while it splits, and its chunks differ.
        return task.chunks == 0

    def _is_read_in(self, encoding: str) -> bool:
        """Return whether the rows would be the same if the file were decoded with this encoding."""
        assert self._text is not None
        if encoding == self._text.encoding:
            return True
        self.description = {**self.description, "encoding": encoding}
        return self._text.reads_like(encoding) and not self._has_damaged_row

    def close(self) -> None:
        self._seen.close()


# The error codes of rejected rows that might be valid in another encoding.
_OF_DAMAGED_ROWS = frozenset({"encoding.invalid", "row.unreadable"})


def _keep_readings(resources: Resources, task: MemberImport, unclear: EncodingUnclear) -> None:
    """Store some rows decoded with each possible encoding, for the owner to choose from."""
    with resources.unit_of_work() as uow:
        kept = uow.session.get_one(MemberImport, task.id)
        store_samples(resources, kept, ImportSamples((), (), readings=_readings_of(unclear)))


def _readings_of(unclear: EncodingUnclear) -> list[dict[str, Any]]:
    return [{"encoding": name, "rows": rows} for name, rows in unclear.readings.items()]


def _rows_of_request(members: Sequence[Mapping[str, str | None]]) -> Iterator[AnyRow]:
    for line, member in enumerate(members, start=1):
        cells = email, name = member["email"] or "", member.get("name") or ""
        status = SuppressionStatus.WANTED
        # By place, not by name, which takes longer: address, name, tier, expiry.
        yield MemberRow(line, email.strip(), tidy_name(name), None, None, status, cells)


def _read_as(task: MemberImport) -> tuple[Any, ...]:
    """Return the options of the import on which the contents of the chunks depend."""
    options = task.kind, task.mapping, task.status_values, task.dry_run, task.create_fields
    return *options, task.date_order, task.column_forms, task.consent_columns, task.encoding


def note_facts(task: MemberImport, facts: FileFacts) -> None:
    """Record the formats, consent columns and encoding, for when the file is read again."""
    task.encoding = facts.encoding or task.encoding
    task.column_forms = dict(facts.forms)
    task.consent_columns = None if facts.consent is None else dict(facts.consent)
    if not facts.is_read_so:
        task.chunk_bytes = task.received = 0
        task.description = None
    if task.columns is not None:
        found = [
            {**column, "written": facts.forms[str(index)]} if str(index) in facts.forms else column
            for index, column in enumerate(task.columns["columns"])
        ]
        task.columns = {**task.columns, "columns": found}


_open: dict[int, FileSplit] = {}


def take_split(resources: Resources, task: MemberImport) -> FileSplit:
    """Return the split that this process kept open, or start a new one at the first row.

    Raises a ``DomainError`` with a code ``import.…`` for a file that can't be read.
    """
    split = _open.pop(task.id, None)
    if split is not None and not split.can_continue(task):
        split.close()
        split = None
    return split or FileSplit(resources, task)


def kept_splits() -> list[int]:
    """The ids of the imports whose splits this process keeps."""
    return list(_open)


def keep_split(task: MemberImport, split: FileSplit, waiting: Collection[int]) -> bool:
    """Keep this split open for its job's next turn, unless ``MAX_OPEN_FILES`` are kept already.

    ``waiting``: the imports whose kept splits stay. If newcomers replaced them, many imports at
    once would replace each other for ever.
    """
    for import_id in _open.keys() - set(waiting):
        _open.pop(import_id).close()
    if len(_open) < MAX_OPEN_FILES:
        _open[task.id] = split
        return True
    split.close()
    return False
