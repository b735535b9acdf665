"""A file in object storage as numbered parts of one size: written while it comes into being, read
from any place in it, and never held whole."""

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
        """Up to ``count`` bytes from there; fewer at the end of a part or of the file."""
        if offset >= self.size:
            return b""
        number, within = divmod(offset, PART_BYTES)
        count = min(count, PART_BYTES - within, self.size - offset)
        return b"".join(
            self.objects.stream(part_key(self.prefix, number), offset=within, length=count)
        )

    def stream(self) -> Iterator[bytes]:
        """All of it, in order; raises ``ObjectMissing`` before the first piece or later."""
        for number in range(-(-self.size // PART_BYTES)):
            yield from self.objects.stream(part_key(self.prefix, number))


class PartWriter:
    """Stores what is written to it, a part at a time."""

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
        """What a compressor calls before it is done; the rest waits for ``close``."""

    def close(self) -> None:
        """Store the rest."""
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
    for stored in list(objects.stored(f"{prefix}/")):
        objects.remove(stored.key)
