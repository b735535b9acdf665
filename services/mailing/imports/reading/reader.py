"""A file of members, whatever wrote it, to rows: one pass, whose memory does not grow.

File → container → encoding → lines → records → members; each step pulls from the one before it
and holds a bounded piece. What cannot be read of one record is a ``Problem`` with its line;
what makes the file as a whole unreadable is a ``DomainError`` with a code ``import.…``.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from core.errors import invalid
from services.mailing.imports.encoding import Text, mended
from services.mailing.imports.mapping.columns import Layout, laid_out, no_email_column
from services.mailing.imports.mapping.row_mapper import BLANKS, Maker
from services.mailing.imports.mapping.rows import Description, Problem, Row
from services.mailing.imports.reading import jsonlines
from services.mailing.imports.reading.containers import opened
from services.mailing.imports.reading.delimited import Record, Records
from services.mailing.imports.reading.dialect import Dialect, column_of_addresses, sniffed
from services.mailing.imports.reading.lines import Block, blocks
from services.mailing.imports.reading.sources import Counted, Source

# What is looked at to recognise encoding, delimiter and header.
HEAD_BYTES = 64 * 1024

_OBJECT = re.compile(r'\{[ \t]*["}]')
_ARRAY = re.compile(r"\[\s*[{\]]")
_SPREAD_OBJECT = re.compile(r"\{[ \t]*[\r\n]")


class Reader:
    """Rows and problems in the order of the file. Can be iterated once."""

    def __init__(
        self,
        source: Counted,
        rows: Iterator[Row | Problem],
        header: list[str],
        description: Description,
    ) -> None:
        self.header = header
        self._source = source
        self._rows = rows
        self._description = description

    def __iter__(self) -> Iterator[Row | Problem]:
        return self._rows

    @property
    def bytes_read(self) -> int:
        """How much of the file, as it was sent, has been read so far."""
        return self._source.taken

    def describe(self) -> Description:
        return self._description


def open_rows(
    source: Source, filename: str | None = None, mapping: Mapping[str, str] | None = None
) -> Reader:
    """Recognise the file and begin to read it.

    ``source`` needs ``seek`` and ``tell`` for a zip (see ``RangedFile``), else only ``read``.
    ``mapping`` names columns, or their indexes from 0, and what each is: email, name, first_name,
    last_name, tier, paid_expiry, status or ignore; it wins over the names in the header.

    Raises ``import.empty``, ``import.no_email_column``, ``import.unknown_format``,
    ``import.mapping_column``, ``import.mapping_role``, ``import.json_array`` and, here or while
    rows are read, ``import.archive_many_files``, ``import.archive_encrypted``,
    ``import.expands_too_much``, ``import.truncated`` and ``import.damaged``.
    """
    counted = Counted(source)
    container, chunks = opened(counted)
    text = Text(chunks, HEAD_BYTES)
    coming = blocks(text)
    head, whole = _head(coming)
    sample = mended("".join(block for block in head if isinstance(block, str)))
    everything = chain(head, coming)
    if _is_json(sample):
        form = _json_form(sample, everything, text, mapping or {})
    else:
        dialect = sniffed(sample, whole=whole, mapping=mapping or {}, filename=filename)
        form = _delimited_form(dialect, everything, text, mapping or {})
    description = Description(
        container=container,
        format="csv" if form.delimiter else "jsonl",
        encoding=text.encoding,
        delimiter=form.delimiter,
        header_line=form.header_line,
        product=form.layout.product,
        columns=form.layout.described(),
    )
    return Reader(counted, form.rows, [*form.layout.header], description)


class _Form(NamedTuple):
    layout: Layout
    rows: Iterator[Row | Problem]
    delimiter: str | None = None
    header_line: int | None = None


def _head(coming: Iterator[Block]) -> tuple[list[Block], bool]:
    """The first blocks, and whether they are all. Raises ``import.empty``."""
    head: list[Block] = []
    characters = 0
    for block in coming:
        head.append(block)
        characters += len(block) if isinstance(block, str) else 0
        if characters >= HEAD_BYTES // 4:
            return head, False
    if not any(not isinstance(block, str) or block.strip(BLANKS) for block in head):
        raise invalid("import.empty", "There is nothing in the file.")
    return head, True


def _is_json(sample: str) -> bool:
    text = sample.lstrip(BLANKS)
    if _ARRAY.match(text) or _SPREAD_OBJECT.match(text):
        raise invalid(
            "import.json_array",
            "JSON is read one object per line (JSON Lines), not as one array or document.",
        )
    return _OBJECT.match(text) is not None


def _layout(
    header: list[str], mapping: Mapping[str, str], sample: list[list[str]], email: int | None
) -> tuple[Layout, int]:
    """The layout, and where the addresses are: by mapping, by name, or as the cells look."""
    layout = laid_out(header, mapping, sample)
    if layout.email is None:
        layout.email = email
    if layout.email is None:
        raise no_email_column(header)
    return layout, layout.email


def _delimited_form(
    dialect: Dialect, everything: Iterator[Block], text: Text, mapping: Mapping[str, str]
) -> _Form:
    layout, email = _layout(dialect.header, mapping, dialect.sample, dialect.email)
    records = Records(everything, dialect.delimiter)
    rows = _delimited_rows(records, Maker(layout, email), text, dialect.skip_through)
    return _Form(layout, rows, dialect.delimiter, dialect.header_line)


def _delimited_rows(
    records: Iterable[Record | Problem], maker: Maker, text: Text, skip_through: int
) -> Iterator[Row | Problem]:
    for record in records:
        if record[0] <= skip_through:
            continue
        if isinstance(record, Problem):
            yield _shown(record, text)
            continue
        row = maker.make(*record, damaged=text.damaged)
        if row is not None:
            yield row


def _shown(problem: Problem, text: Text) -> Problem:
    """With columns that can be written: a lone surrogate cannot."""
    columns = [mended(cell) for cell in problem.columns] if text.damaged else problem.columns
    return problem._replace(columns=columns)


def _json_form(
    sample: str, everything: Iterator[Block], text: Text, mapping: Mapping[str, str]
) -> _Form:
    found = [one[1] for one in jsonlines.objects([sample]) if not isinstance(one, Problem)]
    header = jsonlines.header(found)
    cells = [jsonlines.cells(values, header) for values in found]
    layout, _ = _layout(header, mapping, cells, column_of_addresses(cells))
    return _Form(layout, _json_rows(jsonlines.objects(everything), layout, text, mapping))


def _json_rows(
    objects: Iterable[tuple[int, jsonlines.Values] | Problem],
    layout: Layout,
    text: Text,
    mapping: Mapping[str, str],
) -> Iterator[Row | Problem]:
    """Keys that come only later, such as the time when somebody left, are heeded as well."""
    names = [*layout.header]
    known = set(names)
    maker = Maker(layout, layout.email or 0)
    for found in objects:
        if isinstance(found, Problem):
            yield _shown(found, text)
            continue
        line, values = found
        grown = (
            names
            if values.keys() <= known
            else jsonlines.header([dict.fromkeys(names, ""), values])
        )
        if len(grown) > len(names):
            names, known = grown, set(grown)
            maker = Maker(replace(laid_out(names, mapping), email=layout.email), layout.email or 0)
        row = maker.make(line, jsonlines.cells(values, names))
        if row is not None:
            yield row
