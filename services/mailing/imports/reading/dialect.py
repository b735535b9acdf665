"""Detects the delimiter and the header of a file from the beginning of its text."""

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from services.mailing.imports.mapping import header_words
from services.mailing.imports.reading.lines import split_lines

DELIMITERS = (",", ";", "\t", "|")
SAMPLE_RECORDS = 100
# Some exports have one or two titles above the header.
MAX_TITLE_LINES = 10
# No address is longer (RFC 5321), so longer cells need not be searched.
MAX_ADDRESS_CHARACTERS = 254

_DECLARED = re.compile(r"\ufeff?\"?sep=(.)\"?(?:\r\n?|\n)", re.IGNORECASE)
_ADDRESS = re.compile(r"'?[^\s@,;|<>\"]+@[^\s@,;|<>\"]+\.[^\s@,;|<>\"]+\Z")

NumberedRecords = list[tuple[int, list[str]]]


class Dialect(NamedTuple):
    """``header_line`` is ``None`` without a header; no line up to ``skip_through`` is a member."""

    delimiter: str
    header: list[str]
    header_line: int | None
    skip_through: int
    sample: list[list[str]]
    email: int | None


def looks_like_address(cell: str) -> bool:
    return len(cell) <= MAX_ADDRESS_CHARACTERS and _ADDRESS.match(cell.strip()) is not None


def sniff_dialect(
    text: str, *, whole: bool, mapping: Mapping[str, str], filename: str | None
) -> Dialect:
    """The dialect of the file. ``whole``: the text is the whole file, not only its beginning."""
    declared = _DECLARED.match(text)
    if declared:
        found = _records(text, declared[1], whole=whole)[1:]
        return _with_header(declared[1], found, mapping, skip=1)
    preferred = "\t" if (filename or "").lower().endswith((".tsv", ".tab")) else ","
    ranked = []
    for delimiter in DELIMITERS:
        records = _records(text, delimiter, whole=whole)
        score = (*_score([cells for _, cells in records]), delimiter == preferred)
        ranked.append((score, delimiter, records))
    _, delimiter, records = max(ranked, key=lambda one: one[0])
    return _with_header(delimiter, records, mapping, skip=0)


def _records(text: str, delimiter: str, *, whole: bool) -> NumberedRecords:
    """The first records that are not blank, each with its line."""
    reader = csv.reader(iter(split_lines(text)), delimiter=delimiter, skipinitialspace=True)
    found: NumberedRecords = []
    line = 1
    for cells in reader:
        if any(cell.strip() for cell in cells):
            found.append((line, cells))
        line = reader.line_num + 1
        if len(found) == SAMPLE_RECORDS:
            return found
    return found if whole or len(found) == 1 else found[:-1]


def _score(records: Sequence[Sequence[str]]) -> tuple[float, float, int]:
    """Rank by records with an address or a known header, then by evenness, then by width."""
    if not records:
        return 0, 0, 0
    known = any(_has_email_name(cells) for cells in records[:MAX_TITLE_LINES])
    addressed = sum(any(map(looks_like_address, cells)) for cells in records) / len(records)
    width, count = Counter(map(len, records)).most_common(1)[0]
    even = count / len(records) if width > 1 else 0
    return known + addressed, even, width


def _has_email_name(cells: Sequence[str]) -> bool:
    return any(header_words.key(cell) in header_words.EMAIL for cell in cells)


def _with_header(
    delimiter: str, records: NumberedRecords, mapping: Mapping[str, str], *, skip: int
) -> Dialect:
    all_cells = [cells for _, cells in records]
    at = _header_at(all_cells, mapping)
    if at is None:
        width = max(map(len, all_cells), default=0)
        email = find_email_column(all_cells)
        header = _made_up(width, email, all_cells)
        return Dialect(delimiter, header, None, skip, all_cells, email)
    line, header = records[at]
    below = all_cells[at + 1 :]
    # A header of several lines is skipped as a whole, since its record begins at this line.
    return Dialect(delimiter, header, line, line, below, find_email_column(below))


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


def _made_up(width: int, email: int | None, records: Sequence[Sequence[str]]) -> list[str]:
    """Names for columns without a header. Of two columns, the one beside the addresses may be
    the name.
    """
    names = [f"column {index + 1}" for index in range(width)]
    if email is None:
        return names
    names[email] = "email"
    others = [index for index in range(width) if index != email]
    if len(others) == 1:
        cells = [record[others[0]] for record in records if others[0] < len(record)]
        if not any(each.isdecimal() or each in "@:/" for cell in cells for each in cell):
            names[others[0]] = "name"
    return names
