"""Stores the chunks of an imported file in the object storage."""

from models import MemberImport
from services.subscriptions import bulk_files
from services.subscriptions.imports.chunks.chunks import Chunk, PreparedChunk, prepare_chunk
from services.subscriptions.imports.chunks.seen_addresses import SeenAddresses
from services.subscriptions.imports.judged_rows import (
    DUPLICATE_CODE,
    STRICTER_ROW_REASON,
    JudgedRow,
    decode_rows,
    encode_rows,
    reject_row,
)
from storage.encryption import seal, unseal
from storage.resources import Resources


def get_chunk_key(prefix: str, number: int) -> str:
    return f"{prefix}/chunks/{number:06}"


class StoredChunks:
    """The stored chunks of a file that is being read.

    Attributes:
        opt_out_numbers: the numbers of the chunks with opt-outs, which are applied first.
        size: the total size of the stored chunks in bytes, before encryption.
    """

    def __init__(self, resources: Resources, task: MemberImport) -> None:
        self._objects = resources.objects
        self._prefix = task.object_prefix
        self._key = bulk_files.unwrap_key(resources, task)
        self._unmarked: list[int] = []
        self.count = 0
        self.opt_out_numbers: list[int] = []
        self.size = 0

    def store(self, chunk: Chunk) -> None:
        self.size += self._store_rows(chunk.number, chunk.rows)
        self.count = chunk.number + 1
        self._unmarked.append(chunk.number)
        if chunk.has_opt_outs:
            self.opt_out_numbers.append(chunk.number)

    @property
    def has_unmarked_chunks(self) -> bool:
        return bool(self._unmarked)

    def mark_next_chunk(self, seen: SeenAddresses) -> None:
        """Reject the rows of one chunk that other rows of the file override.

        A row is overridden by a row with the same address and a more restrictive status.
        """
        number = self._unmarked.pop()
        key = get_chunk_key(self._prefix, number)
        rows = decode_rows(unseal(self._objects.get(key), self._key, key))
        strictest = seen.find([row.email for row in rows if row.code is None])
        weaker = [
            position
            for position, row in enumerate(rows)
            if row.code is None and row.strictness < strictest[row.email]
        ]
        for position in weaker:
            rows[position] = reject_row(rows[position], DUPLICATE_CODE, STRICTER_ROW_REASON)
        if weaker:
            self._store_rows(number, rows)

    def _store_rows(self, number: int, rows: list[JudgedRow]) -> int:
        key = get_chunk_key(self._prefix, number)
        content = encode_rows(rows)
        size = len(content)
        # Free the unencrypted content before the upload, which copies the object.
        content = seal(content, self._key, key)
        self._objects.put(key, content, "application/octet-stream")
        return size


def fetch_chunk(resources: Resources, task: MemberImport, number: int) -> PreparedChunk:
    key = get_chunk_key(task.object_prefix, number)
    content = unseal(resources.objects.get(key), bulk_files.unwrap_key(resources, task), key)
    return prepare_chunk(number, decode_rows(content))
