"""Sources of a file's bytes: streams that only go forward, and files that can seek.

A zip's directory is at its end, so a zip needs a file that can seek. All other forms are read once,
from the first byte to the last.
"""

import io
from typing import Protocol

READ_BYTES = 64 * 1024
# The bytes that one request to the object store fetches.
WINDOW_BYTES = 1024 * 1024


class Source(Protocol):
    def read(self, size: int, /) -> bytes:
        """At most ``size`` bytes; none at the end."""


class RangeReader(Protocol):
    """An object that is read in pieces, such as one in the object store."""

    @property
    def size(self) -> int: ...

    def read_at(self, offset: int, count: int, /) -> bytes: ...


class RangedFile:
    """A file that can seek, over a ``RangeReader``; it keeps one window in memory."""

    def __init__(self, ranges: RangeReader, window_bytes: int = WINDOW_BYTES) -> None:
        self._ranges = ranges
        self._window_bytes = window_bytes
        self._window = b""
        self._window_at = 0
        self._position = 0

    def read(self, size: int = -1, /) -> bytes:
        remaining = max(0, self._ranges.size - self._position)
        wanted = remaining if size < 0 else min(size, remaining)
        pieces = []
        while wanted > 0:
            within = self._position - self._window_at
            if not 0 <= within < len(self._window):
                self._window = self._ranges.read_at(self._position, self._window_bytes)
                self._window_at, within = self._position, 0
            piece = self._window[within : within + wanted]
            if not piece:
                break
            pieces.append(piece)
            self._position += len(piece)
            wanted -= len(piece)
        return b"".join(pieces)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._ranges.size}
        self._position = max(0, start[whence] + offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def seekable(self) -> bool:
        return True
