"""Reads JSON Lines: one object a line, each with keys of its own.

An object within an object, such as that of our own fields, is read as columns of their own.
"""

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import orjson

from core.errors import imports as errors
from core.languages.shown_lines import strip_unseen
from models import FieldType
from services.subscriptions.imports.columns import (
    ABSENT,
    ColumnLayout,
    FileDescription,
    MemberRow,
    RejectedRecord,
    columns_shown,
    detect_layout,
)
from services.subscriptions.imports.consent_columns import add_consent_columns, refuse_unclear
from services.subscriptions.imports.consent_readings import ConsentReadings
from services.subscriptions.imports.containers import (
    READ_BYTES,
    DecodedText,
    Source,
    open_container,
    repair_text,
)
from services.subscriptions.imports.delimited import (
    Block,
    DelimitedRecords,
    Dialect,
    blocks,
    find_email_column,
    sniff_dialect,
    split_lines,
    too_long,
    widened,
)
from services.subscriptions.imports.names import settle_columns
from services.subscriptions.imports.row_mapper import RowMapper
from services.subscriptions.imports.written_forms import ColumnForms

# Each object may have keys of its own. Keys beyond this number are not columns.
MAX_JSON_KEYS = 300
MAX_JSON_KEY_CHARACTERS = 200
# The maximum depth of nested objects. Objects that are nested more deeply aren't split into
# columns.
MAX_JSON_DEPTH = 5

# The roles of columns in files of suppressions, bounces and complaints.
_ROLES_OF_ADDRESSES = ("email", "name", "first_name", "last_name")

_OBJECT = re.compile(r'\{[ \t]*["}]')
_ARRAY_OR_SPREAD_OBJECT = re.compile(r"\[\s*[{\]]|\{[ \t]*[\r\n]")

Values = dict[str, str]


def sniff(sample: str) -> Dialect | None:
    """The keys of the sample's objects, if it has some.

    Raises ``import.json_array``, ``import.no_readable_row``.
    """
    text = strip_unseen(sample)
    if _ARRAY_OR_SPREAD_OBJECT.match(text):
        raise errors.IMPORT_JSON_ARRAY()
    if not _OBJECT.match(text):
        return None
    rows = [*objects([sample])]
    found = [one[1] for one in rows if not isinstance(one, RejectedRecord)]
    if not found and isinstance(first := next(iter(rows), None), RejectedRecord):
        raise errors.IMPORT_NO_READABLE_ROW(line=first.line, reason=first.reason)
    names = header(found)
    records = [cells(values, names) for values in found]
    return Dialect(None, names, records, find_email_column(records))


def objects(blocks: Iterable[Block]) -> Iterator[tuple[int, Values] | RejectedRecord]:
    """Each object's line and values, as text, or its rejection."""
    line = 0
    for block in blocks:
        if not isinstance(block, str):
            line += 1
            yield too_long(line)
            continue
        for text in split_lines(block):
            line += 1
            stripped = text.strip(" \t\r\n\x1a\ufeff")
            if not stripped:
                continue
            reason = "Not a JSON object."
            try:
                found = orjson.loads(stripped.encode("utf-8", "surrogateescape"))
            except orjson.JSONDecodeError as error:
                found, reason = None, f"Not JSON: {error.msg}."
            except UnicodeEncodeError:
                found = None
            if isinstance(found, dict):
                yield line, {name: _text(value) for name, value in _flat(found)}
            else:
                yield RejectedRecord(line, "row.unreadable", reason, (stripped,))


def _flat(found: dict[str, Any], path: str = "", depth: int = 1) -> Iterator[tuple[str, Any]]:
    """Yield each value with its path in the object, such as ``person.name``."""
    for name, value in found.items():
        if isinstance(value, dict) and value and depth < MAX_JSON_DEPTH:
            yield from _flat(value, f"{path}{name}.", depth + 1)
        else:
            yield _text(f"{path}{name}"), value


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value.replace("\0", "")
    if value is None or value in ([], {}):
        return ""
    return orjson.dumps(value).decode()


def header(found: Iterable[Values]) -> list[str]:
    """All keys of these objects that may be columns, in the order of the file."""
    names = dict.fromkeys(name for values in found for name in values)
    return [name for name in names if len(name) <= MAX_JSON_KEY_CHARACTERS][:MAX_JSON_KEYS]


def cells(values: Values, names: Sequence[str]) -> list[str]:
    return [values.get(name, ABSENT) for name in names]


# A larger file has to be JSON Lines. Parsed, a document takes several times as much memory.
MAX_DOCUMENT_BYTES = 16 * 1024**2
_DOCUMENT = re.compile(rb"(?:\xef\xbb\xbf)?\s*[\[{]")


def as_lines(stored: io.BufferedReader, size: int) -> Source:
    """The records of a JSON document of this size as JSON Lines; every other file as it is.

    A list of suppressed addresses is often stored just as it was answered.
    """
    head = stored.read(READ_BYTES)
    stored.seek(0)
    if size > MAX_DOCUMENT_BYTES or not _DOCUMENT.match(head):
        return stored
    try:
        document = orjson.loads(stored.read().removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError:
        document = None
    records = document if isinstance(document, list) else None
    if isinstance(document, dict):
        # Its first field that is a list of objects.
        lists = (each for each in document.values() if isinstance(each, list))
        records = next((each for each in lists if all(isinstance(i, dict) for i in each)), None)
    if records is None:
        stored.seek(0)
        return stored
    return io.BytesIO(b"\n".join(orjson.dumps(each) for each in records))


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
