"""Reads files that may be compressed with gzip or zip.

The decompressed size is limited, because a small archive may contain a huge file.
"""

import io
import re
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import IO, Any, NoReturn, Protocol, cast

from core.errors import DomainError
from core.errors import imports as errors

READ_BYTES = 64 * 1024
# How many bytes each request to the object storage reads.
WINDOW_BYTES = 1024 * 1024
MAX_EXPANDED_BYTES = 10 * 1024**3
MAX_EXPANSION_RATIO = 200
# Files that decompress to at most this size may have any expansion ratio, because small files are
# harmless.
RATIO_GRACE_BYTES = 1024**2
# The maximum size of a zip file's directory, which Python's zipfile loads into memory. A directory
# of this size has room for thousands of entries.
MAX_DIRECTORY_BYTES = 256 * 1024
# The maximum number of members (separately compressed parts) in a gzip file. Files that other
# products export have far fewer compressed parts than this maximum. Reading a gzip file above this
# maximum could take minutes, even if all parts are empty.
MAX_GZIP_MEMBERS = 1_000_000

_FIRST_PART_BYTES = 512
_ZEROS = re.compile(rb"\0*")
_MAGIC_BYTES = 8
_GZIP = b"\x1f\x8b"
_ZIP = b"PK\x03\x04"
_EMPTY_ZIP = b"PK\x05\x06"
# The container of old Office files, and of encrypted workbooks.
_COMPOUND_FILE = b"\xd0\xcf\x11\xe0"
# A part of the directory of a compound file that shows that the file is encrypted. It consists of
# the name of an entry, padded to 64 bytes, and the length of the name.
_ENCRYPTED_PACKAGE = "EncryptedPackage".encode("utf-16-le").ljust(64, b"\0") + b"\x22\0"
# The part that every workbook, Word document and presentation has.
_CONTENT_TYPES = "[content_types].xml"
# The names of the zip entries with which workbooks begin, in lower case.
_FIRST_WORKBOOK_ENTRIES = (_CONTENT_TYPES.encode(), b"_rels/.rels", b"docprops/", b"xl/")
_UNSUPPORTED_FORMATS = {
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
# Matches the names of system files that macOS and Windows put into archives.
_SYSTEM_FILES = re.compile(
    r"__MACOSX/|(.*/)?(\._[^/]*|\.DS_Store|Thumbs\.db|desktop\.ini)\Z", re.DOTALL
)
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    ValueError,
    KeyError,
    IndexError,
    OverflowError,
    NotImplementedError,  # zipfile raises it if the archive needs a newer version of the format.
)


class Source(Protocol):
    """An open file that is read once from start to end.

    The source of a zip file must be seekable, because the directory of a zip file is at the end.
    """

    def read(self, size: int, /) -> bytes: ...


class RangeReader(Protocol):
    @property
    def size(self) -> int: ...

    def read_at(self, offset: int, count: int, /) -> bytes: ...


def open_ranged_file(ranges: RangeReader) -> io.BufferedReader:
    """Return a seekable file that buffers at most ``WINDOW_BYTES`` of an object in memory."""
    return io.BufferedReader(_Ranges(ranges), WINDOW_BYTES)


def open_container(source: Source) -> tuple[str, Iterator[bytes]]:
    """Return the container of a file, such as gzip, and the decompressed content.

    Errors in compressed data are raised while the content is read.
    """
    head, chunks = take_head(iter(lambda: source.read(READ_BYTES), b""), _MAGIC_BYTES)
    if head.startswith(_GZIP):
        return "gzip", _refuse_nested(_gunzip(chunks))
    if head.startswith((_ZIP, _EMPTY_ZIP)):
        return "zip", _refuse_nested(_unzip(source))
    if head.startswith(_COMPOUND_FILE):
        _refuse_compound_file(chunks)
    _refuse_unsupported(head)
    return "plain", _Expansion().limit(chunks)


def is_workbook(file: io.BufferedReader) -> bool:
    head = file.read(_MAGIC_BYTES)
    try:
        if not head.startswith(_ZIP):
            return False
        archive = zipfile.ZipFile(cast("IO[bytes]", _LimitedReads(file)))
        return any(name.lower() == _CONTENT_TYPES for name in archive.namelist())
    except (*_ZIP_ERRORS, DomainError):
        # The function ``open_container`` raises the error later.
        return False
    finally:
        file.seek(0)


def take_head(chunks: Iterator[bytes], size: int) -> tuple[bytes, Iterator[bytes]]:
    """Return at least the first ``size`` bytes of a file, and an iterator over the whole file."""
    head = b""
    while len(head) < size and (chunk := next(chunks, b"")):
        head += chunk
    return head, chain([head], chunks)


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
        data = self._ranges.read_at(self._position, len(buffer))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


def _refuse_nested(chunks: Iterator[bytes]) -> Iterator[bytes]:
    head, all_chunks = take_head(chunks, _MAGIC_BYTES)
    if head.startswith((_GZIP, _ZIP)):
        raise errors.IMPORT_UNKNOWN_FORMAT(what="an archive inside an archive")
    _refuse_unsupported(head)
    return all_chunks


def _refuse_unsupported(head: bytes) -> None:
    for magic, format_name in _UNSUPPORTED_FORMATS.items():
        if head.startswith(magic):
            raise errors.IMPORT_UNKNOWN_FORMAT(what=format_name)


def _refuse_compound_file(chunks: Iterator[bytes]) -> NoReturn:
    overlap = b""
    for chunk in chunks:
        if _ENCRYPTED_PACKAGE in overlap + chunk:
            raise errors.IMPORT_WORKBOOK_ENCRYPTED()
        overlap = chunk[-len(_ENCRYPTED_PACKAGE) :]
    raise errors.IMPORT_OTHER_SPREADSHEET(what="an old Excel workbook (.xls)")


def _refuse_other_spreadsheet(names: list[str]) -> None:
    if "content.xml" in names and "META-INF/manifest.xml" in names:
        raise errors.IMPORT_OTHER_SPREADSHEET(what="an OpenDocument spreadsheet (.ods)")
    if any(name.startswith("Index/") and name.endswith(".iwa") for name in names) or (
        "Index.zip" in names
    ):
        raise errors.IMPORT_OTHER_SPREADSHEET(what="a Numbers spreadsheet (.numbers)")


@dataclass
class _Expansion:
    read: int = 0
    expanded: int = 0

    def add(self, data: bytes) -> bytes:
        """Count the decompressed bytes, and return ``data``. Raises ``import.expands_too_much``."""
        self.expanded += len(data)
        if self.expanded > MAX_EXPANDED_BYTES:
            how = f"more than {MAX_EXPANDED_BYTES // 1024**3} GB"
            raise errors.IMPORT_EXPANDS_TOO_MUCH(how=how)
        if self.expanded > max(RATIO_GRACE_BYTES, MAX_EXPANSION_RATIO * self.read):
            how = f"more than {MAX_EXPANSION_RATIO} times its size"
            raise errors.IMPORT_EXPANDS_TOO_MUCH(how=how)
        return data

    def limit(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for data in chunks:
            self.read += len(data)
            yield self.add(data)


def _gunzip(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the decompressed content of all members of a gzip file.

    Each member of a gzip file may be followed by zero bytes.
    """
    expansion = _Expansion()
    member = None
    members = 0
    for chunk in chunks:
        expansion.read += len(chunk)
        # For a new gzip member, decompress only a small part of the chunk, because zlib copies the
        # unused input. Double the size of the part each time, so that large gzip members are read
        # quickly.
        position = 0
        part_bytes = READ_BYTES
        while (position := position if member else _skip_zeros(chunk, position)) < len(chunk):
            if member is None:
                member = zlib.decompressobj(wbits=31)
                members += 1
                part_bytes = _FIRST_PART_BYTES
                if members > MAX_GZIP_MEMBERS:
                    raise errors.IMPORT_GZIP_MEMBERS(most=MAX_GZIP_MEMBERS)
            part = memoryview(chunk)[position : position + part_bytes]
            try:
                data = member.decompress(part, READ_BYTES)
            except zlib.error:
                raise errors.IMPORT_DAMAGED(container="gzip") from None
            unused = member.unused_data if member.eof else member.unconsumed_tail
            position += len(part) - len(unused)
            part_bytes *= 2
            member = None if member.eof else member
            if data:
                yield expansion.add(data)
    if member:
        raise errors.IMPORT_TRUNCATED(container="gzip")


def _skip_zeros(chunk: bytes, position: int) -> int:
    zeros = _ZEROS.match(chunk, position)
    assert zeros is not None
    return zeros.end()


class _LimitedReads:
    """A file that limits the size of each read, so that zipfile can't load a huge directory."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self.seek = source.seek
        self.tell = source.tell
        self.seekable = source.seekable

    def read(self, size: int = -1, /) -> bytes:
        if size > MAX_DIRECTORY_BYTES:
            raise errors.IMPORT_ARCHIVE_DIRECTORY()
        return self._source.read(size if size >= 0 else MAX_DIRECTORY_BYTES)


def _unzip(source: Source) -> Iterator[bytes]:
    if not getattr(source, "seekable", lambda: False)():
        raise TypeError("the directory of a zip file is at its end, so the source must be seekable")
    file = cast("IO[bytes]", _LimitedReads(cast("IO[bytes]", source)))
    try:
        archive = zipfile.ZipFile(file)
    except _ZIP_ERRORS:
        raise errors.IMPORT_TRUNCATED(container=_name_container(file)) from None
    entry = _find_only_entry(archive)
    expansion = _Expansion(min(entry.compress_size, file.seek(0, 2)))
    try:
        with archive.open(entry) as content:
            while data := content.read(READ_BYTES):
                yield expansion.add(data)
    except EOFError:
        raise errors.IMPORT_TRUNCATED(container="zip") from None
    except _ZIP_ERRORS:
        raise errors.IMPORT_DAMAGED(container="zip") from None


def _name_container(file: IO[bytes]) -> str:
    """The function looks for a workbook's file names in the first bytes of the zip file, because a
    truncated zip file has lost the directory at its end.
    """
    file.seek(0)
    head = file.read(_FIRST_PART_BYTES).lower()
    return "Excel" if any(name in head for name in _FIRST_WORKBOOK_ENTRIES) else "zip"


def _find_only_entry(archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    _refuse_other_spreadsheet(archive.namelist())
    entries = [
        entry
        for entry in archive.infolist()
        if not entry.is_dir() and not _SYSTEM_FILES.match(entry.filename)
    ]
    if not entries:
        raise errors.IMPORT_EMPTY_ARCHIVE()
    if len(entries) > 1:
        names = ", ".join(entry.filename[:60] for entry in entries[:5])
        raise errors.IMPORT_ARCHIVE_MANY_FILES(count=len(entries), names=names)
    (entry,) = entries
    if entry.flag_bits & 0x1:
        raise errors.IMPORT_ARCHIVE_ENCRYPTED()
    # Reject rare compression methods, because Python can't limit the memory for their
    # decompression.
    if entry.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise errors.IMPORT_UNKNOWN_FORMAT(what="a zip file compressed in an unusual way")
    return entry
