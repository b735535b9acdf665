"""Reads imported files of all supported formats as sequences of rows.

The records of a workbook come from a child process.

Only a limited part of the file is in memory at the same time. A record that can't be read becomes a
``RejectedRecord``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from core.errors import imports as errors
from core.languages.shown_lines import strip_invisible
from models import FieldType
from services.subscriptions.imports.columns.column_forms import ColumnForms, confirm_join_dates
from services.subscriptions.imports.columns.column_layout import (
    ColumnLayout,
    describe_columns,
    detect_layout,
)
from services.subscriptions.imports.columns.consent_columns import (
    add_consent_columns,
    refuse_unclear_columns,
)
from services.subscriptions.imports.columns.consent_interpreter import ConsentInterpreter
from services.subscriptions.imports.columns.member_names import assign_name_column
from services.subscriptions.imports.formats.containers import Source, open_container
from services.subscriptions.imports.formats.csv_reader import CsvRecords
from services.subscriptions.imports.formats.decoded_text import DecodedText, repair_text
from services.subscriptions.imports.formats.dialect import (
    Dialect,
    detect_csv_dialect,
    extend_header,
)
from services.subscriptions.imports.formats.json_lines_reader import (
    arrange_cells,
    detect_json_lines,
    list_keys,
    read_objects,
)
from services.subscriptions.imports.formats.line_blocks import Block, cut_blocks
from services.subscriptions.imports.formats.row_mapper import RowMapper
from services.subscriptions.imports.formats.workbooks.workbook import Workbook
from services.subscriptions.imports.rows import MemberRow, RejectedRecord

# The number of bytes from which the encoding, the dialect and the header are detected.
HEAD_BYTES = 64 * 1024

# The only roles that columns can have in files of suppressions, bounces and complaints.
_ADDRESS_ROLES = ("email", "name", "first_name", "last_name")

Outcome = MemberRow | RejectedRecord | None
Records = Sequence[Sequence[str]]
# A function that assigns the owner's fields to the columns of a layout. The ``Records`` are a
# sample of the file's first records. If a later record adds columns, ``FindFields`` is called again
# with an empty sample.
FindFields = Callable[[ColumnLayout, Records], None]
# A function that receives the header and the first records before the roles of the columns are
# known.
StoreHeader = Callable[[Sequence[str], Records], None]


@dataclass(frozen=True)
class FileDescription:
    """The detected format of an imported file.

    Attributes:
        sheets: the names of the first ``MAX_SHEETS_SHOWN`` sheets of a workbook, and whether each
            sheet is hidden.
    """

    container: str
    format: str
    encoding: str
    delimiter: str | None
    header_line: int | None
    product: str | None
    columns: Mapping[str, Sequence[str]]
    sheet: str | None = None
    sheets: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class RowReader:
    """The rows and rejected records of a file, in the order of the file.

    A ``RowReader`` can be iterated only once. ``sample`` contains the first records of the file.
    Later records of a JSON Lines file may add columns to ``header`` that the sample lacks.
    """

    outcomes: Iterator[Outcome]
    text: DecodedText
    header: list[str]
    sample: Records
    description: FileDescription

    def __iter__(self) -> Iterator[MemberRow | RejectedRecord]:
        for outcome in self.outcomes:
            if isinstance(outcome, RejectedRecord) and self.text.damaged:
                # Repair the cells of a rejected record, because undecodable bytes can't be stored
                # as text.
                yield outcome._replace(cells=[repair_text(cell) for cell in outcome.cells])
            elif outcome is not None:
                yield outcome


def ignore_columns(_: object, __: object) -> None: ...


def open_member_rows(
    source: Source | Workbook,
    filename: str | None = None,
    mapping: Mapping[str, str] | None = None,
    find_fields: FindFields = ignore_columns,
    store_header: StoreHeader = ignore_columns,
    *,
    forms: ColumnForms | None = None,
    consent: ConsentInterpreter | None = None,
    encoding: str | None = None,
) -> RowReader:
    """Detect the format of a file with members, and return a reader of its rows.

    Args:
        source: the file. The source of a zip file needs the methods ``seek`` and ``tell`` (see
            ``open_ranged_file``). For a workbook, a sheet must already be chosen.
        mapping: maps columns to the roles or fields that the owner has assigned. The mapping
            identifies columns by their headers or by their indexes, starting at 0. A role in the
            owner's column mapping takes precedence over the role that the header suggests.

    Raises ``EncodingUnclear`` if the encoding can't be detected.
    """
    file = _open_file(source, filename, mapping, encoding)
    sample = file.dialect.sample
    store_header(file.dialect.header, sample)
    interpreter = consent or ConsentInterpreter()

    def add_consent(layout: ColumnLayout) -> None:
        add_consent_columns(layout)
        if isinstance(source, Workbook):
            layout.unreadable.update(source.unreadable_headers)
        refuse_unclear_columns(layout, interpreter.find_unclear_columns(layout, sample))
        interpreter.decide(layout, sample)

    layouts = _LayoutDetector(file.dialect, mapping, add_consent, find_fields)
    return _read_rows(file, layouts, forms or ColumnForms(), interpreter)


def open_suppression_rows(
    source: Source | Workbook,
    filename: str | None = None,
    mapping: Mapping[str, str] | None = None,
    *,
    encoding: str | None = None,
) -> RowReader:
    """Return a reader that recognises only the columns with addresses and names. The module
    ``suppression_files`` interprets the remaining columns.
    """
    file = _open_file(source, filename, mapping, encoding)
    layouts = _LayoutDetector(file.dialect, mapping, _keep_address_roles, ignore_columns)
    return _read_rows(file, layouts, ColumnForms(), ConsentInterpreter(), has_members=False)


@dataclass(frozen=True)
class _OpenFile:
    """An opened file whose dialect was detected, and whose columns have no roles.

    ``text`` and ``blocks`` are empty for a workbook.
    """

    container: str
    text: DecodedText
    dialect: Dialect
    blocks: Iterator[Block]
    workbook: Workbook | None = None


class _LayoutDetector:
    """Assigns roles to the columns of a file, and to columns that JSON records add to the header.

    Args:
        interpret_columns: a function that adds, changes or removes roles of columns.
    """

    def __init__(
        self,
        dialect: Dialect,
        mapping: Mapping[str, str] | None,
        interpret_columns: Callable[[ColumnLayout], None],
        find_fields: FindFields,
    ) -> None:
        self._mapping = mapping
        self._sample = dialect.sample
        self._interpret_columns = interpret_columns
        self._find_fields = find_fields
        self.layout = self._detect(dialect.header)
        self.email = self._find_email(dialect)
        interpret_columns(self.layout)
        find_fields(self.layout, self._sample)
        # The header, including the columns that records have added so far. Append new columns to
        # ``header`` in place, because the ``RowReader`` holds a reference to this Python list.
        self.header = [*self.layout.header]

    def extend(self, header: Sequence[str]) -> ColumnLayout:
        layout = self._detect(header)
        layout.roles["email"] = self.layout.find_columns("email")
        layout.fields = dict(self.layout.fields)
        self._interpret_columns(layout)
        self._find_fields(layout, ())
        self.layout = layout
        self.header[:] = layout.header
        return layout

    def _detect(self, header: Sequence[str]) -> ColumnLayout:
        layout = detect_layout(header, self._mapping)
        confirm_join_dates(layout, self._sample)
        assign_name_column(layout, self._mapping, self._sample)
        return layout

    def _find_email(self, dialect: Dialect) -> int:
        email = self.layout.find_first_column("email")
        if email is None:
            if dialect.email is None:
                raise errors.IMPORT_NO_EMAIL_COLUMN(columns=describe_columns(dialect.header))
            email = dialect.email
            self.layout.add("email", email)
            # Records may have more columns than the header, so the header may lack the address
            # column.
            self.layout.header = extend_header(dialect.header, email + 1)
        return email


def _open_file(
    source: Source | Workbook,
    filename: str | None,
    mapping: Mapping[str, str] | None,
    encoding: str | None,
) -> _OpenFile:
    if isinstance(source, Workbook):
        no_text = DecodedText((), HEAD_BYTES, "utf-8")
        return _OpenFile("plain", no_text, source.dialect, iter(()), source)
    container, chunks = open_container(source)
    text = DecodedText(chunks, HEAD_BYTES, encoding)
    sample, is_complete, blocks = _take_sample(cut_blocks(text))
    dialect = detect_json_lines(sample) or detect_csv_dialect(
        sample, is_complete=is_complete, mapping=mapping or {}, filename=filename
    )
    if text.is_binary and dialect.delimiter and dialect.email is None:
        # A file with control characters in its first line isn't a table.
        raise errors.IMPORT_UNKNOWN_FORMAT(what="a binary file, not a table")
    return _OpenFile(container, text, dialect, blocks)


def _take_sample(blocks: Iterator[Block]) -> tuple[str, bool, Iterator[Block]]:
    """Return the beginning of a text, whether the text ends there, and all blocks of the text.

    Raises ``import.empty``.
    """
    first_blocks: list[Block] = []
    characters = 0
    while characters < HEAD_BYTES // 4 and (block := next(blocks, None)) is not None:
        first_blocks.append(block)
        characters += len(block) if isinstance(block, str) else 0
    is_complete = characters < HEAD_BYTES // 4
    if is_complete and not any(
        not isinstance(block, str) or strip_invisible(block) for block in first_blocks
    ):
        raise errors.IMPORT_EMPTY()
    sample = repair_text("".join(block for block in first_blocks if isinstance(block, str)))
    return sample, is_complete, chain(first_blocks, blocks)


def _keep_address_roles(layout: ColumnLayout) -> None:
    layout.roles = {role: layout.find_columns(role) for role in _ADDRESS_ROLES}


def _read_rows(
    file: _OpenFile,
    layouts: _LayoutDetector,
    forms: ColumnForms,
    consent: ConsentInterpreter,
    *,
    has_members: bool = True,
) -> RowReader:
    dialect = file.dialect
    layout = layouts.layout
    sheets: Mapping[str, Any] = {}
    forms.learn(
        layout.find_date_columns(), layout.find_fields_of_type(FieldType.NUMBER), dialect.sample
    )

    def create_mapper(layout: ColumnLayout) -> RowMapper:
        return RowMapper(layout, layouts.email, forms, consent.create_reader(layout))

    if file.workbook is not None:
        mapper = create_mapper(layout)
        roles = layout.describe_roles()
        outcomes = _map_sheet(
            file.workbook,
            mapper,
            mapper.is_consent_column if has_members else lambda index: index not in roles,
        )
        format_name = "xlsx"
        sheets = file.workbook.describe()
    elif dialect.delimiter is None:
        outcomes = _map_objects(file.blocks, layouts, create_mapper)
        format_name = "jsonl"
    else:
        outcomes = _map_csv(file, dialect.delimiter, create_mapper(layout))
        format_name = "csv"
    description = FileDescription(
        container=file.container,
        format=format_name,
        encoding=file.text.encoding,
        delimiter=dialect.delimiter,
        header_line=dialect.header_line,
        product=layout.product,
        columns=layout.list_headers_by_role(),
        **sheets,
    )
    return RowReader(outcomes, file.text, layouts.header, dialect.sample, description)


def _map_csv(file: _OpenFile, delimiter: str, mapper: RowMapper) -> Iterator[Outcome]:
    text = file.text
    skip_through = file.dialect.skip_through
    for record in CsvRecords(file.blocks, delimiter):
        if record[0] > skip_through:
            if isinstance(record, RejectedRecord):
                yield record
            else:
                yield mapper.map_record(*record, damaged=text.damaged)


def _map_sheet(
    workbook: Workbook, mapper: RowMapper, is_filled: Callable[[int], bool]
) -> Iterator[Outcome]:
    """Yield the rows of a sheet.

    Args:
        is_filled: returns whether a merged range in a column holds for all its rows, by the index
            of the column. In other columns, and in the header, it belongs to its first cell.
    """
    skip_through = workbook.dialect.skip_through
    for record in workbook.records:
        if record.line <= skip_through:
            continue
        if isinstance(record, RejectedRecord):
            yield record
            continue
        line, cells, cell_errors, hidden = record
        for index, first_cell in hidden.items():
            if first_cell.first_line > skip_through and is_filled(index):
                cells[index] = first_cell.text
                if first_cell.error:
                    cell_errors[index] = first_cell.error
        outcome = mapper.map_record(line, cells, errors=cell_errors)
        yield mapper.add_errors(outcome, line, cell_errors) if cell_errors else outcome
    # Stop the child process early, because it uses a lot of memory.
    workbook.close()


def _map_objects(
    blocks: Iterable[Block],
    layouts: _LayoutDetector,
    create_mapper: Callable[[ColumnLayout], RowMapper],
) -> Iterator[Outcome]:
    """Yield the rows of a JSON Lines file, and add new keys to the header."""
    header = [*layouts.header]
    known_keys = set(header)
    mapper = create_mapper(layouts.layout)
    for record in read_objects(blocks):
        if isinstance(record, RejectedRecord):
            yield record
            continue
        line, values = record
        if not values.keys() <= known_keys:
            extended = list_keys([dict.fromkeys(header, ""), values])
            if len(extended) > len(header):
                header = extended
                known_keys = set(extended)
                mapper = create_mapper(layouts.extend(header))
        yield mapper.map_record(line, arrange_cells(values, header))
