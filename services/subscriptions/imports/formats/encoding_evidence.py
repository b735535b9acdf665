"""Collects cells that help to detect the encoding of a file."""

import re

from services.subscriptions.imports.formats.encoding_detection import detect_encoding

# The bytes that end a cell while the file's encoding is still unknown. Content isn't split at bytes
# above 0x3F, because such a byte may be the second byte of an East Asian character. Content isn't
# split at spaces, so that opening and closing quotation marks stay in the same cell.
_CELL_ENDS = bytes((*range(0x20), *b',;"'))
_CELL_END = re.compile(b"[%b]" % re.escape(_CELL_ENDS))
_TO_LINE_ENDS = bytes.maketrans(_CELL_ENDS, b"\n" * len(_CELL_ENDS))
_MAX_CELL_BYTES = 200
# The maximum number of sample cells that are kept per non-ASCII byte value, to save memory. Each
# byte value has a separate limit, because some letters occur only late in a large file.
_MAX_CELLS_PER_BYTE = 40
_MAX_ROWS = 200
_MAX_ROW_BYTES = 400


class EncodingEvidence:
    """A collection of cells with non-ASCII bytes, with a maximum number of cells per byte value."""

    def __init__(self) -> None:
        # The distinct cells that were collected, in the order of the file.
        self._cells: dict[bytes, None] = {}
        # Some rows with non-ASCII bytes, which the owner sees if the encoding is unclear.
        self._rows: list[bytes] = []
        self._counts = dict.fromkeys(range(0x80, 0x100), 0)
        self._incomplete_row = b""
        # Matches the byte values that still occur in too few sample cells. ``None`` means that all
        # byte values have enough sample cells.
        self._pattern = self._needed_bytes()

    @property
    def has_cells(self) -> bool:
        return bool(self._cells)

    def add_bytes(self, data: bytes) -> None:
        if data.isascii() and self._incomplete_row.isascii():
            self._incomplete_row = (self._incomplete_row + data)[-_MAX_CELL_BYTES:]
            return
        text = self._incomplete_row + data
        rows, line_end, self._incomplete_row = text.rpartition(b"\n")
        if not line_end or len(self._incomplete_row) > _MAX_ROW_BYTES:
            rows = text
            self._incomplete_row = b""
        self._collect_cells(rows)

    def end(self) -> None:
        self._collect_cells(self._incomplete_row)
        self._incomplete_row = b""

    def decide(self) -> str:
        return detect_encoding(list(self._cells), self._rows)

    def _collect_cells(self, data: bytes) -> None:
        position = 0
        while self._pattern is not None and (match := self._pattern.search(data, position)):
            cell, position = _cell_around(data, match.start())
            if cell in self._cells:
                continue
            self._cells[cell] = None
            if len(self._rows) < _MAX_ROWS:
                begin = data.rfind(b"\n", 0, match.start()) + 1
                line, _, _ = data[begin : begin + _MAX_ROW_BYTES].partition(b"\n")
                self._rows.append(line.strip())
            for byte in self._counts.keys() & set(cell):
                self._counts[byte] += 1
                if self._counts[byte] == _MAX_CELLS_PER_BYTE:
                    self._pattern = self._needed_bytes()

    def _needed_bytes(self) -> re.Pattern[bytes] | None:
        needed = [byte for byte, count in self._counts.items() if count < _MAX_CELLS_PER_BYTE]
        return re.compile(b"[%b]" % re.escape(bytes(needed))) if needed else None


def _cell_around(data: bytes, position: int) -> tuple[bytes, int]:
    before = data[max(0, position - _MAX_CELL_BYTES) : position].translate(_TO_LINE_ENDS)
    limit = position + _MAX_CELL_BYTES
    match = _CELL_END.search(data, position, limit)
    end = match.start() if match else min(len(data), limit)
    begin = position - len(before) + before.rfind(b"\n") + 1
    return data[begin:end].strip(), end
