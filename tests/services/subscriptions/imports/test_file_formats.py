"""Tests that imports read CSV files of many dialects and encodings, and JSON Lines."""

import csv
import io
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from core.errors import DomainError
from services.subscriptions.formula_guard import (
    guard_cell,
    guard_foreign_cell,
    guard_foreign_cells,
    unguard_cell,
)
from services.subscriptions.imports.chunks.rejected_rows import format_csv_lines, format_header_line
from services.subscriptions.imports.formats.encoding_detection import EncodingUnclear
from services.subscriptions.imports.formats.formats import open_member_rows
from services.subscriptions.imports.judged_rows import JudgedRow
from services.subscriptions.imports.rows import MemberRow, RejectedRecord
from tests.support.imports.forms import compress, open_reader, read_outcomes, read_rows

# These tests are slow, because they read hundreds of generated files.
pytestmark = pytest.mark.slow

HEADERS = [
    ("email", "name"),
    ("E-mail", "Full Name"),
    ("Email Address", "NAME"),
    ("e_mail_address ", "display name"),
    ("Adresse e-mail", "Nom complet"),
    ("E-Mail-Adresse", "Name"),
    ("Correo electrónico", "Nombre"),
    ("メールアドレス", "氏名"),
    ("邮箱", "姓名"),
    ("Электронная почта", "ФИО"),
]
LATIN_LETTERS = "abcXYZ éüñßç"
ALL_LETTERS = LATIN_LETTERS + "名前אבИва가😀"
SPECIAL_CHARACTERS = "\",;\t|\n'-.()"
FORMULA_SIGNS = {*"=+-@＝＋－＠"}  # noqa: RUF001
# An apostrophe that an export inserts where a spreadsheet program could otherwise read the text as
# a formula.
ESCAPING_APOSTROPHE = re.compile("(^|[;\t\r\n])'(?=[ \"']*[-\t\r\n])")

hosts = st.sampled_from(["example.com", "mail.example.org", "x.co.uk", "bücher.example.com"])
local_parts = st.text("abcz019.+_-", min_size=1, max_size=8)
emails = st.builds("{}@{}".format, local_parts, hosts)


@dataclass(frozen=True)
class Person:
    email: str
    name: str


@dataclass(frozen=True)
class FileFormat:
    """The format of a file of members, such as its encoding and its delimiter.

    With ``blank_every=3``, for example, the file contains an empty line before every third record.
    With ``blank_every=0``, the file contains no empty lines.
    """

    encoding: str = "utf-8"
    delimiter: str = ","
    newline: str = "\r\n"
    quote_all: bool = False
    header: Sequence[str] = ("email", "name")
    mapping: Mapping[str, str] = field(default_factory=dict)
    compression: str = "plain"
    blank_every: int = 0
    last_newline: bool = True
    json: bool = False


class SlowFile:
    """A file that can't seek, and that returns at most ``size`` bytes per read."""

    def __init__(self, data: bytes, size: int) -> None:
        self._file = io.BytesIO(data)
        self._size = size

    def read(self, size: int, /) -> bytes:
        return self._file.read(min(size, self._size))


def write_file(people: Sequence[Person], form: FileFormat) -> tuple[bytes, list[int]]:
    """Return a file with one record per person, and the line number at which each record begins.

    ``form``: the format of the file.
    """
    text, lines = _write_json(people, form) if form.json else _write_csv(people, form)
    if not form.last_newline:
        text = text.removesuffix(form.newline)
    return compress(text.encode(form.encoding), form.compression), lines


def _write_csv(people: Sequence[Person], form: FileFormat) -> tuple[str, list[int]]:
    out = io.StringIO(newline="")
    quoting: Literal[0, 1] = csv.QUOTE_ALL if form.quote_all else csv.QUOTE_MINIMAL
    writer = csv.writer(out, delimiter=form.delimiter, lineterminator=form.newline, quoting=quoting)
    if form.header:
        writer.writerow(form.header)
    lines = []
    for number, person in enumerate(people, 1):
        if form.blank_every and number % form.blank_every == 0:
            out.write(form.newline)
        lines.append(out.getvalue().count(form.newline) + 1)
        writer.writerow([person.email, person.name.replace("\n", form.newline)])
    return out.getvalue(), lines


def _write_json(people: Sequence[Person], form: FileFormat) -> tuple[str, list[int]]:
    objects = [json.dumps({"email": person.email, "name": person.name}) for person in people]
    return "".join(line + form.newline for line in objects), [*range(1, len(people) + 1)]


def people(letters: str) -> st.SearchStrategy[list[Person]]:
    return st.lists(
        st.builds(Person, emails, st.text(letters + SPECIAL_CHARACTERS, max_size=12)),
        min_size=1,
        max_size=12,
    )


def forms(encodings: list[str], headers: list[tuple[str, str]]) -> st.SearchStrategy[FileFormat]:
    return st.builds(
        FileFormat,
        encoding=st.sampled_from(encodings),
        delimiter=st.sampled_from(",;\t|"),
        newline=st.sampled_from(["\r\n", "\n", "\r"]),
        quote_all=st.booleans(),
        header=st.sampled_from(headers),
        compression=st.sampled_from(["plain", "gzip", "zip"]),
        blank_every=st.sampled_from([0, 2, 3]),
        last_newline=st.booleans(),
    )


def expected_name(name: str, form: FileFormat) -> str:
    cell = name if form.json else name.replace("\n", form.newline)
    if not form.json and not form.quote_all and not {form.delimiter, '"', *form.newline} & {*cell}:
        # Spaces at the start of an unquoted cell don't belong to its value.
        cell = cell.lstrip(" ")
    # Remove only one apostrophe, because an export adds only one, even if the value already begins
    # with an apostrophe.
    return " ".join(ESCAPING_APOSTROPHE.sub(r"\1", cell).split())


def require_members_read(
    members: list[Person], form: FileFormat, read_bytes: int, encoding: str | None = None
) -> None:
    data, lines = write_file(members, form)
    source = io.BytesIO(data) if form.compression == "zip" else SlowFile(data, read_bytes)
    reader = open_member_rows(source, mapping=form.mapping, encoding=encoding)
    parsed_rows = [*reader]

    assert [row for row in parsed_rows if isinstance(row, RejectedRecord)] == []
    assert [(row.line, row.email, " ".join(row.name.split())) for row in parsed_rows] == [
        (line, member.email, expected_name(member.name, form))
        for line, member in zip(lines, members, strict=True)
    ]
    if not form.json:
        assert reader.description.delimiter == form.delimiter
        assert reader.description.container == form.compression


@settings(max_examples=250, deadline=None)
@given(
    people(ALL_LETTERS),
    forms(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"], HEADERS),
    st.integers(1, 300),
)
@example([Person("a@example.com", "''-")], FileFormat(), 300)
@example([Person("a@example.com", " '-")], FileFormat(), 300)
@example([Person("a@example.com", " '-")], FileFormat(quote_all=True), 300)
def test_members_are_read_correctly_from_any_csv_dialect_and_unicode_encoding(
    members: list[Person], form: FileFormat, read_bytes: int
) -> None:
    require_members_read(members, form, read_bytes)


@settings(max_examples=80, deadline=None)
@given(people(LATIN_LETTERS), forms(["cp1252", "latin-1"], HEADERS[:6]), st.integers(1, 300))
def test_members_are_read_correctly_from_latin_1_files(
    members: list[Person], form: FileFormat, read_bytes: int
) -> None:
    # Set the encoding. It can't be detected, because random letters aren't names of any language.
    require_members_read(members, form, read_bytes, "cp1252")


@settings(max_examples=80, deadline=None)
@given(people(ALL_LETTERS), st.sampled_from(["plain", "gzip", "zip"]), st.integers(1, 300))
@example([Person("a@example.com", "''-")], "plain", 300)
def test_members_are_read_correctly_from_json_lines(
    members: list[Person], compression: str, read_bytes: int
) -> None:
    require_members_read(
        members, FileFormat(json=True, newline="\n", compression=compression), read_bytes
    )


@settings(max_examples=80, deadline=None)
@given(people(ALL_LETTERS), forms(["utf-8", "utf-16"], [()]), st.integers(1, 300))  # type: ignore[list-item]
@example([Person("a@example.com", "")], FileFormat(header=()), 1)
def test_members_are_read_correctly_from_files_without_a_header(
    members: list[Person], form: FileFormat, read_bytes: int
) -> None:
    # An import may regard a tab after an address as whitespace, and not as the delimiter.
    assume(
        form.delimiter != "\t" or any(member.name.strip()[:1] not in {*",;|"} for member in members)
    )
    form_with_mapping = FileFormat(**{**vars(form), "mapping": {"0": "email", "1": "name"}})
    require_members_read(members, form_with_mapping, read_bytes)


@settings(max_examples=250, deadline=None)
@given(st.text("a1'\"=+-@ ,;\t\r\n＝", max_size=8), st.text("a'=+-", min_size=1, max_size=6))  # noqa: RUF001
@example("'-", "'-a")
@example("''-", "''=a")
@example(" '-", "-a")
@example("x;=1", "a")
@example("x;';'\t '=1", "a")
@example("＝1", "a")  # noqa: RUF001
def test_import_removes_the_formula_guards_that_exports_add(name: str, mailbox: str) -> None:
    email = f"{mailbox}@example.com"
    output = io.StringIO()
    written_cells = (guard_cell(email), guard_cell(name))
    csv.writer(output, quoting=csv.QUOTE_ALL).writerows([("email", "name"), written_cells])
    assert not find_formulas(output.getvalue())
    [row] = read_rows(output.getvalue())
    assert (row.email, row.name.split()) == (email, name.split())


def find_formulas(sheet: str) -> list[str]:
    """Return each text in a CSV file that a spreadsheet program could run as a formula.

    Some spreadsheet programs split cells at semicolons or tabs, even inside quotes.
    """
    cells = [cell for line in csv.reader(io.StringIO(sheet, newline="")) for cell in line]
    pieces = [piece for each in (sheet, *cells) for piece in re.split("[;\t\r\n]", each)]
    return [piece for piece in pieces if piece.lstrip(' "')[:1] in FORMULA_SIGNS]


@pytest.mark.parametrize("name", ["x;=cmd|'/c calc'!A0;", "＝1", 'x; "=1', "a\t+1", "a\n@x"])  # noqa: RUF001
def test_rejected_row_in_the_error_file_contains_no_formula_and_can_be_imported_again(
    name: str,
) -> None:
    row = JudgedRow(line=2, code="email.invalid", reason="No address.", cells=["no address", name])
    sheet = format_header_line(["email", "name"]) + zlib.decompress(
        format_csv_lines([row], ["invalid"], {}, 2)
    )

    assert not find_formulas(sheet.decode())
    [record] = open_reader(sheet)
    assert record.cells[:2] == ["no address", guard_foreign_cell(name)]
    assert unguard_cell(record.cells[1]) == name


@given(st.lists(st.text("a'\"=+-@ ,;\t\r\n＝", max_size=6), max_size=5))  # noqa: RUF001
@example(["", "=1"])
@example(["a;", "=1"])
@example(['a;"', "=1"])
def test_formula_guard_for_many_cells_equals_the_guard_for_each_cell(cells: list[str]) -> None:
    assert guard_foreign_cells(cells) == [guard_foreign_cell(cell) for cell in cells]


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400) | st.text(max_size=200).map(str.encode))
@example(b'"')
@example(b"\0")
@example(b"\xff\xfe@x.com,\xff\n")
@example("é,é\n".encode() * 9 + b'a,"\xff\n')
@example("é,é\n".encode() * 9 + b"\xffa@x.com,\xff")
@example(b"\xff\xfe\0")
def test_any_bytes_after_a_header_yield_storable_rows_or_problems_in_order(data: bytes) -> None:
    file = b"email,name\n" + data
    # Don't test files with many zero bytes, because the reader may decode a file with many zero
    # bytes as UTF-16, and then misread the header.
    assume(file.count(0) * 10 <= len(file))
    try:
        parsed_rows = [*open_reader(file)]
    except EncodingUnclear:
        parsed_rows = [*open_reader(file, encoding="cp1252")]

    lines = [row.line for row in parsed_rows]
    assert lines == sorted(set(lines))
    assert all(can_be_stored(*row.cells) for row in parsed_rows)
    assert all(
        can_be_stored(row.name, row.email) for row in parsed_rows if isinstance(row, MemberRow)
    )


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
@example("email,é\nx".encode() * 9 + b"\xff")
@example(b"email,\xc3\xa9\xc3\xa9\xff\n")
@example(b'{"email": "\xc3\xa9\\u0000", "\\u0000": 1}\n{"email": \xff}')
def test_any_file_content_is_read_or_rejected_with_an_error(data: bytes) -> None:
    with suppress(DomainError):
        reader = open_reader(data)
        assert can_be_stored(*reader.header)
        assert all(can_be_stored(*row.cells) for row in reader)


def can_be_stored(*texts: str) -> bool:
    joined = "".join(texts)
    return "\0" not in joined and joined.encode("utf-8", "ignore").decode() == joined


@pytest.mark.parametrize("declaration", ["sep=;", '"sep=;"', "SEP=;"])
def test_excel_delimiter_declaration_is_applied_and_not_imported_as_a_row(declaration: str) -> None:
    (row,) = read_rows(f"{declaration}\r\nemail;name\r\na@example.com;Lee, Ann\r\n")

    assert (row.line, row.email, row.name) == (3, "a@example.com", "Lee, Ann")


def test_delimiter_declaration_may_name_any_character() -> None:
    (row,) = read_rows("sep=^\nemail^name\na@example.com^Lee, Ann\n")

    assert row.name == "Lee, Ann"


def test_delimiter_that_separates_email_addresses_is_preferred() -> None:
    member_rows = read_rows("email;last, first\na@example.com;Lee, Ann\nb@example.com;Roe, Bob\n")

    assert [row.email for row in member_rows] == ["a@example.com", "b@example.com"]


def test_other_column_of_a_two_column_file_without_header_is_the_name() -> None:
    assert [row.name for row in read_rows("Ann,a@example.com\nBob,b@example.com\n")] == [
        "Ann",
        "Bob",
    ]
    assert [row.name for row in read_rows("2024-01-01,a@example.com\n")] == [""]


def test_title_lines_above_the_header_are_skipped() -> None:
    (row,) = read_rows("Members of the Daily\nMay\nName,Email\nAnn,a@example.com\n")

    assert (row.line, row.name) == (4, "Ann")


def test_zero_bytes_and_dos_end_of_file_mark_are_removed() -> None:
    assert read_outcomes(b"em\0ail,name\na\0@example.com,\0An\0n\n\x1a") == [(2, "a@example.com")]
