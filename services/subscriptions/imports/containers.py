"""Opens plain, gzip and zip files, and bounds the bytes that come out of them."""

import codecs
import io
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import IO, Any, Protocol, cast

from core.errors import imports as errors
from services.subscriptions.imports.encodings import (
    WINDOWS_1252,
    EncodingEvidence,
    EncodingUnclear,
)

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


# A byte-order mark decides the encoding. Without a byte-order mark, the file is UTF-16 if many
# bytes at even positions, or many at odd positions, are zero. In all other files, the encoding is
# UTF-8 unless most characters beyond ASCII are invalid UTF-8. In that case, the module
# ``encodings`` detects the encoding, at first from the beginning of the file.
#
# A few invalid bytes in a UTF-8 file become lone surrogates in the text, so that ``is_damaged`` can
# detect these bytes in an address. In names, ``repair_text`` decodes these bytes as Windows-1252.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# The least share of zeros on one side of the byte pairs: a few stray zeros are not UTF-16. Scripts
# whose letters end in a zero byte put some zeros on the other side too.
_ZEROS_OF_UTF16 = 0.2

# Neither blanks nor what a tool uses as a separator or as the end of a file.
_CONTROL = re.compile("[\0-\x08\x0e-\x19\x7f]")

_DAMAGE = re.compile("[\udc80-\udcff\ufffd]")
_AS_WINDOWS = {
    0xDC00 + byte: bytes([byte]).decode(WINDOWS_1252, "ignore") for byte in range(0x80, 0x100)
}


def is_damaged(text: str) -> bool:
    return _DAMAGE.search(text) is not None


def repair_text(text: str) -> str:
    """``text``, with each undecodable byte read as Windows-1252."""
    return text.translate(_AS_WINDOWS)


class DecodedText:
    """Decodes the bytes of a file, and removes null characters from the text.

    ``damaged`` becomes true at the first bytes that are invalid in the encoding. ``is_binary`` is
    true if the first line has control characters, as in a binary file.

    If ``named`` is set, ``encoding`` is that encoding. Otherwise the encoding is detected from the
    first ``head_bytes`` bytes of the file. After the last chunk, ``settled_encoding`` may return a
    different encoding.

    Raises ``EncodingUnclear`` for a short file whose encoding can't be detected.
    """

    def __init__(self, chunks: Iterable[bytes], head_bytes: int, named: str | None = None) -> None:
        self.damaged = False
        self._is_named = named is not None
        # The number of characters beyond ASCII, and the number of bytes that are invalid UTF-8.
        self._beyond_ascii = self._invalid = 0
        self._evidence = EncodingEvidence()
        head, chunks = take_head(iter(chunks), head_bytes)
        found, mark = _detect_unicode(head, named)
        # A byte-order mark proves the encoding. The zero bytes in UTF-16 text prove the encoding
        # too.
        self._is_certain = mark > 0 or (found is not None and found != "utf-8")
        self.encoding = named or found or WINDOWS_1252
        first_line = head[mark:].decode(self.encoding, "replace").lstrip().partition("\n")[0]
        self.is_binary = _CONTROL.search(first_line) is not None
        if not (named or found or self.is_binary):
            self.encoding = _encoding_of_head(head, is_whole=len(head) < head_bytes)
        self._chunks = chain([next(chunks)[mark:]], chunks)

    def __iter__(self) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder(self.encoding)()
        is_settled = self._is_named or self._is_certain
        for chunk in chain(self._chunks, [None]):
            data, is_end = chunk or b"", chunk is None
            try:
                text = decoder.decode(data, is_end)
                is_valid = True
            except UnicodeDecodeError:
                # The bytes that the decoder kept from the chunk before are still there.
                is_valid, self.damaged = False, True
                decoder.errors = _LENIENT.get(self.encoding, "replace")
                text = decoder.decode(data, is_end)
                decoder.errors = "strict"
            if not is_settled:
                self._note(data, text, is_valid=is_valid)
            if text := text.replace("\0", ""):
                yield text
        self._evidence.end()

    def _note(self, data: bytes, text: str, *, is_valid: bool) -> None:
        if self.encoding != "utf-8":
            self._evidence.note(data)
        elif is_valid:
            # In UTF-8, a character beyond ASCII has one to three extra bytes, so the count may be
            # too high.
            self._beyond_ascii += max(0, len(data) - len(text))
            self._evidence.note(data if data.isascii() else b"\n")
        else:
            self._beyond_ascii += sum(not character.isascii() for character in text)
            self._invalid += len(_DAMAGE.findall(text))
            self._evidence.note(data)

    def settled_encoding(self) -> str:
        """Return the encoding found in the whole file. Call this method after the last chunk.

        Raises ``EncodingUnclear``.
        """
        if self._is_named or self._is_certain or not self._evidence.has_cells:
            return self.encoding
        if self.encoding == "utf-8" and self._invalid * 2 <= self._beyond_ascii:
            return self.encoding
        return self._evidence.decide()

    def reads_like(self, encoding: str) -> bool:
        """Return whether the names would be the same if the file were decoded with ``encoding``.

        Addresses may differ, because bytes that are invalid UTF-8 are repaired only in names.
        """
        is_repaired = (self.encoding, encoding) == ("utf-8", WINDOWS_1252)
        return encoding == self.encoding or (is_repaired and self._beyond_ascii == self._invalid)


_LENIENT = {"utf-8": "surrogateescape", WINDOWS_1252: "surrogateescape"}


def _detect_unicode(head: bytes, named: str | None) -> tuple[str | None, int]:
    """Return the Unicode encoding of a file, and the length of its byte-order mark in bytes.

    The encoding is ``None`` if the file doesn't have a Unicode encoding. ``named``: the encoding
    that the owner set.
    """
    for mark, encoding in _MARKS:
        if head.startswith(mark) and named in (None, encoding):
            return encoding, len(mark)
    if pairs := len(head) // 2:
        even, odd = head[0::2].count(0) / pairs, head[1::2].count(0) / pairs
        if odd > max(_ZEROS_OF_UTF16, 2 * even):
            return "utf-16-le", 0
        if even > max(_ZEROS_OF_UTF16, 2 * odd):
            return "utf-16-be", 0
    text, _ = codecs.utf_8_decode(head, "surrogateescape", False)
    beyond_ascii = sum(not character.isascii() for character in text)
    invalid = len(_DAMAGE.findall(text))
    return (None if invalid * 2 > beyond_ascii else "utf-8"), 0


def _encoding_of_head(head: bytes, *, is_whole: bool) -> str:
    """Detect a file's non-Unicode encoding from ``head``, the first bytes of the file.

    Raises ``EncodingUnclear`` if the head is the whole file and several encodings remain possible.
    """
    evidence = EncodingEvidence()
    evidence.note(head)
    if is_whole:
        evidence.end()
    try:
        return evidence.decide()
    except EncodingUnclear:
        if is_whole:
            raise
        # The encoding is provisional, because later parts of the file may help to detect the right
        # encoding.
        return WINDOWS_1252
