"""Reads the records of a CSV file.

Python's csv module reports neither the line where a record begins nor an unclosed quotation mark.
After a stray quotation mark, the csv module reads all following records as part of one cell. A
record that spans several lines is accepted only if its quotation marks follow RFC 4180. If a record
has a stray quotation mark, the record's first line is rejected, and the following lines are parsed
again.
"""

import csv
from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from services.subscriptions.imports.formats.line_blocks import (
    MAX_LINE_CHARACTERS,
    SKIPPED,
    Block,
    reject_long_line,
    split_lines,
)
from services.subscriptions.imports.rows import RejectedRecord

MAX_RECORD_CHARACTERS = MAX_LINE_CHARACTERS
MAX_RECORD_LINES = 10_000
# After this number of stray quotation marks, lines are no longer parsed twice, so that the parsing
# time stays proportional to the file's size.
MAX_STRAY_QUOTES = 500

# A null character marks the end of the file. The decoder removes null characters, so no line
# contains one.
_END_LINE = "\0"

# Raise the csv module's limit on the size of a cell, because the default is lower than
# ``MAX_RECORD_CHARACTERS``.
csv.field_size_limit(4 * MAX_RECORD_CHARACTERS)

Record = tuple[int, list[str]]


class _LineGroup(NamedTuple):
    first: int
    lines: list[str]


class CsvRecords:
    def __init__(self, blocks: Iterator[Block], delimiter: str) -> None:
        self._blocks = blocks
        self._delimiter = delimiter
        # A stack of line groups that must be parsed again.
        self._unparsed: list[list[str]] = []
        # The lines from the start of the current record to the last line that the csv module has
        # read.
        self._buffer: deque[_LineGroup] = deque()
        # The line number where the current record begins, and the number of the next line for the
        # csv module.
        self._start_line = 1
        self._next_line = 1
        self._stray_quotes = 0
        self._has_ended = False
        self._has_skipped_line = False
        self._is_exhausted = False

    def __iter__(self) -> Iterator[Record | RejectedRecord]:
        while not self._is_exhausted:
            yield from self._read_segment()

    def _read_segment(self) -> Iterator[Record | RejectedRecord]:
        """Yield records until a stray quotation mark, an overlong line or the end of the file."""
        self._next_line = self._start_line
        self._has_ended = False
        self._buffer.clear()
        line_before = self._start_line - 1
        lines = chain.from_iterable(self._feed_lines())
        reader = csv.reader(lines, delimiter=self._delimiter, skipinitialspace=True)
        for cells in reader:
            if self._has_ended:
                break
            start = self._start_line
            after = line_before + reader.line_num + 1
            is_multiline = after > start + 1
            if (
                is_multiline
                and self._stray_quotes < MAX_STRAY_QUOTES
                and self._has_stray_quote(after)
            ):
                yield self._reject_first_line()
                return
            self._start_line = after
            if cells:
                yield start, cells
        if cells != [_END_LINE]:
            if self._stray_quotes < MAX_STRAY_QUOTES:
                yield self._reject_first_line()
                return
            yield self._build_rejection(
                self._start_line, self._get_lines_before(self._start_line + 1)[0]
            )
        self._start_line = self._next_line
        if self._has_skipped_line:
            self._has_skipped_line = False
            yield reject_long_line(self._start_line)
            self._start_line += 1

    def _feed_lines(self) -> Iterator[list[str]]:
        """The last yielded line is ``_END_LINE``. After an unclosed quotation mark, the csv module
        doesn't return ``_END_LINE`` as a separate record.
        """
        while True:
            while self._buffer and self._is_parsed(self._buffer[0]):
                self._buffer.popleft()
            record_lines = self._get_lines_before(self._next_line)
            characters = sum(map(len, record_lines))
            if len(record_lines) > MAX_RECORD_LINES or characters > MAX_RECORD_CHARACTERS:
                break
            if self._unparsed:
                lines = self._unparsed.pop()
            else:
                block = None if self._has_skipped_line else next(self._blocks, None)
                self._has_skipped_line = self._has_skipped_line or block is SKIPPED
                self._is_exhausted = block is None and not self._has_skipped_line
                if not isinstance(block, str):
                    break
                lines = list(split_lines(block))
            self._buffer.append(_LineGroup(self._next_line, lines))
            self._next_line += len(lines)
            yield lines
        self._has_ended = True
        yield [_END_LINE]

    def _is_parsed(self, group: _LineGroup) -> bool:
        return group.first + len(group.lines) <= self._start_line

    def _get_lines_before(self, after: int) -> list[str]:
        record_lines = []
        for first, lines in self._buffer:
            record_lines += lines[max(0, self._start_line - first) : max(0, after - first)]
        return record_lines

    def _has_stray_quote(self, after: int) -> bool:
        lines = self._get_lines_before(after)
        strict = csv.reader(lines, delimiter=self._delimiter, skipinitialspace=True, strict=True)
        try:
            deque(strict, maxlen=0)
        except csv.Error:
            return True
        return False

    def _reject_first_line(self) -> RejectedRecord:
        self._stray_quotes += 1
        first_line, *other_lines = self._get_lines_before(self._next_line)
        line = self._start_line
        self._start_line += 1
        if other_lines:
            self._unparsed.append(other_lines)
        self._is_exhausted = False
        return self._build_rejection(line, first_line)

    def _build_rejection(self, line: int, text: str) -> RejectedRecord:
        (cells,) = csv.reader([text], delimiter=self._delimiter, quoting=csv.QUOTE_NONE)
        reason = "A cell that starts here has no closing quote."
        return RejectedRecord(line, "row.unclosed_quote", reason, cells)
