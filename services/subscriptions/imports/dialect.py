"""Detects the dialect of a file: its delimiter, its header, its column of addresses."""

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from services.subscriptions.imports.column_vocabulary import COLUMNS
from services.subscriptions.imports.consent_words import is_exact_word
from services.subscriptions.imports.known_words import key
from services.subscriptions.imports.line_blocks import split_lines

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
    return any(key(cell) in COLUMNS["email"] for cell in cells)


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
