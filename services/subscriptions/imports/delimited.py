"""Cuts text into blocks of whole lines, and skips lines that are too long."""

import csv
import io
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import chain, groupby
from typing import Final, NamedTuple

from services.subscriptions.imports import columns
from services.subscriptions.imports.columns import RejectedRecord
from services.subscriptions.imports.consent_words import is_exact_word
from services.subscriptions.imports.vocabulary import key

# Far more than any member needs. With its copies, and four bytes a character, a line takes a few
# megabytes. A longer line is skipped while it arrives, and never held.
MAX_LINE_CHARACTERS = 256 * 1024

_LINE_END = re.compile(r"\r\n?|\n")


class SkippedLine(Enum):
    """The mark for one line that was too long."""

    LINE = "line"


SKIPPED: Final = SkippedLine.LINE
Block = str | SkippedLine


def split_lines(block: str) -> Iterable[str]:
    """The physical lines of a block, each with its end. Only CR, LF and CRLF end a line."""
    return io.StringIO(block, newline="")


def blocks(texts: Iterable[str], limit: int = MAX_LINE_CHARACTERS) -> Iterator[Block]:
    """``texts``, cut after ends of lines; ``SKIPPED`` in place of a line longer than ``limit``."""
    # The line that has begun: its text, unless it is too long already, and its length.
    begun: list[str] = []
    characters = 0
    end = ""
    for more in texts:
        # A CR at the end may be the first half of a CRLF, so it waits for the next text.
        text = end + more
        end = "\r" if text.endswith("\r") else ""
        text = text.removesuffix("\r")
        first = _LINE_END.search(text)
        if first and characters > limit:
            yield SKIPPED
            text, characters = text[first.end() :], 0
        cut = max(text.rfind("\n"), text.rfind("\r")) + 1
        if cut:
            yield from _checked("".join(begun) + text[:cut], limit)
            begun, characters = [], 0
        begun.append(text[cut:])
        characters += len(text) - cut
        if characters > limit:
            begun.clear()
    if characters > limit:
        yield SKIPPED
    elif last := "".join(begun) + end:
        yield last


def _checked(whole: str, limit: int) -> Iterator[Block]:
    """``whole``, without lines that are too long, which one large text may contain."""
    if len(whole) <= limit:
        yield whole
        return
    for is_long, group in groupby(
        split_lines(whole), lambda line: len(line.rstrip("\r\n")) > limit
    ):
        lines = list(group)
        if is_long:
            yield from [SKIPPED] * len(lines)
        else:
            yield "".join(lines)


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


def too_long(line: int) -> RejectedRecord:
    reason = f"The line is longer than {MAX_LINE_CHARACTERS:,} characters."
    return RejectedRecord(line, "row.too_long", reason, ())


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


DELIMITERS = (",", ";", "\t", "|")
SAMPLE_RECORDS = 100
# Some exports have one or two titles above the header.
MAX_TITLE_LINES = 10
# No address is longer (RFC 5321), so longer cells need not be searched.
MAX_ADDRESS_CHARACTERS = 254

_DECLARED = re.compile(r"\ufeff?\"?sep=(.)\"?(?:\r\n?|\n)", re.IGNORECASE)
_ADDRESS = re.compile(r"'?[^\s@,;|<>\"]+@[^\s@,;|<>\"]+\.[^\s@,;|<>\"]+\Z")


class Dialect(NamedTuple):
    """The form of the records; ``email`` is the column with addresses in most of its cells.

    ``delimiter`` is ``None`` for JSON Lines, and ``header_line`` without a header. No line up to
    ``skip_through`` is a member.
    """

    delimiter: str | None
    header: list[str]
    sample: list[list[str]]
    email: int | None
    header_line: int | None = None
    skip_through: int = 0


def looks_like_address(cell: str) -> bool:
    return len(cell) <= MAX_ADDRESS_CHARACTERS and _ADDRESS.match(cell.strip()) is not None


def sniff_dialect(
    text: str, *, whole: bool, mapping: Mapping[str, str], filename: str | None
) -> Dialect:
    """The dialect of the file. ``whole``: the text is the whole file, not only its beginning."""
    declared = _DECLARED.match(text)
    preferred = "\t" if (filename or "").lower().endswith((".tsv", ".tab")) else ","
    found = {
        delimiter: _records(text, delimiter, whole=whole)
        for delimiter in ([declared[1]] if declared else DELIMITERS)
    }

    def rank(delimiter: str) -> tuple[float, float, int, bool]:
        """By records with an address or a known header, then by evenness, then by width."""
        records = [*found[delimiter].values()]
        if not records:
            return 0, 0, 0, delimiter == preferred
        known = any(_has_email_name(cells) for cells in records[:MAX_TITLE_LINES])
        addressed = sum(any(map(looks_like_address, cells)) for cells in records) / len(records)
        width, count = Counter(map(len, records)).most_common(1)[0]
        even = count / len(records) if width > 1 else 0
        return known + addressed, even, width, delimiter == preferred

    delimiter = max(found, key=rank)
    skip = 1 if declared else 0
    lines, records = [*found[delimiter]][skip:], [*found[delimiter].values()][skip:]
    at = _header_at(records, mapping)
    if at is None:
        email = find_email_column(records)
        return Dialect(delimiter, _made_up(records, email), records, email, skip_through=skip)
    header, below = records[at], records[at + 1 :]
    # A header of several lines is skipped as a whole, since its record begins at this line.
    return Dialect(delimiter, header, below, find_email_column(below), lines[at], lines[at])


def _records(text: str, delimiter: str, *, whole: bool) -> dict[int, list[str]]:
    """The first records that are not blank, by their lines."""
    reader = csv.reader(iter(split_lines(text)), delimiter=delimiter, skipinitialspace=True)
    found: dict[int, list[str]] = {}
    line = 1
    for cells in reader:
        if any(cell.strip() for cell in cells):
            found[line] = cells
        line = reader.line_num + 1
        if len(found) == SAMPLE_RECORDS:
            return found
    if not whole and len(found) > 1:
        found.popitem()
    return found


def _has_email_name(cells: Sequence[str]) -> bool:
    return any(key(cell) in columns.COLUMNS["email"] for cell in cells)


def _header_at(records: Sequence[Sequence[str]], mapping: Mapping[str, str]) -> int | None:
    """The index of the header; ``None`` when the first record is a member already."""
    for at, cells in enumerate(records[:MAX_TITLE_LINES]):
        if _has_email_name(cells) or any(name in mapping for name in cells if name):
            return at
        if any(map(looks_like_address, cells)):
            # Only the record above an address, with as many cells, can be the header.
            return at - 1 if at and len(records[at - 1]) == len(cells) else None
    return 0 if records else None


def find_email_column(records: Sequence[Sequence[str]]) -> int | None:
    """The column with addresses in most of its cells."""
    found = Counter(
        index for cells in records for index, cell in enumerate(cells) if looks_like_address(cell)
    )
    if not found:
        return None
    index, count = found.most_common(1)[0]
    return index if count * 2 >= len(records) else None


def widened(header: Sequence[str], width: int) -> list[str]:
    """``header``, with names for columns that it lacks."""
    return [*header, *(f"column {index + 1}" for index in range(len(header), width))]


def _made_up(records: Sequence[Sequence[str]], email: int | None) -> list[str]:
    """A header for records without one. A single column beside the addresses may be the name."""
    names = widened((), max(map(len, records), default=0))
    if email is None:
        return names
    names[email] = "email"
    others = [index for index in range(len(names)) if index != email]
    if len(others) == 1:
        cells = [record[others[0]] for record in records if others[0] < len(record)]
        is_status = all(is_exact_word(cell) for cell in cells if cell.strip())
        if not is_status and not any(
            each.isdecimal() or each in "@:/" for cell in cells for each in cell
        ):
            names[others[0]] = "name"
    return names
