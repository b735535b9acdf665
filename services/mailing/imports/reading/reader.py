"""Reads a file of members row by row, in one pass and in bounded memory.

File → container → encoding → lines → records → members: each step pulls from the step before it and
holds a bounded piece. A record that can't be read becomes a ``RejectedRecord`` with its line. When
the file as a whole can't be read, a ``DomainError`` with a code ``import.…`` is raised.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from core.refusals.imports import IMPORT_EMPTY, IMPORT_NO_EMAIL_COLUMN
from services.mailing.imports.decoding import DecodedText, repair_text
from services.mailing.imports.mapping.columns import ColumnLayout, columns_shown, detect_layout
from services.mailing.imports.mapping.row_mapper import BLANKS, RowMapper
from services.mailing.imports.mapping.rows import FileDescription, MemberRow, RejectedRecord
from services.mailing.imports.reading import jsonlines
from services.mailing.imports.reading.containers import open_container
from services.mailing.imports.reading.delimited import DelimitedRecords
from services.mailing.imports.reading.dialect import Dialect, sniff_dialect, widened
from services.mailing.imports.reading.lines import Block, blocks
from services.mailing.imports.reading.sources import Source

Outcome = MemberRow | RejectedRecord | None

# The bytes from which encoding, delimiter and header are recognised.
HEAD_BYTES = 64 * 1024


@dataclass(frozen=True)
class MemberReader:
    """Rows and rejected records in the order of the file. Can be iterated once."""

    rows: Iterator[MemberRow | RejectedRecord]
    header: list[str]
    description: FileDescription

    def __iter__(self) -> Iterator[MemberRow | RejectedRecord]:
        return self.rows


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
    mapping = mapping or {}
    container, chunks = open_container(source)
    text = DecodedText(chunks, HEAD_BYTES)
    unread = blocks(text)
    head, whole = _head(unread)
    sample = repair_text("".join(block for block in head if isinstance(block, str)))
    everything = chain(head, unread)
    dialect = jsonlines.sniff(sample) or sniff_dialect(
        sample, whole=whole, mapping=mapping, filename=filename
    )
    layout, email = _layout(dialect, mapping)
    if dialect.delimiter is None:
        rows = _json_rows(everything, layout, email, mapping)
    else:
        records = DelimitedRecords(everything, dialect.delimiter)
        rows = _delimited_rows(records, RowMapper(layout, email), text, dialect.skip_through)
    description = FileDescription(
        container=container,
        format="csv" if dialect.delimiter else "jsonl",
        encoding=text.encoding,
        delimiter=dialect.delimiter,
        header_line=dialect.header_line,
        product=layout.product,
        columns=layout.described(),
    )
    return MemberReader(_encodable(rows, text), [*layout.header], description)


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


def _layout(dialect: Dialect, mapping: Mapping[str, str]) -> tuple[ColumnLayout, int]:
    """The layout, and the column of addresses: by the mapping, by name, or by its cells."""
    layout = detect_layout(dialect.header, mapping, dialect.sample)
    if layout.email is None:
        if dialect.email is None:
            raise IMPORT_NO_EMAIL_COLUMN(columns=columns_shown(dialect.header))
        layout.email = dialect.email
        # The records may have more columns than the header, and the addresses beyond it.
        layout.header = widened(dialect.header, dialect.email + 1)
    return layout, layout.email


def _delimited_rows(
    records: DelimitedRecords, mapper: RowMapper, text: DecodedText, skip_through: int
) -> Iterator[Outcome]:
    for record in records:
        if record[0] <= skip_through:
            continue
        if isinstance(record, RejectedRecord):
            yield record
        else:
            yield mapper.make(*record, damaged=text.damaged)


def _json_rows(
    everything: Iterable[Block], layout: ColumnLayout, email: int, mapping: Mapping[str, str]
) -> Iterator[Outcome]:
    """The rows. Keys that come later, such as the time when a person left, are columns as well."""
    names = [*layout.header]
    known = set(names)
    mapper = RowMapper(layout, email)
    for found in jsonlines.objects(everything):
        if isinstance(found, RejectedRecord):
            yield found
            continue
        line, values = found
        if not values.keys() <= known:
            grown = jsonlines.header([dict.fromkeys(names, ""), values])
            if len(grown) > len(names):
                names, known = grown, set(grown)
                mapper = RowMapper(replace(detect_layout(names, mapping), email=email), email)
        yield mapper.make(line, jsonlines.cells(values, names))


def _encodable(rows: Iterable[Outcome], text: DecodedText) -> Iterator[MemberRow | RejectedRecord]:
    """``rows`` without blank ones, their cells free of lone surrogates, which can't be encoded."""
    for row in rows:
        if isinstance(row, RejectedRecord) and text.damaged:
            yield row._replace(cells=[repair_text(cell) for cell in row.cells])
        elif row is not None:
            yield row
