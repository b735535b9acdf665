"""Reads a file of members row by row, in one pass and in bounded memory.

File → container → encoding → lines → records → members: each step pulls from the step before it and
holds a bounded piece. A record that can't be read becomes a ``RejectedRecord`` with its line. When
the file as a whole can't be read, a ``DomainError`` with a code ``import.…`` is raised.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from core.refusals.imports import IMPORT_EMPTY, IMPORT_NO_EMAIL_COLUMN, IMPORT_UNKNOWN_FORMAT
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
# Given a layout and some records of the file before its rows are read, says which of its columns
# hold fields; called again when later records have more columns, without records.
FindFields = Callable[[ColumnLayout, Sequence[Sequence[str]]], None]
# Given the names of the columns and some records, before it is known what the columns are.
NoteHeader = Callable[[Sequence[str], Sequence[Sequence[str]]], None]

# The bytes from which encoding, delimiter and header are recognised.
HEAD_BYTES = 64 * 1024


@dataclass(frozen=True)
class MemberReader:
    """Rows and rejected records in the order of the file. Can be iterated once.

    ``sample`` has some of the file's records, with the columns of ``header``.
    """

    outcomes: Iterator[Outcome]
    text: DecodedText
    header: list[str]
    sample: Sequence[Sequence[str]]
    description: FileDescription

    def __iter__(self) -> Iterator[MemberRow | RejectedRecord]:
        for one in self.outcomes:
            if isinstance(one, RejectedRecord) and self.text.damaged:
                # A lone surrogate can't be encoded again.
                yield one._replace(cells=[repair_text(cell) for cell in one.cells])
            elif one is not None:
                yield one


def _find_none(_: ColumnLayout, __: Sequence[Sequence[str]]) -> None:
    """No column holds a field."""


def pass_over(_: Sequence[str], __: Sequence[Sequence[str]]) -> None:
    """Nobody needs the header of a file that is refused."""


def open_rows(
    source: Source,
    filename: str | None = None,
    mapping: Mapping[str, str] | None = None,
    find_fields: FindFields = _find_none,
    note_header: NoteHeader = pass_over,
) -> MemberReader:
    """Recognise the form of the file, and begin to read it.

    ``source`` needs ``seek`` and ``tell`` for a zip (see ``RangedFile``), otherwise only ``read``.
    ``mapping`` names columns, or their indexes from 0, and the role of each: one of
    ``columns.ROLES``, or a field. It wins over the header.

    Raises ``import.empty``, ``import.no_email_column``, ``import.unknown_format``,
    ``import.mapping_column``, ``import.mapping_role``, ``import.json_array``,
    ``import.no_readable_row``, what ``find_fields`` raises and, here or while rows are read,
    ``import.archive_many_files``, ``import.archive_encrypted``, ``import.expands_too_much``,
    ``import.truncated`` and ``import.damaged``.
    """
    container, chunks = open_container(source)
    text = DecodedText(chunks, HEAD_BYTES)
    sample, whole, everything = _head(blocks(text))
    dialect = jsonlines.sniff(sample) or sniff_dialect(
        sample, whole=whole, mapping=mapping or {}, filename=filename
    )
    if text.is_binary and dialect.delimiter and dialect.email is None:
        # Its bytes are no names of columns.
        raise IMPORT_UNKNOWN_FORMAT(what="a binary file, not a table")
    note_header(dialect.header, dialect.sample)
    layout, email = _layout(dialect, mapping)
    find_fields(layout, dialect.sample)
    if dialect.delimiter is None:
        rows = _json_rows(everything, layout, email, partial(_grown, dialect, mapping, find_fields))
    else:
        rows = _delimited_rows(everything, text, dialect, RowMapper(layout, email))
    description = _described(container, text, dialect, layout)
    return MemberReader(rows, text, [*layout.header], dialect.sample, description)


def _described(
    container: str, text: DecodedText, dialect: Dialect, layout: ColumnLayout
) -> FileDescription:
    return FileDescription(
        container=container,
        format="csv" if dialect.delimiter else "jsonl",
        encoding=text.encoding,
        delimiter=dialect.delimiter,
        header_line=dialect.header_line,
        product=layout.product,
        columns=layout.described(),
    )


def _head(unread: Iterator[Block]) -> tuple[str, bool, Iterator[Block]]:
    """The text of the first blocks, whether they are the whole file, and all blocks.

    Raises ``import.empty``.
    """
    head: list[Block] = []
    characters = 0
    while characters < HEAD_BYTES // 4 and (block := next(unread, None)) is not None:
        head.append(block)
        characters += len(block) if isinstance(block, str) else 0
    whole = characters < HEAD_BYTES // 4
    if whole and not any(not isinstance(block, str) or block.strip(BLANKS) for block in head):
        raise IMPORT_EMPTY()
    sample = repair_text("".join(block for block in head if isinstance(block, str)))
    return sample, whole, chain(head, unread)


def _layout(dialect: Dialect, mapping: Mapping[str, str] | None) -> tuple[ColumnLayout, int]:
    """The layout, and the column of addresses: by the mapping, by name, or by its cells."""
    layout = detect_layout(dialect.header, mapping, dialect.sample)
    if layout.email is None:
        if dialect.email is None:
            raise IMPORT_NO_EMAIL_COLUMN(columns=columns_shown(dialect.header))
        layout.email = dialect.email
        # The records may have more columns than the header, and the addresses beyond it.
        layout.header = widened(dialect.header, dialect.email + 1)
    return layout, layout.email


def _grown(
    dialect: Dialect,
    mapping: Mapping[str, str] | None,
    find_fields: FindFields,
    names: Sequence[str],
    before: ColumnLayout,
) -> ColumnLayout:
    """The layout of a file of which later records have more columns."""
    layout = detect_layout(names, mapping, dialect.sample)
    layout = replace(layout, email=before.email, fields=dict(before.fields))
    find_fields(layout, ())
    return layout


def _delimited_rows(
    everything: Iterator[Block], text: DecodedText, dialect: Dialect, mapper: RowMapper
) -> Iterator[Outcome]:
    make = mapper.make
    return (
        each if isinstance(each, RejectedRecord) else make(*each, damaged=text.damaged)
        for each in DelimitedRecords(everything, dialect.delimiter or "")
        if each[0] > dialect.skip_through
    )


def _json_rows(
    everything: Iterable[Block],
    layout: ColumnLayout,
    email: int,
    grow: Callable[[Sequence[str], ColumnLayout], ColumnLayout],
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
                layout = grow(names, layout)
                mapper = RowMapper(layout, email)
        yield mapper.make(line, jsonlines.cells(values, names))
