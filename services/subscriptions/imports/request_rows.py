"""Reads the members in an API request, and groups the members into chunks."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from models import MemberImport
from services.subscriptions import bulk_files
from services.subscriptions.imports.chunks import (
    MAX_REQUEST_CHUNK_CHARACTERS,
    Chunk,
    PendingChunk,
    get_rows_per_batch,
)
from services.subscriptions.imports.judging import judge_rows
from services.subscriptions.imports.member_names import tidy_name
from services.subscriptions.imports.rows import MemberRow, SuppressionStatus
from services.subscriptions.imports.seen_addresses import SeenAddresses
from storage.resources import Resources

# The value of ``MemberImport.description`` for an import from an API request.
REQUEST_DESCRIPTION: Mapping[str, Any] = {"format": "request", "header": ["email", "name"]}


class RequestRows:
    """The members in an API request.

    An import from an API request stores no chunks, because the request itself is stored.

    Attributes:
        total: the number of members in the request.
        received: the number of members that have been read from the request.
        count: the number of chunks that ``next_chunk`` has returned.
    """

    def __init__(self, resources: Resources, task: MemberImport) -> None:
        body = b"".join(bulk_files.open_stored_file(resources, task).stream())
        members = orjson.loads(body)["members"]
        self._seen = SeenAddresses()
        self._batches = judge_rows(_member_rows(members), self._seen, get_rows_per_batch())
        self._pending = PendingChunk(MAX_REQUEST_CHUNK_CHARACTERS)
        self.total = len(members)
        self.received = 0
        self.count = 0

    @property
    def is_complete(self) -> bool:
        """Return whether ``next_chunk`` has returned all members of the request."""
        return self.received == self.total

    def next_chunk(self) -> Chunk | None:
        """Return the next chunk of members, or ``None`` after the last chunk."""
        while not self._pending.is_full():
            batch, characters = next(self._batches, ([], 0))
            if not batch:
                break
            self.received += len(batch)
            self._pending.add(batch, characters)
        rows = self._pending.take_rows()
        if not rows:
            return None
        chunk = Chunk(self.count, rows)
        self.count += 1
        return chunk

    def close(self) -> None:
        self._seen.close()


def _member_rows(members: Sequence[Mapping[str, str | None]]) -> Iterator[MemberRow]:
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
