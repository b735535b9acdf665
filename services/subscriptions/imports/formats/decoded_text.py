"""Decodes the bytes of a file into text.

A byte-order mark at the start of a file determines the encoding. Without a byte-order mark, a file
is UTF-16 if many bytes at even or at odd positions are zero. A file that isn't UTF-16 counts as
UTF-8 unless most of its non-ASCII characters are invalid UTF-8. Encodings other than UTF-8 and
UTF-16 are detected by ``encoding_detection`` from cells with non-ASCII bytes.

Invalid bytes in a UTF-8 file become lone surrogates, so that ``is_damaged`` can detect a damaged
address. In a name, ``repair_text`` decodes invalid bytes as Windows-1252.
"""

import codecs
import re
from collections.abc import Iterable, Iterator
from itertools import chain

from services.subscriptions.imports.formats.containers import take_head
from services.subscriptions.imports.formats.encoding_detection import EncodingUnclear
from services.subscriptions.imports.formats.encoding_evidence import EncodingEvidence
from services.subscriptions.imports.formats.encodings import WINDOWS_1252

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# A file counts as UTF-16 if the share of zero bytes at even or odd positions exceeds this number.
# In UTF-16, zero bytes can occur at both even and odd offsets, because either byte of a letter can
# be zero.
_MIN_ZEROS_OF_UTF16 = 0.2
# Maps encodings to decoder error handlers that keep undecodable bytes as lone surrogates.
_ERROR_HANDLERS = {"utf-8": "surrogateescape", WINDOWS_1252: "surrogateescape"}
# Matches control characters that don't occur in text files. The pattern doesn't match whitespace,
# separators and end-of-file characters, because text files may contain these.
_CONTROL = re.compile("[\0-\x08\x0e-\x19\x7f]")
_DAMAGE = re.compile("[\udc80-\udcff\ufffd]")
_AS_WINDOWS_1252 = {
    0xDC00 + byte: bytes([byte]).decode(WINDOWS_1252, "ignore") for byte in range(0x80, 0x100)
}


class DecodedText:
    """The decoded text of a file, without null characters.

    ``damaged`` becomes true when the decoder finds a byte that is invalid in the encoding.
    ``is_binary`` is true if the first line of the file contains control characters.

    ``named`` is the encoding that the owner has chosen. If ``named`` is ``None``, the encoding is
    detected from the first ``head_bytes`` bytes.
    """

    def __init__(self, chunks: Iterable[bytes], head_bytes: int, named: str | None = None) -> None:
        self.damaged = False
        self._is_named = named is not None
        # The number of decoded non-ASCII characters, and the number of bytes that are invalid
        # UTF-8.
        self._beyond_ascii = 0
        self._invalid = 0
        self._evidence = EncodingEvidence()
        head, all_chunks = take_head(iter(chunks), head_bytes)
        unicode_encoding, mark_bytes = _detect_unicode(head, named)
        # The encoding is certain if the file has a byte-order mark or the zero bytes of UTF-16.
        self._is_certain = mark_bytes > 0 or unicode_encoding not in (None, "utf-8")
        self.encoding = named or unicode_encoding or WINDOWS_1252
        text = head[mark_bytes:].decode(self.encoding, "replace")
        first_line = text.lstrip().partition("\n")[0]
        self.is_binary = _CONTROL.search(first_line) is not None
        if not (named or unicode_encoding or self.is_binary):
            self.encoding = _detect_encoding(head, is_complete=len(head) < head_bytes)
        self._chunks = chain([next(all_chunks)[mark_bytes:]], all_chunks)

    def __iter__(self) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder(self.encoding)()
        is_certain = self._is_named or self._is_certain
        for chunk in chain(self._chunks, [None]):
            data = chunk or b""
            is_end = chunk is None
            try:
                text = decoder.decode(data, is_end)
                is_valid = True
            except UnicodeDecodeError:
                # Decode the chunk again with an error handler that keeps undecodable bytes. A
                # decoding error doesn't change the decoder's state, so an incomplete character
                # isn't lost.
                is_valid = False
                self.damaged = True
                decoder.errors = _ERROR_HANDLERS.get(self.encoding, "replace")
                text = decoder.decode(data, is_end)
                decoder.errors = "strict"
            if not is_certain:
                self._add_evidence(data, text, is_valid=is_valid)
            if text := text.replace("\0", ""):
                yield text
        self._evidence.end()

    def find_final_encoding(self) -> str:
        """Return the encoding that is detected from the whole file.

        Call the method only after the whole file has been decoded. Raises ``EncodingUnclear``.
        """
        if self._is_named or self._is_certain or not self._evidence.has_cells:
            return self.encoding
        if self.encoding == "utf-8" and self._invalid * 2 <= self._beyond_ascii:
            return self.encoding
        return self._evidence.decide()

    def is_equivalent_to(self, encoding: str) -> bool:
        """Return whether all names would stay the same if the file were decoded with ``encoding``.
        The function ignores e-mail addresses.
        """
        is_repaired = (self.encoding, encoding) == ("utf-8", WINDOWS_1252)
        return encoding == self.encoding or (is_repaired and self._beyond_ascii == self._invalid)

    def _add_evidence(self, data: bytes, text: str, *, is_valid: bool) -> None:
        if self.encoding != "utf-8":
            self._evidence.add_bytes(data)
        elif is_valid:
            # ``_beyond_ascii`` is at least the number of non-ASCII characters, because each of them
            # adds one to three bytes in UTF-8.
            self._beyond_ascii += max(0, len(data) - len(text))
            self._evidence.add_bytes(data if data.isascii() else b"\n")
        else:
            self._beyond_ascii += sum(not character.isascii() for character in text)
            self._invalid += len(_DAMAGE.findall(text))
            self._evidence.add_bytes(data)


def is_damaged(text: str) -> bool:
    return _DAMAGE.search(text) is not None


def repair_text(text: str) -> str:
    return text.translate(_AS_WINDOWS_1252)


def _detect_unicode(head: bytes, named: str | None) -> tuple[str | None, int]:
    for mark, encoding in _BYTE_ORDER_MARKS:
        if head.startswith(mark) and named in (None, encoding):
            return encoding, len(mark)
    if pairs := len(head) // 2:
        even = head[0::2].count(0) / pairs
        odd = head[1::2].count(0) / pairs
        if odd > max(_MIN_ZEROS_OF_UTF16, 2 * even):
            return "utf-16-le", 0
        if even > max(_MIN_ZEROS_OF_UTF16, 2 * odd):
            return "utf-16-be", 0
    text, _ = codecs.utf_8_decode(head, "surrogateescape", False)
    beyond_ascii = sum(not character.isascii() for character in text)
    invalid = len(_DAMAGE.findall(text))
    return (None if invalid * 2 > beyond_ascii else "utf-8"), 0


def _detect_encoding(head: bytes, *, is_complete: bool) -> str:
    evidence = EncodingEvidence()
    evidence.add_bytes(head)
    if is_complete:
        evidence.end()
    try:
        return evidence.decide()
    except EncodingUnclear:
        if is_complete:
            raise
        # Assume Windows-1252 until the whole file has been read, because the rest of the file may
        # reveal the encoding.
        return WINDOWS_1252
