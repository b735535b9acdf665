"""Detects the dialect of a file, which is its delimiter, its header and its address column."""

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from services.subscriptions.imports.columns.column_vocabulary import COLUMNS
from services.subscriptions.imports.columns.consent_words import is_exact_word
from services.subscriptions.imports.columns.known_words import normalise_word
from services.subscriptions.imports.formats.line_blocks import split_lines

DELIMITERS = (",", ";", "\t", "|")
SAMPLE_RECORDS = 100
# The header may be any of the first ``MAX_TITLE_LINES`` records, because some exports have titles
# above the header.
MAX_TITLE_LINES = 10
# The maximum length of an e-mail address (RFC 5321).
MAX_ADDRESS_CHARACTERS = 254

# Matches a first line such as ``sep=;``, which tells Excel the delimiter.
_DECLARATION = re.compile(r"\ufeff?\"?sep=(.)\"?(?:\r\n?|\n)", re.IGNORECASE)
_ADDRESS = re.compile(r"'?[^\s@,;|<>\"]+@[^\s@,;|<>\"]+\.[^\s@,;|<>\"]+\Z")

Record = Sequence[str]


class Dialect(NamedTuple):
    """The dialect of a file, and a sample of the file's records.

    Attributes:
        email: the index of a column with addresses in at least half of its cells, or ``None``.
        header_line: the line number of the header, or ``None`` if there is no header.
        skip_through: the number of the last line before the rows of the file, such as the header's
            line.
    """

    delimiter: str | None
    header: list[str]
    sample: list[list[str]]
    email: int | None
    header_line: int | None = None
    skip_through: int = 0


def detect_csv_dialect(
    text: str, *, is_complete: bool, mapping: Mapping[str, str], filename: str | None
) -> Dialect:
    """Detect the dialect of a CSV file.

    ``text`` is the whole file, or its beginning if ``is_complete`` is false.
    """
    declaration = _DECLARATION.match(text)
    usual_delimiter = "\t" if (filename or "").lower().endswith((".tsv", ".tab")) else ","
    # Maps each possible delimiter to the first records of the text, split at this delimiter.
    candidates = {
        delimiter: _parse_sample(text, delimiter, is_complete=is_complete)
        for delimiter in ([declaration[1]] if declaration else DELIMITERS)
    }
    delimiter = max(
        candidates,
        key=lambda each: (*_rank_records([*candidates[each].values()]), each == usual_delimiter),
    )
    declaration_lines = 1 if declaration else 0
    records = dict(islice(candidates[delimiter].items(), declaration_lines, None))
    dialect = detect_table_dialect(records, mapping)
    skip_through = max(dialect.skip_through, declaration_lines)
    return dialect._replace(delimiter=delimiter, skip_through=skip_through)


def detect_table_dialect(records: Mapping[int, list[str]], mapping: Mapping[str, str]) -> Dialect:
    """Detect the header and the address column of a table.

    ``records`` contains the first non-blank records by line number.
    """
    lines = [*records]
    sample = [*records.values()]
    position = _find_header(sample, mapping)
    if position is None:
        email = find_email_column(sample)
        return Dialect(None, _build_default_header(sample, email), sample, email)
    header = sample[position]
    sample = sample[position + 1 :]
    # ``lines`` contains the number of each record's first line.
    line = lines[position]
    return Dialect(None, header, sample, find_email_column(sample), line, line)


def find_email_column(records: Sequence[Record]) -> int | None:
    addresses = Counter(
        index for cells in records for index, cell in enumerate(cells) if _is_like_address(cell)
    )
    if not addresses:
        return None
    index, count = addresses.most_common(1)[0]
    return index if count * 2 >= len(records) else None


def extend_header(header: Sequence[str], width: int) -> list[str]:
    """Extend a header to ``width`` columns with names such as "column 3"."""
    return [*header, *(f"column {index + 1}" for index in range(len(header), width))]


def _parse_sample(text: str, delimiter: str, *, is_complete: bool) -> dict[int, list[str]]:
    reader = csv.reader(iter(split_lines(text)), delimiter=delimiter, skipinitialspace=True)
    records: dict[int, list[str]] = {}
    line = 1
    for cells in reader:
        if any(cell.strip() for cell in cells):
            records[line] = cells
        line = reader.line_num + 1
        if len(records) == SAMPLE_RECORDS:
            return records
    if not is_complete and len(records) > 1:
        # Remove the last record of an incomplete text, because the record may be cut off.
        records.popitem()
    return records


def _rank_records(records: Sequence[Record]) -> tuple[float, float, int]:
    """The rank of a delimiter depends on how many addresses and known headers it separates. If two
    delimiters tie, the one with the larger share of equally long records wins. If the shares of two
    delimiters are equal, the delimiter with longer records wins.
    """
    if not records:
        return 0, 0, 0
    has_known_header = any(_has_email_header(cells) for cells in records[:MAX_TITLE_LINES])
    with_address = sum(any(map(_is_like_address, cells)) for cells in records) / len(records)
    width, count = Counter(map(len, records)).most_common(1)[0]
    evenness = count / len(records) if width > 1 else 0
    return has_known_header + with_address, evenness, width


def _find_header(records: Sequence[Record], mapping: Mapping[str, str]) -> int | None:
    for position, cells in enumerate(records[:MAX_TITLE_LINES]):
        if _has_email_header(cells) or any(name in mapping for name in cells if name):
            return position
        if any(map(_is_like_address, cells)):
            # The record before the first record with an address is the header if the two records
            # have the same number of cells.
            has_header = position and len(records[position - 1]) == len(cells)
            return position - 1 if has_header else None
    return 0 if records else None


def _has_email_header(cells: Record) -> bool:
    return any(normalise_word(cell) in COLUMNS["email"] for cell in cells)


def _is_like_address(cell: str) -> bool:
    return len(cell) <= MAX_ADDRESS_CHARACTERS and _ADDRESS.match(cell.strip()) is not None


def _build_default_header(records: Sequence[Record], email: int | None) -> list[str]:
    """Invent column names for a file without a header.

    If a file has only one column besides the addresses, and its cells are probably names, this
    column is called ``name``.
    """
    header = extend_header((), max(map(len, records), default=0))
    if email is None:
        return header
    header[email] = "email"
    other_columns = [index for index in range(len(header)) if index != email]
    if len(other_columns) == 1:
        cells = [record[other_columns[0]] for record in records if other_columns[0] < len(record)]
        is_status = all(is_exact_word(cell) for cell in cells if cell.strip())
        has_other_characters = any(
            character.isdecimal() or character in "@:/" for cell in cells for character in cell
        )
        if not is_status and not has_other_characters:
            header[other_columns[0]] = "name"
    return header
