"""Delimiter and header of a file, from the text that it begins with."""

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from services.mailing.imports.mapping import header_words
from services.mailing.imports.reading.lines import split_lines

DELIMITERS = (",", ";", "\t", "|")
SAMPLE_RECORDS = 100
# Some exports have a title or two above the header.
MAX_TITLE_LINES = 10
# Longer ones exist in no file; the longest cells need not be searched.
MAX_ADDRESS_CHARACTERS = 254

_DECLARED = re.compile(r"\ufeff?\"?sep=(.)\"?(?:\r\n?|\n)", re.IGNORECASE)
_ADDRESS = re.compile(r"'?[^\s@,;|<>\"]+@[^\s@,;|<>\"]+\.[^\s@,;|<>\"]+\Z")

NumberedRecords = list[tuple[int, list[str]]]


class Dialect(NamedTuple):
    """``header_line`` is None without a header; records up to ``skip_through`` are no members."""

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
    """``whole``: the text is all of the file, not its beginning."""
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
    """The first records that aren't blank, with their lines."""
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
    """Records that have an address or a known header, then evenness, then width."""
    if not records:
        return 0, 0, 0
    known = any(_has_email_name(cells) for cells in records[:MAX_TITLE_LINES])
    addressed = sum(any(map(looks_like_address, cells)) for cells in records) / len(records)
    width, most = Counter(map(len, records)).most_common(1)[0]
    even = most / len(records) if width > 1 else 0
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
    # A header over several lines is skipped whole: its record begins at this line.
    return Dialect(delimiter, header, line, line, below, find_email_column(below))


def _header_at(records: Sequence[Sequence[str]], mapping: Mapping[str, str]) -> int | None:
    """Where the header is; None where the first record is a member already."""
    for at, cells in enumerate(records[:MAX_TITLE_LINES]):
        if _has_email_name(cells) or any(name in mapping for name in cells if name):
            return at
        if any(map(looks_like_address, cells)):
            # Only what is above addresses, and as wide as they are, can be their header.
            return at - 1 if at and len(records[at - 1]) == len(cells) else None
    return 0 if records else None


def find_email_column(records: Sequence[Sequence[str]]) -> int | None:
    """The column that has addresses in most of its cells."""
    found = Counter(
        index for cells in records for index, cell in enumerate(cells) if looks_like_address(cell)
    )
    if not found:
        return None
    index, count = found.most_common(1)[0]
    return index if count * 2 >= len(records) else None


def _made_up(width: int, email: int | None, records: Sequence[Sequence[str]]) -> list[str]:
    """Names for the columns of a file without a header; the other one of two may be the name."""
    names = [f"column {index + 1}" for index in range(width)]
    if email is None:
        return names
    names[email] = "email"
    others = [index for index in range(width) if index != email]
    if len(others) == 1:
        cells = [record[others[0]] for record in records if others[0] < len(record)]
        if all(map(_may_be_name, cells)):
            names[others[0]] = "name"
    return names


def _may_be_name(cell: str) -> bool:
    return not any(character.isdecimal() or character in "@:/" for character in cell)
