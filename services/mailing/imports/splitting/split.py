"""From a stored file to numbered chunks of judged rows, a few seconds at a time.

A reader can't be stopped and taken up by another process, so the process that began a file goes
on with it at its next turn. Another process, after a restart or on another machine, begins at the
first byte again, and passes over what is chunked already: a file always makes the same chunks.
"""

import dataclasses
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from models import MemberImport
from services.mailing.imports.entries import ROWS_PER_CHUNK, JudgedRow, chunk_key, encode
from services.mailing.imports.mapping.row_mapper import tidy_name
from services.mailing.imports.prefetch import Prefetch
from services.mailing.imports.reading import MemberRow, RangedFile, SuppressionStatus, open_rows
from services.mailing.imports.splitting.judge import MAX_BATCH_ROWS, SeenAddresses, judge_rows
from storage.objects import ObjectStore
from storage.parts import StoredFile

# Files that one process has begun; each holds a reader and a set of addresses.
MAX_OPEN_FILES = 4
# Rows may be long: a chunk of such has fewer of them.
MAX_CHUNK_CHARACTERS = 8_000_000


@dataclass(frozen=True)
class _Chunk:
    encoded: bytes
    rows: int
    is_last: bool


class FileSplit:
    """One file on its way into chunks."""

    def __init__(self, objects: ObjectStore, task: MemberImport) -> None:
        self._objects = objects
        self._prefix = task.object_prefix
        self._seen = SeenAddresses()
        self.number = 0
        self.is_complete = False
        rows, self.header, self.description = _rows(objects, task)
        self._at_once = min(MAX_BATCH_ROWS, ROWS_PER_CHUNK)
        self._batches = judge_rows(rows, self._seen, self._at_once)
        self._chunks = Prefetch(self._read)

    def pass_over(self) -> None:
        """Read one more chunk, which an earlier process has stored."""
        self._next()

    def store_next(self) -> int:
        """Store one more chunk; its number of rows, 0 when there was none."""
        chunk = self._next()
        if chunk.rows:
            key = chunk_key(self._prefix, self.number - 1)
            self._objects.put(key, chunk.encoded, "application/json")
        return chunk.rows

    def close(self) -> None:
        self._chunks.close()
        self._seen.close()

    def _next(self) -> _Chunk:
        chunk = self._chunks.take()
        self.number += bool(chunk.rows)
        self.is_complete = chunk.is_last
        return chunk

    def _read(self) -> _Chunk:
        entries: list[JudgedRow] = []
        characters = 0
        while len(entries) + self._at_once <= ROWS_PER_CHUNK and characters < MAX_CHUNK_CHARACTERS:
            batch, more = next(self._batches, ([], 0))
            if not batch:
                return _Chunk(encode(entries), len(entries), is_last=True)
            entries += batch
            characters += more
        return _Chunk(encode(entries), len(entries), is_last=False)


_open: dict[int, FileSplit] = {}


def take_split(objects: ObjectStore, task: MemberImport) -> FileSplit:
    """This process's split of the file: at the first chunk that is not stored yet, or before it.

    Raises a ``DomainError`` with a code ``import.…`` for a file that can't be read.
    """
    split = _open.pop(task.id, None)
    if split is not None and split.number > task.chunks:
        split.close()
        split = None
    return split or FileSplit(objects, task)


def kept_splits() -> list[int]:
    """The imports whose splits wait here for their next turn."""
    return list(_open)


def keep_split(task: MemberImport, split: FileSplit, waiting: Collection[int]) -> None:
    """Until its next turn, unless as many are kept already of those that still ``wait``.

    Those go first: a newcomer that drove them out would be driven out itself, and with enough of
    them no file would ever be read to its end.
    """
    for import_id in _open.keys() - set(waiting):
        _open.pop(import_id).close()
    if len(_open) < MAX_OPEN_FILES:
        _open[task.id] = split
    else:
        split.close()


def _rows(
    objects: ObjectStore, task: MemberImport
) -> tuple[Iterator[Any], list[str], dict[str, Any]]:
    if task.source == "members":
        return _of_request(objects, task), ["email", "name"], {"format": "request"}
    stored = RangedFile(StoredFile(objects, task.object_prefix, task.size))
    reader = open_rows(stored, task.filename, task.mapping)
    return iter(reader), reader.header, dataclasses.asdict(reader.describe())


def _of_request(objects: ObjectStore, task: MemberImport) -> Iterator[MemberRow]:
    """The members of one request's body, which was checked when it came."""
    body = b"".join(StoredFile(objects, task.object_prefix, task.size).stream())
    for line, member in enumerate(orjson.loads(body)["members"], start=1):
        cells = (member["email"], member.get("name") or "")
        yield MemberRow(
            line, cells[0].strip(), tidy_name(cells[1]), None, None, SuppressionStatus.WANTED, cells
        )
