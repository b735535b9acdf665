"""A file in object storage as numbered parts of one size.

It is written part by part, read from any offset, and never held whole in memory. A part is a row
of blocks, each encrypted by itself, so that a few bytes can be read without the rest of their part.
A block opens only at its own place in its own part.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

from storage.encryption import SEALED_BYTES_MORE, decrypt, encrypt
from storage.objects import ObjectStore

PART_BYTES = 8 * 1024 * 1024
BLOCK_BYTES = 128 * 1024
_SEALED_BLOCK_BYTES = BLOCK_BYTES + SEALED_BYTES_MORE


def part_key(prefix: str, number: int) -> str:
    return f"{prefix}/sealed/{number:05}"


@dataclass(frozen=True)
class StoredFile:
    """Reads parts of ``PART_BYTES`` each, the last one shorter."""

    objects: ObjectStore
    prefix: str
    size: int
    key: bytes = field(repr=False)

    def read_at(self, offset: int, count: int, /) -> bytes:
        """Up to ``count`` bytes from ``offset``; fewer at the end of a part or of the file."""
        number, within = divmod(offset, PART_BYTES)
        count = min(count, PART_BYTES - within, self.size - offset)
        if count <= 0:
            return b""
        return b"".join(self._read(number, within, count))

    def stream(self) -> Iterator[bytes]:
        """The whole file in order.

        Raises ``ObjectMissing`` and, for bytes that differ from what was encrypted, ``Tampered``,
        also after the first piece.
        """
        for offset in range(0, self.size, PART_BYTES):
            number, length = offset // PART_BYTES, min(PART_BYTES, self.size - offset)
            yield from self._read(number, 0, length)

    def _read(self, number: int, within: int, count: int) -> Iterator[bytes]:
        """``count`` bytes of one part from ``within``, in pieces."""
        name = part_key(self.prefix, number)
        part_length = min(PART_BYTES, self.size - number * PART_BYTES)
        first, skipped = divmod(within, BLOCK_BYTES)
        last = (within + count - 1) // BLOCK_BYTES
        blocks = range(first, last + 1)
        lengths = [min(BLOCK_BYTES, part_length - block * BLOCK_BYTES) for block in blocks]
        sealed_length = sum(lengths) + len(lengths) * SEALED_BYTES_MORE
        held = bytearray()
        offset = first * _SEALED_BLOCK_BYTES
        with closing(self.objects.stream(name, offset=offset, length=sealed_length)) as pieces:
            for block, length in zip(blocks, lengths, strict=True):
                needed = length + SEALED_BYTES_MORE
                while len(held) < needed and (piece := next(pieces, b"")):
                    held += piece
                plain = decrypt(bytes(held[:needed]), self.key, _context(name, block))
                del held[:needed]
                yield plain[skipped : skipped + count]
                count -= len(plain) - skipped
                skipped = 0


def _context(part: str, block: int) -> str:
    return f"{part}#{block}"


class PartWriter:
    """A writable file that stores its bytes a part at a time, encrypted under the key."""

    def __init__(self, objects: ObjectStore, prefix: str, key: bytes) -> None:
        self.prefix = prefix
        self.size = 0
        self._objects = objects
        self._key = key
        self._held = bytearray()

    def write(self, data: bytes) -> int:
        self._held += data
        while len(self._held) >= PART_BYTES:
            self._store(PART_BYTES)
        return len(data)

    def flush(self) -> None:
        """Does nothing: compressors call it, and the last bytes wait for ``close``."""

    def close(self) -> None:
        """Store the bytes that are left."""
        if self._held:
            self._store(len(self._held))

    def _store(self, count: int) -> None:
        name = part_key(self.prefix, self.size // PART_BYTES)
        sealed = b"".join(
            encrypt(
                bytes(self._held[start : min(start + BLOCK_BYTES, count)]),
                self._key,
                _context(name, start // BLOCK_BYTES),
            )
            for start in range(0, count, BLOCK_BYTES)
        )
        del self._held[:count]
        self._objects.put(name, sealed, "application/octet-stream")
        self.size += count


def remove_all(objects: ObjectStore, prefix: str) -> None:
    """Remove every object under the prefix."""
    objects.remove(*[stored.key for stored in objects.stored(f"{prefix}/")])
