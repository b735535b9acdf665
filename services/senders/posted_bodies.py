"""Decompresses the bodies of senders' requests."""

import zlib
from contextlib import suppress
from dataclasses import dataclass

# The maximum number of separately compressed parts in a body. The maximum is low, because each part
# takes time, even if the part is empty.
_MAX_GZIP_MEMBERS = 100
# Tells zlib to expect the header and the trailer of gzip.
_GZIP_BITS = 16 + zlib.MAX_WBITS


@dataclass(frozen=True)
class PostedBody:
    """``content`` holds the bytes exactly as received."""

    content: bytes
    is_gzip: bool = False

    def read(self, max_bytes: int) -> bytes | None:
        """Return the decompressed body, or ``None`` if it has more than ``max_bytes`` bytes.

        At most one byte above the limit is decompressed. A damaged body is returned unchanged, so
        that it counts as unreadable.
        """
        content = self.content
        if self.is_gzip and len(content) <= max_bytes:
            with suppress(zlib.error):
                content = _decompress(content, max_bytes + 1)
        return content if len(content) <= max_bytes else None


def _decompress(content: bytes, max_bytes: int) -> bytes:
    """Raises ``zlib.error`` if the content is damaged or incomplete, or has too many parts."""
    decompressed = b""
    for _ in range(_MAX_GZIP_MEMBERS):
        member = zlib.decompressobj(_GZIP_BITS)
        decompressed += member.decompress(content, max_bytes - len(decompressed))
        if len(decompressed) == max_bytes:
            return decompressed
        if not member.eof:
            break
        content = member.unused_data
        if not content:
            return decompressed
    raise zlib.error
