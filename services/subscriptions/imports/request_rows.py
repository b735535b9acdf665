"""Reads the members in an API request, and groups the members into chunks."""

from collections.abc import Iterator, Sequence

import orjson

from models import MemberImport
from services.subscriptions import bulk_files, fields
from services.subscriptions.imports.chunks.chunks import (
    MAX_REQUEST_CHUNK_CHARACTERS,
    ROWS_PER_CHUNK,
    Chunk,
    PendingChunk,
)
from services.subscriptions.imports.chunks.judging import judge_rows
from services.subscriptions.imports.chunks.seen_addresses import SeenAddresses
from services.subscriptions.imports.columns.member_names import tidy_name
from services.subscriptions.imports.judged_rows import JudgedRow
from services.subscriptions.imports.request_values import (
    NO_VALUES,
    PLAIN_NAMES,
    Member,
    RequestColumns,
    read_values,
)
from services.subscriptions.imports.rows import MemberRow, SuppressionStatus
from storage.resources import Resources


class RequestRows:
    """The members in an API request.

    An import from an API request stores no chunks, because the request itself is stored.

    Attributes:
        header: the names of the columns in which rejected rows are written.
    """

    def __init__(
        self, resources: Resources, task: MemberImport, rows_per_chunk: int = ROWS_PER_CHUNK
    ) -> None:
        body = b"".join(bulk_files.open_stored_file(resources, task).stream())
        self._members: list[Member] = orjson.loads(body)["members"]
        with resources.unit_of_work() as uow:
            self._own_fields = fields.read_own_fields(uow, task.user_id)
        self._columns = RequestColumns(self._members, self._own_fields)
        self._seen = SeenAddresses()
        self._batches = judge_rows(_member_rows(self._members), self._seen, rows_per_chunk)
        self._pending = PendingChunk(rows_per_chunk, MAX_REQUEST_CHUNK_CHARACTERS)
        self.header = self._columns.header
        self.total = len(self._members)
        self.received = 0
        self.count = 0

    @property
    def is_complete(self) -> bool:
        return self.received == self.total

    def next_chunk(self) -> Chunk | None:
        while not self._pending.is_full():
            batch, characters = next(self._batches, ([], 0))
            if not batch:
                break
            self.received += len(batch)
            self._pending.add(batch, characters)
        rows = self._pending.take_rows()
        if not rows:
            return None
        # Add the values after the chunk was formed, because the extent of a chunk must not depend
        # on the owner's fields. A retry skips the chunks that were applied.
        chunk = Chunk(self.count, [*map(self._add_values, rows)])
        self.count += 1
        return chunk

    def _add_values(self, row: JudgedRow) -> JudgedRow:
        member = self._members[row.line - 1]
        if not self._columns.has_values and member.keys() <= PLAIN_NAMES:
            return row
        values = read_values(member, self._own_fields) if row.code is None else NO_VALUES
        cells = (*row.cells, *self._columns.format_cells(member))
        return row._replace(tier=values.tier, extras=values.extras, cells=cells)

    def close(self) -> None:
        self._seen.close()


def _member_rows(members: Sequence[Member]) -> Iterator[MemberRow]:
    for line, member in enumerate(members, start=1):
        email = member["email"] or ""
        name = member.get("name") or ""
        yield MemberRow(
            line=line,
            email=email.strip(),
            name=tidy_name(name),
            tier=None,
            paid_expiry=None,
            suppression=SuppressionStatus.WANTED,
            cells=(email, name),
        )
