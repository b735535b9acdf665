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
from services.mailing.imports.entries import ROWS_PER_CHUNK, Entry, chunk_key, encode
from services.mailing.imports.mapping.row_mapper import tidy_name
from services.mailing.imports.prefetch import Ahead
from services.mailing.imports.reading import RangedFile, Row, Standing, open_rows
from services.mailing.imports.splitting.judge import AT_ONCE, Seen, judged
from storage.objects import ObjectStore
from storage.parts import StoredFile

# Files that one process has begun; each holds a reader and a set of addresses.
MOST_OPEN = 4
# Rows may be long: a chunk of such has fewer of them.
MOST_CHARACTERS = 8_000_000


@dataclass(frozen=True)
class _Chunk:
    encoded: bytes
    rows: int
    is_last: bool


class Split:
    """One file on its way into chunks."""

    def __init__(self, objects: ObjectStore, task: MemberImport) -> None:
        self._objects = objects
        self._prefix = task.object_prefix
        self._seen = Seen()
        self.number = 0
        self.is_complete = False
        rows, self.header, self.description = _rows(objects, task)
        self._at_once = min(AT_ONCE, ROWS_PER_CHUNK)
        self._batches = judged(rows, self._seen, self._at_once)
        self._chunks = Ahead(self._read)

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
        entries: list[Entry] = []
        characters = 0
        while len(entries) + self._at_once <= ROWS_PER_CHUNK and characters < MOST_CHARACTERS:
            batch, more = next(self._batches, ([], 0))
            if not batch:
                return _Chunk(encode(entries), len(entries), is_last=True)
            entries += batch
            characters += more
        return _Chunk(encode(entries), len(entries), is_last=False)


_open: dict[int, Split] = {}


def take(objects: ObjectStore, task: MemberImport) -> Split:
    """This process's split of the file: at the first chunk that is not stored yet, or before it.

    Raises a ``DomainError`` with a code ``import.…`` for a file that can't be read.
    """
    split = _open.pop(task.id, None)
    if split is not None and split.number > task.chunks:
        split.close()
        split = None
    return split or Split(objects, task)


def kept() -> list[int]:
    """The imports whose splits wait here for their next turn."""
    return list(_open)


def keep(task: MemberImport, split: Split, waiting: Collection[int]) -> None:
    """Until its next turn, unless as many are kept already of those that still ``wait``.

    Those go first: a newcomer that drove them out would be driven out itself, and with enough of
    them no file would ever be read to its end.
    """
    for import_id in _open.keys() - set(waiting):
        _open.pop(import_id).close()
    if len(_open) < MOST_OPEN:
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


def _of_request(objects: ObjectStore, task: MemberImport) -> Iterator[Row]:
    """The members of one request's body, which was checked when it came."""
    body = b"".join(StoredFile(objects, task.object_prefix, task.size).stream())
    for line, member in enumerate(orjson.loads(body)["members"], start=1):
        cells = (member["email"], member.get("name") or "")
        yield Row(line, cells[0].strip(), tidy_name(cells[1]), None, None, Standing.WANTED, cells)
