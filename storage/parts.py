"""A file in object storage as numbered parts of one size.

It is written part by part, read from any offset, and never held whole in memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from storage.objects import ObjectStore

PART_BYTES = 8 * 1024 * 1024


def part_key(prefix: str, number: int) -> str:
    return f"{prefix}/file/{number:05}"


@dataclass(frozen=True)
class StoredFile:
    """Reads parts of ``PART_BYTES`` each, the last one shorter."""

    objects: ObjectStore
    prefix: str
    size: int

    def read_at(self, offset: int, count: int, /) -> bytes:
        """Up to ``count`` bytes from ``offset``; fewer at the end of a part or of the file."""
        if offset >= self.size:
            return b""
        number, within = divmod(offset, PART_BYTES)
        count = min(count, PART_BYTES - within, self.size - offset)
        return b"".join(
            self.objects.stream(part_key(self.prefix, number), offset=within, length=count)
        )

    def stream(self) -> Iterator[bytes]:
        """The whole file in order; raises ``ObjectMissing``, also after the first piece."""
        for number in range(-(-self.size // PART_BYTES)):
            yield from self.objects.stream(part_key(self.prefix, number))


class PartWriter:
    """A writable file that stores its bytes a part at a time."""

    def __init__(self, objects: ObjectStore, prefix: str) -> None:
        self.size = 0
        self._objects = objects
        self._prefix = prefix
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
        part = bytes(self._held[:count])
        del self._held[:count]
        key = part_key(self._prefix, self.size // PART_BYTES)
        self._objects.put(key, part, "application/octet-stream")
        self.size += count


def remove_all(objects: ObjectStore, prefix: str) -> None:
    """Remove every object under the prefix."""
    objects.remove(*[stored.key for stored in objects.stored(f"{prefix}/")])
