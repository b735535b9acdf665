"""Splits a stored file into numbered chunks of judged rows, a few seconds at a time.

A reader can't be moved to another process, so the job stays in the process that began the file
until it is split. After a crash, or where a process has too many open files, another process reads
from the first byte again and passes over the stored chunks: a file always makes the same chunks.
"""

import dataclasses
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import orjson

from models import ImportKind, MemberImport
from services.mailing import sealed_files
from services.mailing.imports.chunks import ROWS_PER_CHUNK, JudgedRow, chunk_key, encode
from services.mailing.imports.mapping.row_mapper import tidy_name
from services.mailing.imports.mapping.rows import MemberRow, SuppressionStatus
from services.mailing.imports.mapping.suppressions import suppressed
from services.mailing.imports.prefetch import Prefetch
from services.mailing.imports.reading.json_documents import as_lines
from services.mailing.imports.reading.reader import open_rows, pass_over
from services.mailing.imports.reading.sources import RangedFile
from services.mailing.imports.shown_cells import MAX_ROWS_SHOWN, AnyRow, ImportSamples
from services.mailing.imports.splitting.column_plan import ColumnPlan
from services.mailing.imports.splitting.judge import MAX_BATCH_ROWS, SeenAddresses, judge_rows
from storage.encryption import seal
from storage.resources import Resources

# Unfinished files that one process keeps open; each holds a reader and a set of addresses.
MAX_OPEN_FILES = 4
# A chunk of long rows has fewer of them.
MAX_CHUNK_CHARACTERS = 8_000_000


@dataclass(frozen=True)
class _Chunk:
    # A file's chunk, which is stored.
    encoded: bytes
    # A request's chunk, which is applied at once.
    rows: list[JudgedRow]
    size: int
    is_last: bool


class FileSplit:
    """One file that is being split into chunks."""

    def __init__(self, resources: Resources, task: MemberImport) -> None:
        self._objects = resources.objects
        self._prefix = task.object_prefix
        self._key = sealed_files.data_key(resources, task)
        self._seen = SeenAddresses()
        # How many chunks were read, and how many rows.
        self.number = self.received = 0
        # Of the chunk that was read last; a file's rows are not held.
        self.rows: list[JudgedRow] = []
        self.chunk_bytes = 0
        self.is_complete = False
        # How many rows a request has. None: it is a file, which has to be read for that.
        self.total: int | None = None
        self.samples: ImportSamples | None = None
        self.read_as = _read_as(task)
        rows = self._open(resources, task)
        self._at_once = min(MAX_BATCH_ROWS, ROWS_PER_CHUNK)
        self._batches = judge_rows(rows, self._seen, self._at_once)
        self._chunks = Prefetch(self._read)

    def _open(self, resources: Resources, task: MemberImport) -> Iterator[AnyRow]:
        if task.source == "members":
            return self._open_request(resources, task)
        if task.kind == ImportKind.MEMBERS:
            return self._open_members(resources, task)
        return self._open_suppressions(resources, task)

    def _open_request(self, resources: Resources, task: MemberImport) -> Iterator[AnyRow]:
        """The rows of the body of one request, which was checked when it arrived."""
        body = b"".join(sealed_files.stored_file(resources, task).stream())
        self.header, self.description = ["email", "name"], {"format": "request"}
        members = orjson.loads(body)["members"]
        self.total = len(members)
        return (
            # By place, not by name, which takes longer: line, address, name, tier, expiry.
            MemberRow(
                line,
                member["email"].strip(),
                tidy_name(name := member.get("name") or ""),
                None,
                None,
                SuppressionStatus.WANTED,
                (member["email"], name),
            )
            for line, member in enumerate(members, start=1)
        )

    def _open_members(self, resources: Resources, task: MemberImport) -> Iterator[AnyRow]:
        """Raises a ``DomainError`` with a code ``import.…`` for a file that can't be read."""
        stored = RangedFile(sealed_files.stored_file(resources, task))
        plan = ColumnPlan(resources, task)
        note = plan.note_header if task.dry_run else pass_over
        reader = open_rows(stored, task.filename, task.mapping, plan.find_fields, note)
        self.header, self.description = reader.header, dataclasses.asdict(reader.description)
        rows = iter(reader)
        first = list(islice(rows, MAX_ROWS_SHOWN)) if task.dry_run else []
        self.samples = ImportSamples.of(reader.header, reader.sample, first, plan.keys)
        return chain(first, rows)

    def _open_suppressions(self, resources: Resources, task: MemberImport) -> Iterator[AnyRow]:
        """Raises a ``DomainError`` with a code ``import.…`` for a file that can't be read."""
        stored = RangedFile(sealed_files.stored_file(resources, task))
        reader = open_rows(as_lines(stored, task.size), task.filename, task.mapping)
        self.header, self.description = reader.header, dataclasses.asdict(reader.description)
        return suppressed(reader, reader.header, ImportKind(task.kind))

    def read_next(self, *, store: bool) -> int:
        """Read one more chunk, and ``store`` it unless another process has stored it already.

        Returns the number of its rows, 0 at the end of the file.
        """
        chunk = self._chunks.take()
        if chunk.size and store:
            key = chunk_key(self._prefix, self.number)
            sealed = seal(chunk.encoded, self._key, key)
            self._objects.put(key, sealed, "application/octet-stream")
        self.rows = chunk.rows
        self.chunk_bytes = len(chunk.encoded) if chunk.size else 0
        self.number += bool(chunk.size)
        self.received += chunk.size
        self.is_complete = chunk.is_last
        return chunk.size

    @property
    def has_several_chunks(self) -> bool:
        """Whether a request has more rows than a chunk."""
        return (self.total or 0) > ROWS_PER_CHUNK

    def close(self) -> None:
        self._chunks.close()
        self._seen.close()

    def _read(self) -> _Chunk:
        rows: list[JudgedRow] = []
        characters = 0
        while len(rows) + self._at_once <= ROWS_PER_CHUNK and characters < MAX_CHUNK_CHARACTERS:
            batch, more = next(self._batches, ([], 0))
            if not batch:
                return self._chunk(rows, is_last=True)
            rows += batch
            characters += more
        return self._chunk(rows, is_last=False)

    def _chunk(self, rows: list[JudgedRow], *, is_last: bool) -> _Chunk:
        if self.total is not None:
            return _Chunk(b"", rows, len(rows), is_last)
        return _Chunk(encode(rows), [], len(rows), is_last)


def _read_as(task: MemberImport) -> tuple[Any, ...]:
    """What decides which chunks the file makes."""
    return task.kind, task.mapping, task.dry_run, task.create_fields


_open: dict[int, FileSplit] = {}


def take_split(resources: Resources, task: MemberImport) -> FileSplit:
    """The split that this process kept, or a new one: at the first chunk not stored, or before it.

    Raises a ``DomainError`` with a code ``import.…`` for a file that can't be read.
    """
    split = _open.pop(task.id, None)
    # A dry run's file may be read again by other options (``records.read_again``).
    is_of_before = split is not None and split.read_as != _read_as(task)
    if split is not None and (split.number > task.chunks or is_of_before):
        split.close()
        split = None
    return split or FileSplit(resources, task)


def kept_splits() -> list[int]:
    """The ids of the imports whose splits this process keeps."""
    return list(_open)


def keep_split(task: MemberImport, split: FileSplit, waiting: Collection[int]) -> bool:
    """Keep this split open for its job's next turn, unless ``MAX_OPEN_FILES`` are kept already.

    ``waiting``: the imports whose kept splits are still needed. Those stay: if newcomers replaced
    them, many imports at once would replace each other for ever.
    """
    for import_id in _open.keys() - set(waiting):
        _open.pop(import_id).close()
    if len(_open) < MAX_OPEN_FILES:
        _open[task.id] = split
        return True
    split.close()
    return False
