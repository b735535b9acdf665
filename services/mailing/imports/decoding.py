"""Decodes the bytes of a file of unknown encoding.

A byte-order mark decides. Without one, many zeros on one side of the byte pairs mean UTF-16.
Otherwise the file is UTF-8, unless most of the characters beyond ASCII at its beginning are not
valid UTF-8: then it is Windows-1252, which includes Latin-1.

Invalid bytes may come later in a UTF-8 file: two files were joined, or a cell was cut inside a
character. Each such byte stays in the text as a lone surrogate until ``repair_text`` reads it as
Windows-1252. So a name loses at most a letter, the rest of its record loses nothing, and code that
needs an exact address can recognise the damage.
"""

import codecs
import re
from collections.abc import Iterable, Iterator
from itertools import chain

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_WINDOWS = "cp1252"
# The least share of zeros on one side of the byte pairs: a few stray zeros are not UTF-16. Scripts
# whose letters end in a zero byte put some zeros on the other side too.
_ZEROS_OF_UTF16 = 0.2

# Neither blanks nor what a tool uses as a separator or as the end of a file.
_CONTROL = re.compile("[\0-\x08\x0e-\x19\x7f]")

_DAMAGE = re.compile("[\udc80-\udcff\ufffd]")
_AS_WINDOWS = {
    0xDC00 + byte: bytes([byte]).decode(_WINDOWS, "ignore") for byte in range(0x80, 0x100)
}


def is_damaged(text: str) -> bool:
    return _DAMAGE.search(text) is not None


def repair_text(text: str) -> str:
    """``text``, with each undecodable byte read as Windows-1252."""
    return text.translate(_AS_WINDOWS)


class DecodedText:
    """The text of ``chunks``, without zeros. ``damaged`` is set once a chunk had invalid bytes.

    ``is_binary``: the first line has characters that no line of a table has, zeros too.
    """

    def __init__(self, chunks: Iterable[bytes], head_bytes: int) -> None:
        self._chunks = iter(chunks)
        self.damaged = False
        head = b""
        while len(head) < head_bytes and (more := next(self._chunks, b"")):
            head += more
        self.encoding, mark = _detect_encoding(head)
        first_line = head[mark:].decode(self.encoding, "replace").lstrip().partition("\n")[0]
        self.is_binary = _CONTROL.search(first_line) is not None
        self._chunks = chain([head[mark:]], self._chunks)

    def __iter__(self) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder(self.encoding)()
        for chunk in chain(self._chunks, [None]):
            data, is_end = chunk or b"", chunk is None
            try:
                text = decoder.decode(data, is_end)
            except UnicodeDecodeError:
                # The bytes that the decoder kept from the chunk before are still there.
                self.damaged = True
                decoder.errors = _LENIENT.get(self.encoding, "replace")
                text = decoder.decode(data, is_end)
                decoder.errors = "strict"
            if text := text.replace("\0", ""):
                yield text


_LENIENT = {"utf-8": "surrogateescape", _WINDOWS: "surrogateescape"}


def _detect_encoding(head: bytes) -> tuple[str, int]:
    """The encoding, and the number of bytes of its byte-order mark."""
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding, len(mark)
    if pairs := len(head) // 2:
        even, odd = head[0::2].count(0) / pairs, head[1::2].count(0) / pairs
        if odd > max(_ZEROS_OF_UTF16, 2 * even):
            return "utf-16-le", 0
        if even > max(_ZEROS_OF_UTF16, 2 * odd):
            return "utf-16-be", 0
    text, _ = codecs.utf_8_decode(head, "surrogateescape", False)
    beyond_ascii = sum(character > "\x7f" for character in text)
    invalid = len(_DAMAGE.findall(text))
    return _WINDOWS if invalid * 2 > beyond_ascii else "utf-8", 0
