"""Opens the rows of an imported file in any supported format."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from core.errors import imports as errors
from core.languages.shown_lines import strip_unseen
from models import FieldType
from services.subscriptions.imports.column_forms import ColumnForms
from services.subscriptions.imports.column_layout import ColumnLayout, columns_shown, detect_layout
from services.subscriptions.imports.consent_columns import add_consent_columns, refuse_unclear
from services.subscriptions.imports.consent_readings import ConsentReadings
from services.subscriptions.imports.containers import Source, open_container
from services.subscriptions.imports.csv_reader import DelimitedRecords
from services.subscriptions.imports.decoded_text import DecodedText, repair_text
from services.subscriptions.imports.dialect import Dialect, sniff_dialect, widened
from services.subscriptions.imports.json_lines_reader import cells, header, objects, sniff
from services.subscriptions.imports.line_blocks import Block, blocks
from services.subscriptions.imports.member_names import settle_columns
from services.subscriptions.imports.row_mapper import RowMapper
from services.subscriptions.imports.rows import MemberRow, RejectedRecord


@dataclass(frozen=True)
class FileDescription:
    """The recognised form of a file.

    ``product``: the one whose export the file is, if its header shows it. ``columns``: each role,
    with the names of the columns that have it.
    """

    container: str  # plain, gzip or zip
    format: str  # csv or jsonl
    encoding: str
    delimiter: str | None
    header_line: int | None
    product: str | None
    columns: Mapping[str, Sequence[str]]


# The roles of columns in files of suppressions, bounces and complaints.
_ROLES_OF_ADDRESSES = ("email", "name", "first_name", "last_name")

# File → container → encoding → lines → records → members: each step pulls from the step before it
# and holds a bounded piece. A record that can't be read becomes a ``RejectedRecord`` with its line.
# When the file as a whole can't be read, a ``DomainError`` with a code ``import.…`` is raised.

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

    ``sample`` has some of the file's records. In JSON Lines, later records may add columns to
    ``header``. The records in the sample don't have these columns.
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


def pass_over(_: object, __: object) -> None:
    """Find no field, and note no header: that of a file that is refused is of no use."""


def open_rows(
    source: Source,
    filename: str | None = None,
    mapping: Mapping[str, str] | None = None,
    find_fields: FindFields = pass_over,
    note_header: NoteHeader = pass_over,
    *,
    forms: ColumnForms | None = None,
    readings: ConsentReadings | None = None,
    of_members: bool = True,
    encoding: str | None = None,
) -> MemberReader:
    """Recognise the form of the file, and begin to read it.

    ``source`` needs ``seek`` and ``tell`` for a zip (see ``ranged_file``), otherwise only ``read``.
    ``mapping`` names columns, or their indexes from 0, and the role of each: one of
    ``columns.ROLES``, or a field. It wins over the header. ``forms`` learns how the columns write
    dates and numbers, and ``readings`` how to interpret consent columns. ``of_members`` is false
    for files of suppressions, bounces and complaints, which have no consent columns. If
    ``encoding`` is ``None``, the reader detects the encoding.

    Raises ``EncodingUnclear``, ``import.empty``, ``import.no_email_column``,
    ``import.unknown_format``, ``import.mapping_…``, ``import.column_ambiguous``,
    ``import.status_values``, ``import.json_array``, ``import.no_readable_row``, and the errors of
    ``find_fields``. The errors of ``open_container`` may be raised here or later, while rows are
    read.
    """
    container, chunks = open_container(source)
    text = DecodedText(chunks, HEAD_BYTES, encoding)
    sample, whole, everything = _head(blocks(text))
    dialect = sniff(sample) or sniff_dialect(
        sample, whole=whole, mapping=mapping or {}, filename=filename
    )
    if text.is_binary and dialect.delimiter and dialect.email is None:
        # Its bytes are no names of columns.
        raise errors.IMPORT_UNKNOWN_FORMAT(what="a binary file, not a table")
    note_header(dialect.header, dialect.sample)
    layout, email = _layout(dialect, mapping)
    readings = readings or ConsentReadings()
    if of_members:
        _add_consent(layout, readings, dialect.sample)
    else:
        layout.roles = {role: layout.of(role) for role in _ROLES_OF_ADDRESSES}
    find_fields(layout, dialect.sample)
    forms = forms or ColumnForms()
    forms.learn(layout.dates(), layout.of_type(FieldType.NUMBER), dialect.sample)
    columns = [*layout.header]
    if dialect.delimiter is None:

        def grow(names: Sequence[str], before: ColumnLayout) -> ColumnLayout:
            """Return the layout of a file of which later records have more columns."""
            grown = detect_layout(names, mapping)
            settle_columns(grown, mapping, dialect.sample)
            grown.roles["email"], grown.fields = before.of("email"), dict(before.fields)
            if of_members:
                _add_consent(grown, readings, dialect.sample)
            else:
                grown.roles = {role: grown.of(role) for role in _ROLES_OF_ADDRESSES}
            find_fields(grown, ())
            columns[:] = grown.header
            return grown

        def map_rows(layout: ColumnLayout) -> RowMapper:
            return RowMapper(layout, email, forms, readings.reader(layout))

        rows = _json_rows(everything, layout, map_rows, grow)
    else:
        make = RowMapper(layout, email, forms, readings.reader(layout)).make
        rows = (
            each if isinstance(each, RejectedRecord) else make(*each, damaged=text.damaged)
            for each in DelimitedRecords(everything, dialect.delimiter or "")
            if each[0] > dialect.skip_through
        )
    description = FileDescription(
        container=container,
        format="csv" if dialect.delimiter else "jsonl",
        encoding=text.encoding,
        delimiter=dialect.delimiter,
        header_line=dialect.header_line,
        product=layout.product,
        columns=layout.described(),
    )
    return MemberReader(rows, text, columns, dialect.sample, description)


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
    if whole and not any(not isinstance(block, str) or strip_unseen(block) for block in head):
        raise errors.IMPORT_EMPTY()
    sample = repair_text("".join(block for block in head if isinstance(block, str)))
    return sample, whole, chain(head, unread)


def _layout(dialect: Dialect, mapping: Mapping[str, str] | None) -> tuple[ColumnLayout, int]:
    """The layout, and the column of addresses: by the mapping, by name, or by its cells."""
    layout = detect_layout(dialect.header, mapping)
    settle_columns(layout, mapping, dialect.sample)
    email = layout.first("email")
    if email is None:
        if dialect.email is None:
            raise errors.IMPORT_NO_EMAIL_COLUMN(columns=columns_shown(dialect.header))
        email = dialect.email
        layout.add("email", email)
        # The records may have more columns than the header, and the addresses beyond it.
        layout.header = widened(dialect.header, email + 1)
    return layout, email


def _add_consent(
    layout: ColumnLayout, readings: ConsentReadings, sample: Sequence[Sequence[str]]
) -> None:
    """Find the consent columns; raises ``import.column_ambiguous``, ``import.status_values``."""
    add_consent_columns(layout)
    refuse_unclear(layout, readings.unclear_columns(layout, sample))
    readings.decide(layout, sample)


def _json_rows(
    everything: Iterable[Block],
    layout: ColumnLayout,
    map_rows: Callable[[ColumnLayout], RowMapper],
    grow: Callable[[Sequence[str], ColumnLayout], ColumnLayout],
) -> Iterator[Outcome]:
    """The rows. Keys that come later, such as the time when a person left, are columns as well."""
    names = [*layout.header]
    known = set(names)
    mapper = map_rows(layout)
    for found in objects(everything):
        if isinstance(found, RejectedRecord):
            yield found
            continue
        line, values = found
        if not values.keys() <= known:
            grown = header([dict.fromkeys(names, ""), values])
            if len(grown) > len(names):
                names, known = grown, set(grown)
                layout = grow(names, layout)
                mapper = map_rows(layout)
        yield mapper.make(line, cells(values, names))
