"""Opens plain, gzip or zip files, with a limit on the bytes that come out of them."""

import io
import re
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import IO, Any, Protocol, cast

from core.errors import imports as errors

READ_BYTES = 64 * 1024

# The bytes that one request to the object store fetches.
WINDOW_BYTES = 1024 * 1024


class Source(Protocol):
    """Bytes that are read once. A zip, whose directory is at its end, needs one that can seek."""

    def read(self, size: int, /) -> bytes: ...


class RangeReader(Protocol):
    """An object that is read in pieces, such as one in the object store."""

    @property
    def size(self) -> int: ...

    def read_at(self, offset: int, count: int, /) -> bytes: ...


class _Ranges(io.RawIOBase):
    def __init__(self, ranges: RangeReader) -> None:
        self._ranges = ranges
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._ranges.size}
        self._position = max(0, start[whence] + offset)
        return self._position

    def readinto(self, buffer: Any, /) -> int:
        found = self._ranges.read_at(self._position, len(buffer))
        buffer[: len(found)] = found
        self._position += len(found)
        return len(found)


def ranged_file(ranges: RangeReader) -> io.BufferedReader:
    """Return a file that can seek; it keeps one window in memory."""
    return io.BufferedReader(_Ranges(ranges), WINDOW_BYTES)


MAX_EXPANDED_BYTES = 10 * 1024**3

MAX_EXPANSION_RATIO = 200

# Below this output a high ratio does no harm, and short files may be very repetitive.
RATIO_GRACE_BYTES = 1024**2

# Enough for some thousand entries. zipfile reads the whole directory into memory.
MAX_DIRECTORY_BYTES = 256 * 1024

# Far more than the blocks of the tools that write a file of many members. Each takes a few
# microseconds, however short it is.
MAX_GZIP_MEMBERS = 1_000_000

_FIRST_BYTES = 512

_ZEROS = re.compile(rb"\0*")

_MAGIC_BYTES = 8

_GZIP, _ZIP = b"\x1f\x8b", b"PK\x03\x04"

_FOREIGN = {
    b"\xd0\xcf\x11\xe0": "an old Excel workbook",
    b"%PDF": "a PDF",
    b"BZh": "a bzip2 archive",
    b"\xfd7zXZ": "an xz archive",
    b"7z\xbc\xaf": "a 7-Zip archive",
    b"Rar!": "a RAR archive",
    b"\x28\xb5\x2f\xfd": "a Zstandard archive",
    b"PAR1": "a Parquet file",
    b"SQLite f": "an SQLite database",
    b"\xff\xd8\xff": "a picture (JPEG)",
    b"\x89PNG": "a picture (PNG)",
    b"GIF87a": "a picture (GIF)",
    b"GIF89a": "a picture (GIF)",
}

# The files that macOS and Windows put into archives.
_LITTER = re.compile(r"__MACOSX/|(.*/)?(\._[^/]*|\.DS_Store|Thumbs\.db|desktop\.ini)\Z", re.DOTALL)

_BROKEN_ZIP = (zipfile.BadZipFile, zlib.error, ValueError, KeyError, IndexError, OverflowError)


def open_container(source: Source) -> tuple[str, Iterator[bytes]]:
    """The container's name, and the bytes inside.

    Raises at once ``import.unknown_format`` and what ``_unzip`` raises.
    """
    head, chunks = take_head(iter(lambda: source.read(READ_BYTES), b""), _MAGIC_BYTES)
    if head.startswith(_GZIP):
        return "gzip", _flat(_gunzip(chunks))
    if head.startswith((_ZIP, b"PK\x05\x06")):
        return "zip", _flat(_unzip(source))
    _refuse_foreign(head)
    return "plain", _Tally().bounded(chunks)


def take_head(chunks: Iterator[bytes], size: int) -> tuple[bytes, Iterator[bytes]]:
    """At least the first ``size`` bytes, or all there are; and all chunks, with these."""
    head = b""
    while len(head) < size and (more := next(chunks, b"")):
        head += more
    return head, chain([head], chunks)


def _flat(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """``chunks``; refuses an archive within the archive."""
    head, chunks = take_head(chunks, _MAGIC_BYTES)
    if head.startswith((_GZIP, _ZIP)):
        raise errors.IMPORT_UNKNOWN_FORMAT(what="an archive in an archive")
    _refuse_foreign(head)
    return chunks


def _refuse_foreign(head: bytes) -> None:
    for magic, what in _FOREIGN.items():
        if head.startswith(magic):
            raise errors.IMPORT_UNKNOWN_FORMAT(what=what)


@dataclass
class _Tally:
    """Counts the bytes that were read and those that they expanded to."""

    taken: int = 0
    given: int = 0

    def expanded(self, data: bytes) -> bytes:
        """Count ``data`` and return it; raises ``import.expands_too_much``."""
        self.given += len(data)
        if self.given > MAX_EXPANDED_BYTES:
            how = f"more than {MAX_EXPANDED_BYTES // 1024**3} GB"
            raise errors.IMPORT_EXPANDS_TOO_MUCH(how=how)
        if self.given > max(RATIO_GRACE_BYTES, MAX_EXPANSION_RATIO * self.taken):
            how = f"more than {MAX_EXPANSION_RATIO} times its size"
            raise errors.IMPORT_EXPANDS_TOO_MUCH(how=how)
        return data

    def bounded(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for data in chunks:
            self.taken += len(data)
            yield self.expanded(data)


def _gunzip(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The content of all members of a gzip file. Zeros may follow each, as gzip itself allows."""
    tally = _Tally()
    member, members = None, 0
    for chunk in chunks:
        tally.taken += len(chunk)
        # zlib copies what it leaves of its input. A new member is given little, then ever more:
        # otherwise each of many tiny members would cost a copy of the rest of the chunk.
        at, ahead = 0, READ_BYTES
        while (at := at if member else _after_zeros(chunk, at)) < len(chunk):
            if member is None:
                member, members, ahead = zlib.decompressobj(wbits=31), members + 1, _FIRST_BYTES
                if members > MAX_GZIP_MEMBERS:
                    raise errors.IMPORT_GZIP_MEMBERS(most=MAX_GZIP_MEMBERS)
            piece = memoryview(chunk)[at : at + ahead]
            try:
                out = member.decompress(piece, READ_BYTES)
            except zlib.error:
                raise errors.IMPORT_DAMAGED(container="gzip") from None
            at += len(piece) - len(member.unused_data if member.eof else member.unconsumed_tail)
            ahead *= 2
            member = None if member.eof else member
            if out:
                yield tally.expanded(out)
    if member:
        raise errors.IMPORT_TRUNCATED(container="gzip")


def _after_zeros(chunk: bytes, at: int) -> int:
    zeros = _ZEROS.match(chunk, at)
    assert zeros is not None
    return zeros.end()


class _BoundedReads:
    """Caps the size of each read, so that zipfile can't load a huge central directory."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self.seek, self.tell, self.seekable = source.seek, source.tell, source.seekable

    def read(self, size: int = -1, /) -> bytes:
        if size > MAX_DIRECTORY_BYTES:
            raise errors.IMPORT_ARCHIVE_DIRECTORY()
        return self._source.read(size if size >= 0 else MAX_DIRECTORY_BYTES)


def _unzip(source: Source) -> Iterator[bytes]:
    if not getattr(source, "seekable", lambda: False)():
        raise TypeError("a zip's directory is at its end: give a source that seeks")
    file = cast("IO[bytes]", _BoundedReads(cast("IO[bytes]", source)))
    try:
        archive = zipfile.ZipFile(file)
    except _BROKEN_ZIP:
        raise errors.IMPORT_TRUNCATED(container="zip") from None
    entry = _only_entry(archive)
    tally = _Tally(min(entry.compress_size, file.seek(0, 2)))
    try:
        with archive.open(entry) as inside:
            while data := inside.read(READ_BYTES):
                yield tally.expanded(data)
    except EOFError:
        raise errors.IMPORT_TRUNCATED(container="zip") from None
    except _BROKEN_ZIP:
        raise errors.IMPORT_DAMAGED(container="zip") from None


def _only_entry(archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    if "[Content_Types].xml" in archive.namelist():
        raise errors.IMPORT_UNKNOWN_FORMAT(what="an Excel workbook or another Office document")
    entries = [
        each
        for each in archive.infolist()
        if not each.is_dir() and not _LITTER.match(each.filename)
    ]
    if not entries:
        raise errors.IMPORT_EMPTY_ARCHIVE()
    if len(entries) > 1:
        shown = ", ".join(each.filename[:60] for each in entries[:5])
        raise errors.IMPORT_ARCHIVE_MANY_FILES(count=len(entries), names=shown)
    (entry,) = entries
    if entry.flag_bits & 0x1:
        raise errors.IMPORT_ARCHIVE_ENCRYPTED()
    # Other methods are rare, and Python's readers do not bound the output of one read of them.
    if entry.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise errors.IMPORT_UNKNOWN_FORMAT(what="a zip file compressed in an unusual way")
    return entry
