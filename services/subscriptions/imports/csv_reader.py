"""Reads the records of a CSV file."""

import csv
from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from services.subscriptions.imports.line_blocks import (
    MAX_LINE_CHARACTERS,
    SKIPPED,
    Block,
    split_lines,
    too_long,
)
from services.subscriptions.imports.rows import RejectedRecord

# The csv module tells neither where a record began nor whether a quote was ever closed, and after
# one stray quote it reads the following records as part of a cell. A record of several lines is
# accepted only if its quotes are where RFC 4180 puts them. Otherwise its first line is rejected,
# and the lines after it are read again.

MAX_RECORD_CHARACTERS = MAX_LINE_CHARACTERS

MAX_RECORD_LINES = 10_000

# Each stray quote costs a second read of as much text as one record may have. Beyond this number,
# the reader continues after the swallowed lines, so its time stays in proportion to the file.
MAX_STRAY_QUOTES = 500

# A line that no file has, since the decoder removes zeros.
_END = "\0"

# The csv module has one limit for the whole process; its default is below the bounds above.
csv.field_size_limit(4 * MAX_RECORD_CHARACTERS)

Record = tuple[int, list[str]]


class _Held(NamedTuple):
    """Lines that the csv module has read and that may be needed again."""

    first: int
    lines: list[str]


class DelimitedRecords:
    """Records, each with the physical line where it begins, and rejected records."""

    def __init__(self, blocks: Iterator[Block], delimiter: str) -> None:
        self._blocks = blocks
        self._delimiter = delimiter
        self._again: list[list[str]] = []
        self._held: deque[_Held] = deque()
        self._start = 1
        self._next = 1
        self._rescues = 0
        self._ended = self._skipped = self._exhausted = False

    def __iter__(self) -> Iterator[Record | RejectedRecord]:
        while not self._exhausted:
            yield from self._segment()

    def _segment(self) -> Iterator[Record | RejectedRecord]:
        """The records up to the end of the file, a line that is too long, or a stray quote."""
        self._next = self._start
        self._ended = False
        self._held.clear()
        before = self._start - 1
        lines = chain.from_iterable(self._feed())
        reader = csv.reader(lines, delimiter=self._delimiter, skipinitialspace=True)
        for cells in reader:
            if self._ended:
                break
            start, after = self._start, before + reader.line_num + 1
            may_rescue = after > start + 1 and self._rescues < MAX_STRAY_QUOTES
            if may_rescue and self._has_stray_quote(after):
                yield self._rescue()
                return
            self._start = after
            if cells:
                yield start, cells
        if cells != [_END]:
            if self._rescues < MAX_STRAY_QUOTES:
                yield self._rescue()
                return
            yield self._unclosed(self._start, self._lines(self._start + 1)[0])
        self._start = self._next
        if self._skipped:
            self._skipped = False
            yield too_long(self._start)
            self._start += 1

    def _feed(self) -> Iterator[list[str]]:
        """Lines for the csv module. The last one, ``_END``, shows whether a quote is still open."""
        while True:
            while self._held and self._held[0].first + len(self._held[0].lines) <= self._start:
                self._held.popleft()
            held = self._lines(self._next)
            if len(held) > MAX_RECORD_LINES or sum(map(len, held)) > MAX_RECORD_CHARACTERS:
                break
            if self._again:
                lines = self._again.pop()
            else:
                block = None if self._skipped else next(self._blocks, None)
                self._skipped = self._skipped or block is SKIPPED
                self._exhausted = block is None and not self._skipped
                if not isinstance(block, str):
                    break
                lines = list(split_lines(block))
            self._held.append(_Held(self._next, lines))
            self._next += len(lines)
            yield lines
        self._ended = True
        yield [_END]

    def _lines(self, after: int) -> list[str]:
        """The current record's lines before line ``after``."""
        found = []
        for first, lines in self._held:
            found += lines[max(0, self._start - first) : max(0, after - first)]
        return found

    def _has_stray_quote(self, after: int) -> bool:
        lines = self._lines(after)
        strict = csv.reader(lines, delimiter=self._delimiter, skipinitialspace=True, strict=True)
        try:
            deque(strict, maxlen=0)
        except csv.Error:
            return True
        return False

    def _rescue(self) -> RejectedRecord:
        """Reject the first line of the current record; the lines after it are read again."""
        self._rescues += 1
        first, *rest = self._lines(self._next)
        line = self._start
        self._start += 1
        if rest:
            self._again.append(rest)
        self._exhausted = False
        return self._unclosed(line, first)

    def _unclosed(self, line: int, first: str) -> RejectedRecord:
        (cells,) = csv.reader([first], delimiter=self._delimiter, quoting=csv.QUOTE_NONE)
        reason = "A quote that opens here is not closed where its cell ends."
        return RejectedRecord(line, "row.unclosed_quote", reason, cells)
