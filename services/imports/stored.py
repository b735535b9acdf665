"""An uploaded file as numbered objects of one size, which can be read from any place in it."""

from dataclasses import dataclass

from storage.objects import ObjectStore

IMPORTS = "imports/"
PART_BYTES = 8 * 1024 * 1024


def part_key(prefix: str, number: int) -> str:
    return f"{prefix}/file/{number:05}"


def chunk_key(prefix: str, number: int) -> str:
    return f"{prefix}/chunks/{number:06}"


@dataclass(frozen=True)
class StoredFile:
    """Reads what was stored in parts of ``PART_BYTES``, the last one shorter."""

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


def remove_all(objects: ObjectStore, prefix: str) -> None:
    """Remove every object of one import."""
    for stored in list(objects.stored(f"{prefix}/")):
        objects.remove(stored.key)
