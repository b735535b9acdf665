"""Encrypted files in object storage, stored as numbered parts of equal size.

A file is written part by part, can be read from any offset, and is never in memory as a whole. A
part consists of separately encrypted blocks, so that a few bytes can be read without the rest of
the part. A block that was moved within the file can't be decrypted.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

from storage.encryption import ENCRYPTION_OVERHEAD_BYTES, decrypt, encrypt
from storage.objects import ObjectStore

PART_BYTES = 8 * 1024 * 1024
BLOCK_BYTES = 128 * 1024
_SEALED_BLOCK_BYTES = BLOCK_BYTES + ENCRYPTION_OVERHEAD_BYTES


def part_key(prefix: str, number: int) -> str:
    return f"{prefix}/sealed/{number:05}"


@dataclass(frozen=True)
class StoredFile:
    """A stored file. All parts except the last one contain ``PART_BYTES`` bytes."""

    objects: ObjectStore
    prefix: str
    size: int
    key: bytes = field(repr=False)

    def read_at(self, offset: int, count: int, /) -> bytes:
        """Return up to ``count`` bytes, or fewer at the end of a part or of the file."""
        number, within = divmod(offset, PART_BYTES)
        count = min(count, PART_BYTES - within, self.size - offset)
        if count <= 0:
            return b""
        return b"".join(self._read(number, within, count))

    def stream(self) -> Iterator[bytes]:
        """Yield the bytes of the file in order.

        Raises ``ObjectMissing`` for a missing part, and ``DecryptionFailed`` for a changed part.
        All parts before the faulty part are yielded first.
        """
        for offset in range(0, self.size, PART_BYTES):
            length = min(PART_BYTES, self.size - offset)
            yield from self._read(offset // PART_BYTES, 0, length)

    def _read(self, number: int, within: int, count: int) -> Iterator[bytes]:
        name = part_key(self.prefix, number)
        part_length = min(PART_BYTES, self.size - number * PART_BYTES)
        first, skipped = divmod(within, BLOCK_BYTES)
        last = (within + count - 1) // BLOCK_BYTES
        blocks = range(first, last + 1)
        lengths = [min(BLOCK_BYTES, part_length - block * BLOCK_BYTES) for block in blocks]
        sealed_length = sum(lengths) + len(lengths) * ENCRYPTION_OVERHEAD_BYTES
        sealed_bytes = bytearray()
        offset = first * _SEALED_BLOCK_BYTES
        with closing(self.objects.stream(name, offset=offset, length=sealed_length)) as pieces:
            for block, length in zip(blocks, lengths, strict=True):
                needed = length + ENCRYPTION_OVERHEAD_BYTES
                while len(sealed_bytes) < needed and (piece := next(pieces, b"")):
                    sealed_bytes += piece
                plain = decrypt(bytes(sealed_bytes[:needed]), self.key, _context(name, block))
                del sealed_bytes[:needed]
                yield plain[skipped : skipped + count]
                count -= len(plain) - skipped
                skipped = 0


def _context(part: str, block: int) -> str:
    return f"{part}#{block}"


class PartWriter:
    def __init__(self, objects: ObjectStore, prefix: str, key: bytes) -> None:
        self.prefix = prefix
        self.size = 0
        self._objects = objects
        self._key = key
        self._buffer = bytearray()

    def write(self, data: bytes) -> int:
        self._buffer += data
        while len(self._buffer) >= PART_BYTES:
            self._store(PART_BYTES)
        return len(data)

    def flush(self) -> None:
        """Do nothing when a compressor calls ``flush``, because only ``close`` may store a part
        that isn't full.
        """

    def close(self) -> None:
        if self._buffer:
            self._store(len(self._buffer))

    def _store(self, count: int) -> None:
        name = part_key(self.prefix, self.size // PART_BYTES)
        sealed = b"".join(
            encrypt(
                bytes(self._buffer[start : min(start + BLOCK_BYTES, count)]),
                self._key,
                _context(name, start // BLOCK_BYTES),
            )
            for start in range(0, count, BLOCK_BYTES)
        )
        del self._buffer[:count]
        self._objects.put(name, sealed, "application/octet-stream")
        self.size += count


def remove_prefix(objects: ObjectStore, prefix: str) -> None:
    objects.remove(*[stored.key for stored in objects.list_objects(f"{prefix}/")])
