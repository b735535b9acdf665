"""From a stored file to numbered chunks of judged rows, a few seconds at a time.

A reader can't be stopped and taken up by another process, so the process that began a file goes
on with it at its next turn. Another process, after a restart or on another machine, begins at the
first byte again, and passes over what is chunked already: a file always makes the same chunks.
"""

import dataclasses
from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import Any

import orjson

from models import MemberImport
from services.imports.entries import ROWS_PER_CHUNK, Entry, chunk_key, encode
from services.imports.judging import Seen, judged
from services.imports.reading import RangedFile, Row, Standing, open_rows
from services.imports.reading.members import tidy_name
from services.parts import StoredFile
from storage.objects import ObjectStore

# Files that one process has begun; each holds a reader and a set of addresses.
_MOST_OPEN = 4


class Split:
    """One file on its way into chunks."""

    def __init__(self, objects: ObjectStore, task: MemberImport) -> None:
        self._objects = objects
        self._prefix = task.object_prefix
        self._seen = Seen()
        self.number = 0
        self.is_complete = False
        rows, self.header, self.description = _rows(objects, task)
        self._entries = judged(rows, self._seen)

    def go_to(self, number: int) -> None:
        """Pass over chunks that an earlier process has stored."""
        while self.number < number and self._next():
            pass

    def store_next(self) -> int:
        """Store one more chunk; its number of rows, 0 when there was none."""
        entries = self._next()
        if entries:
            key = chunk_key(self._prefix, self.number - 1)
            self._objects.put(key, encode(entries), "application/json")
        return len(entries)

    def close(self) -> None:
        self._seen.close()

    def _next(self) -> list[Entry]:
        entries = list(islice(self._entries, ROWS_PER_CHUNK))
        self.number += bool(entries)
        self.is_complete = len(entries) < ROWS_PER_CHUNK
        return entries


_open: OrderedDict[int, Split] = OrderedDict()


def take(objects: ObjectStore, task: MemberImport) -> Split:
    """This process's split of the file, at the first chunk that is not stored yet.

    Raises a ``DomainError`` with a code ``import.…`` for a file that can't be read.
    """
    split = _open.pop(task.id, None)
    if split is None or split.number != task.chunks:
        if split is not None:
            split.close()
        split = Split(objects, task)
        split.go_to(task.chunks)
    return split


def keep(task: MemberImport, split: Split) -> None:
    """Until its next turn."""
    _open[task.id] = split
    while len(_open) > _MOST_OPEN:
        _open.popitem(last=False)[1].close()


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
