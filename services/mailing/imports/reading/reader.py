"""Reads a file of members row by row, in one pass and in bounded memory.

File → container → encoding → lines → records → members: each step pulls from the step before it and
holds a bounded piece. A record that can't be read becomes a ``RejectedRecord`` with its line. When
the file as a whole can't be read, a ``DomainError`` with a code ``import.…`` is raised.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from core.refusals.imports import IMPORT_EMPTY, IMPORT_JSON_ARRAY
from services.mailing.imports.decoding import DecodedText, repair_text
from services.mailing.imports.mapping.columns import ColumnLayout, detect_layout, no_email_column
from services.mailing.imports.mapping.row_mapper import BLANKS, RowMapper
from services.mailing.imports.mapping.rows import FileDescription, MemberRow, RejectedRecord
from services.mailing.imports.reading import jsonlines
from services.mailing.imports.reading.containers import open_container
from services.mailing.imports.reading.delimited import DelimitedRecords, Record
from services.mailing.imports.reading.dialect import Dialect, find_email_column, sniff_dialect
from services.mailing.imports.reading.lines import Block, blocks
from services.mailing.imports.reading.sources import CountedSource, Source

# The bytes from which encoding, delimiter and header are recognised.
HEAD_BYTES = 64 * 1024

_OBJECT = re.compile(r'\{[ \t]*["}]')
_ARRAY = re.compile(r"\[\s*[{\]]")
_SPREAD_OBJECT = re.compile(r"\{[ \t]*[\r\n]")


@dataclass(frozen=True)
class MemberReader:
    """Rows and rejected records in the order of the file. Can be iterated once."""

    source: CountedSource
    rows: Iterator[MemberRow | RejectedRecord]
    header: list[str]
    description: FileDescription

    def __iter__(self) -> Iterator[MemberRow | RejectedRecord]:
        return self.rows

    @property
    def bytes_read(self) -> int:
        """The number of bytes of the uploaded file that have been read so far."""
        return self.source.taken


def open_rows(
    source: Source, filename: str | None = None, mapping: Mapping[str, str] | None = None
) -> MemberReader:
    """Recognise the form of the file, and begin to read it.

    ``source`` needs ``seek`` and ``tell`` for a zip (see ``RangedFile``), otherwise only ``read``.
    ``mapping`` names columns, or their indexes from 0, and the role of each: email, name,
    first_name, last_name, tier, paid_expiry, status or ignore. It wins over the header.

    Raises ``import.empty``, ``import.no_email_column``, ``import.unknown_format``,
    ``import.mapping_column``, ``import.mapping_role``, ``import.json_array`` and, here or while
    rows are read, ``import.archive_many_files``, ``import.archive_encrypted``,
    ``import.expands_too_much``, ``import.truncated`` and ``import.damaged``.
    """
    counted = CountedSource(source)
    container, chunks = open_container(counted)
    text = DecodedText(chunks, HEAD_BYTES)
    unread = blocks(text)
    head, whole = _head(unread)
    sample = repair_text("".join(block for block in head if isinstance(block, str)))
    everything = chain(head, unread)
    if _is_json(sample):
        form = _json_form(sample, everything, text, mapping or {})
    else:
        dialect = sniff_dialect(sample, whole=whole, mapping=mapping or {}, filename=filename)
        form = _delimited_form(dialect, everything, text, mapping or {})
    description = FileDescription(
        container=container,
        format="csv" if form.delimiter else "jsonl",
        encoding=text.encoding,
        delimiter=form.delimiter,
        header_line=form.header_line,
        product=form.layout.product,
        columns=form.layout.described(),
    )
    return MemberReader(counted, form.rows, [*form.layout.header], description)


class _Form(NamedTuple):
    layout: ColumnLayout
    rows: Iterator[MemberRow | RejectedRecord]
    delimiter: str | None = None
    header_line: int | None = None


def _head(unread: Iterator[Block]) -> tuple[list[Block], bool]:
    """The first blocks, and whether they are the whole file. Raises ``import.empty``."""
    head: list[Block] = []
    characters = 0
    for block in unread:
        head.append(block)
        characters += len(block) if isinstance(block, str) else 0
        if characters >= HEAD_BYTES // 4:
            return head, False
    if not any(not isinstance(block, str) or block.strip(BLANKS) for block in head):
        raise IMPORT_EMPTY()
    return head, True


def _is_json(sample: str) -> bool:
    text = sample.lstrip(BLANKS)
    if _ARRAY.match(text) or _SPREAD_OBJECT.match(text):
        raise IMPORT_JSON_ARRAY()
    return _OBJECT.match(text) is not None


def _layout(
    header: list[str], mapping: Mapping[str, str], sample: list[list[str]], email: int | None
) -> tuple[ColumnLayout, int]:
    """The layout, and the column of addresses: by the mapping, by name, or by its cells."""
    layout = detect_layout(header, mapping, sample)
    if layout.email is None:
        layout.email = email
    if layout.email is None:
        raise no_email_column(header)
    return layout, layout.email


def _delimited_form(
    dialect: Dialect, everything: Iterator[Block], text: DecodedText, mapping: Mapping[str, str]
) -> _Form:
    layout, email = _layout(dialect.header, mapping, dialect.sample, dialect.email)
    records = DelimitedRecords(everything, dialect.delimiter)
    rows = _delimited_rows(records, RowMapper(layout, email), text, dialect.skip_through)
    return _Form(layout, rows, dialect.delimiter, dialect.header_line)


def _delimited_rows(
    records: Iterable[Record | RejectedRecord],
    mapper: RowMapper,
    text: DecodedText,
    skip_through: int,
) -> Iterator[MemberRow | RejectedRecord]:
    for record in records:
        if record[0] <= skip_through:
            continue
        if isinstance(record, RejectedRecord):
            yield _repaired(record, text)
            continue
        row = mapper.make(*record, damaged=text.damaged)
        if row is not None:
            yield row


def _repaired(record: RejectedRecord, text: DecodedText) -> RejectedRecord:
    """The record with cells that can be encoded again: a lone surrogate can't."""
    if not text.damaged:
        return record
    return record._replace(cells=[repair_text(cell) for cell in record.cells])


def _json_form(
    sample: str, everything: Iterator[Block], text: DecodedText, mapping: Mapping[str, str]
) -> _Form:
    found = [one[1] for one in jsonlines.objects([sample]) if not isinstance(one, RejectedRecord)]
    header = jsonlines.header(found)
    cells = [jsonlines.cells(values, header) for values in found]
    layout, _ = _layout(header, mapping, cells, find_email_column(cells))
    return _Form(layout, _json_rows(jsonlines.objects(everything), layout, text, mapping))


def _json_rows(
    objects: Iterable[tuple[int, jsonlines.Values] | RejectedRecord],
    layout: ColumnLayout,
    text: DecodedText,
    mapping: Mapping[str, str],
) -> Iterator[MemberRow | RejectedRecord]:
    """The rows. Keys that come later, such as the time when a person left, are columns as well."""
    names = [*layout.header]
    known = set(names)
    mapper = RowMapper(layout, layout.email or 0)
    for found in objects:
        if isinstance(found, RejectedRecord):
            yield _repaired(found, text)
            continue
        line, values = found
        if not values.keys() <= known:
            grown = jsonlines.header([dict.fromkeys(names, ""), values])
            if len(grown) > len(names):
                names, known = grown, set(grown)
                grown_layout = replace(detect_layout(names, mapping), email=layout.email)
                mapper = RowMapper(grown_layout, layout.email or 0)
        row = mapper.make(line, jsonlines.cells(values, names))
        if row is not None:
            yield row
