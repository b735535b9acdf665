"""Tests of damaged, malicious and far too large workbooks."""

import io
import os
import random
import struct
import zipfile
from collections import Counter, deque
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial

import pytest

from core.errors import DomainError
from services.subscriptions.imports.formats import containers
from services.subscriptions.imports.formats.formats import open_member_rows
from services.subscriptions.imports.formats.workbooks.reading_slots import MemoryLimit
from services.subscriptions.imports.formats.workbooks.workbook import Workbook
from services.subscriptions.imports.rows import MemberRow
from tests.support.imports.workbooks import (
    MAIN,
    OFFICE,
    PACKAGE,
    cell,
    package,
    read_workbook,
    sheet_xml,
    workbook,
)

TOO_LARGE = "import.workbook_too_large"
DAMAGED = "import.workbook_damaged"
ENCRYPTED = "import.workbook_encrypted"
UNKNOWN = "import.unknown_format"

ENTITY_BOMB = (
    '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">'
    + "".join(f'<!ENTITY {"bcdefgh"[n]} "{("&" + "abcdefg"[n] + ";") * 10}">' for n in range(7))
    + "]>"
)
EXTERNAL_ENTITY = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
PEOPLE_SHEET = sheet_xml(
    '<row r="1">'
    + cell("A1", "email")
    + '</row><row r="2">'
    + cell("A2", "ann@example.com")
    + "</row>"
)
STYLES = f'<styleSheet xmlns="{MAIN}"><cellXfs>%s</cellXfs></styleSheet>'
SHARED_TEXTS = f'<sst xmlns="{MAIN}">%s</sst>'


WIDE_SHEET = sheet_xml('<row r="1">' + cell("A1", "email") + cell("XFD1", "x") + "</row>")
RELATIONSHIP = (
    f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="rId1"'
    f' Type="{OFFICE}/%s" Target="%s"/></Relationships>'
)
# A spreadsheet in the OpenDocument format with 501 columns.
OPEN_DOCUMENT = {
    "mimetype": "application/vnd.oasis.opendocument.spreadsheet",
    "META-INF/manifest.xml": "<manifest/>",
    "content.xml": "<office:document-content"
    + "".join(
        f' xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
        for name in ("office", "table", "text")
    )
    + "><office:body><office:spreadsheet>"
    '<table:table table:name="Sheet1"><table:table-row><table:table-cell'
    ' office:value-type="string"><text:p>email</text:p></table:table-cell><table:table-cell'
    ' table:number-columns-repeated="500" office:value-type="string"><text:p>x</text:p>'
    "</table:table-cell></table:table-row></table:table></office:spreadsheet></office:body>"
    "</office:document-content>",
}


def build_sheet(*rows: str, after: str = "", before: str = "") -> str:
    return sheet_xml("".join(rows), after, before)


def with_cells(*references: str) -> bytes:
    row = '<row r="1">' + "".join(cell(each, "x") for each in references) + "</row>"
    return package(build_sheet(row))


def with_row_number(number: str) -> bytes:
    return package(build_sheet(f'<row r="{number}">{cell("", "email")}</row>'))


def with_part(name: str, content: str | None) -> bytes:
    return package(PEOPLE_SHEET, parts={name: content})


def with_second_cell(content: str) -> bytes:
    return package(PEOPLE_SHEET.replace("</row></sheetData>", f"{content}</row></sheetData>"))


def with_sheet(text: str | bytes) -> bytes:
    return package(PEOPLE_SHEET, parts={"xl/worksheets/sheet1.xml": text})


def forge_archive(
    data: bytes, *, version: int | None = None, flags: int | None = None, size: int | None = None
) -> bytes:
    """Return the archive with these values in all entries of its directory."""
    forged_data = bytearray(data)
    position = data.find(b"PK\1\2")
    while position >= 0:
        if version is not None:
            struct.pack_into("<H", forged_data, position + 6, version)
        if flags is not None:
            struct.pack_into("<H", forged_data, position + 8, flags)
        if size is not None:
            struct.pack_into("<I", forged_data, position + 24, size)
        position = data.find(b"PK\1\2", position + 1)
    return bytes(forged_data)


def with_sheets(entries: str) -> bytes:
    """Return a workbook with a small and a wide sheet, whose list of sheets has these entries."""
    names = f'xmlns="{MAIN}" xmlns:r="{OFFICE}" xmlns:x="{OFFICE}"'
    text = f"<workbook {names}><sheets>{entries}</sheets></workbook>"
    return package(PEOPLE_SHEET, WIDE_SHEET, parts={"xl/workbook.xml": text})


def add_prefix(text: str) -> str:
    return text.replace("<", "<x:").replace("<x:/", "</x:").replace("xmlns=", "xmlns:x=")


def repeat_text(text: str, times: int) -> bytes:
    return text.encode() * times


HOSTILE_WORKBOOKS: dict[str, tuple[Callable[[], bytes], str]] = {
    "two cells in opposite corners": (lambda: with_cells("A1", "XFD1048576"), TOO_LARGE),
    "301 columns": (lambda: with_cells("A1", "KO1"), TOO_LARGE),
    "six million cells": (lambda: with_cells("A1", "F1000000"), TOO_LARGE),
    "301 cells without positions": (lambda: with_cells(*[""] * 301), TOO_LARGE),
    "corners named by another prefix": (
        lambda: with_sheet(add_prefix(build_sheet(cell("A1", 1), cell("XFD1048576", 1)))),
        TOO_LARGE,
    ),
    "more merged ranges than a person makes": (
        lambda: package(build_sheet(after='<mergeCell ref="A1:B2"/>' * 100_001)),
        TOO_LARGE,
    ),
    "more errors than a person reads": (
        lambda: package(build_sheet('<row r="1"><c r="A1" t="e"><v>#N/A</v></c></row>' * 100_001)),
        TOO_LARGE,
    ),
    "a text of a megabyte in 5,000 cells": (
        lambda: package(
            build_sheet(
                *(f'<row r="{n}"><c r="A{n}" t="s"><v>0</v></c></row>' for n in range(1, 5001))
            ),
            parts={"xl/sharedStrings.xml": SHARED_TEXTS % f"<si><t>{'x' * 1024**2}</t></si>"},
        ),
        TOO_LARGE,
    ),
    "1,001 sheets": (lambda: package(*[PEOPLE_SHEET] * 1001), TOO_LARGE),
    "it claims to expand to 2 GB": (
        lambda: forge_archive(package(PEOPLE_SHEET), size=2**31),
        TOO_LARGE,
    ),
    "it expands to more than it claims": (
        lambda: forge_archive(package(PEOPLE_SHEET), size=40),
        DAMAGED,
    ),
    "entities in entities": (
        lambda: with_sheet(ENTITY_BOMB + PEOPLE_SHEET.replace("ann", "&h;")),
        DAMAGED,
    ),
    "entity from a file": (
        lambda: with_sheet(EXTERNAL_ENTITY + PEOPLE_SHEET.replace("ann", "&a;")),
        DAMAGED,
    ),
    **{
        f"document type in {name}": (
            partial(with_part, name, ENTITY_BOMB + text),
            DAMAGED,
        )
        for name, text in {
            "xl/sharedStrings.xml": SHARED_TEXTS % "",
            "xl/styles.xml": STYLES % "",
            "xl/workbook.xml": "<workbook/>",
            "xl/_rels/workbook.xml.rels": "<Relationships/>",
            "[Content_Types].xml": "<Types/>",
        }.items()
    },
    **{
        f"row {number!r}": (
            partial(with_row_number, number),
            DAMAGED,
        )
        for number in ("0", "-1", "1048577", "99999999999999999999", "1e3", "9" * 5000, "²")
    },
    "rows after the last row": (
        lambda: package(
            build_sheet(f'<row r="1048576">{cell("", "a")}</row><row>{cell("", "b")}</row>')
        ),
        DAMAGED,
    ),
    **{
        f"cell {reference!r}": (partial(with_cells, reference), DAMAGED)
        for reference in ("ZZZZ1", "XFE1", "A0", "1A", "A", "A1A", "A-1", "Ä1", "A²")
    },
    "missing shared text": (
        lambda: package(build_sheet('<row r="1"><c r="A1" t="s"><v>9</v></c></row>')),
        DAMAGED,
    ),
    "unknown type of a cell": (
        lambda: package(build_sheet('<row r="1"><c r="A1" t="zz"><v>9</v></c></row>')),
        DAMAGED,
    ),
    "sheet cut off": (lambda: with_sheet(PEOPLE_SHEET[:-40]), DAMAGED),
    "sheet that isn't XML": (lambda: with_sheet(os.urandom(3000)), DAMAGED),
    "sheet that isn't a sheet": (lambda: with_sheet("<chartsheet/>"), "import.empty"),
    "sheet in an unknown encoding": (
        lambda: with_sheet('<?xml version="1.0" encoding="klingon"?>' + PEOPLE_SHEET),
        DAMAGED,
    ),
    **{
        f"no {name}": (partial(with_part, name, None), DAMAGED)
        for name in (
            "xl/workbook.xml",
            "xl/_rels/workbook.xml.rels",
            "xl/worksheets/sheet1.xml",
            "_rels/.rels",
        )
    },
    "two parts with one name": (
        lambda: package(PEOPLE_SHEET, twice=["xl/worksheets/sheet1.xml"]),
        DAMAGED,
    ),
    "two parts that differ in case": (
        lambda: package(PEOPLE_SHEET, parts={"XL\\Workbook.xml": "<workbook/>"}),
        DAMAGED,
    ),
    "sheet on another server": (
        lambda: package(
            PEOPLE_SHEET,
            parts={
                "xl/_rels/workbook.xml.rels": '<Relationships><Relationship Id="rId1"'
                ' Target="http://127.0.0.1/x.xml" TargetMode="External"/></Relationships>'
            },
        ),
        DAMAGED,
    ),
    "sheet in two places": (
        lambda: package(
            PEOPLE_SHEET,
            parts={
                "xl/_rels/workbook.xml.rels": RELATIONSHIP
                % ("worksheet", "xl/worksheets/sheet1.xml"),
                "xl/xl/worksheets/sheet1.xml": WIDE_SHEET,
            },
        ),
        TOO_LARGE,
    ),
    "two main parts": (
        lambda: package(
            PEOPLE_SHEET,
            parts={
                "_rels/.rels": RELATIONSHIP.replace("><Rel", ">%s<Rel")
                % (
                    f'<Relationship Id="rId2" Type="{OFFICE}/officeDocument" Target="xl/b.xml"/>',
                    "officeDocument",
                    "xl/workbook.xml",
                )
            },
        ),
        DAMAGED,
    ),
    "OpenDocument spreadsheet behind a workbook": (
        lambda: package(
            PEOPLE_SHEET,
            parts={"_rels/.rels": RELATIONSHIP % ("officeDocument", "x.xml"), **OPEN_DOCUMENT},
        ),
        DAMAGED,
    ),
    "sheet with two parts": (
        lambda: with_sheets('<sheet name="A" sheetId="1" r:id="rId1" x:id="rId2"/>'),
        DAMAGED,
    ),
    "hidden wide sheet with the name of another sheet": (
        lambda: with_sheets(
            '<sheet name="A" sheetId="1" state="hidden" r:id="rId2"/>'
            '<sheet name="A" sheetId="2" r:id="rId1"/>'
        ),
        DAMAGED,
    ),
    **{
        f"{name} in a cell": (partial(with_second_cell, content), DAMAGED)
        for name, content in {
            "value in a CDATA section": '<c r="B2" t="str"><v><![CDATA[unsubscribed]]></v></c>',
            "partly hidden value": '<c r="B2" t="str"><v>not <![CDATA[un]]>subscribed</v></c>',
            "formula after its value": '<c r="B2"><v>5</v><f>1+4</f></c>',
            "formula after two others": '<c r="B2"><f>1</f><v>5</v><f>1+4</f></c>',
            "second value": '<c r="B2" t="str"><v>unsubscribed</v><v/></c>',
            "value before an inline text": '<c r="B2" t="inlineStr"><v>unsubscribed</v><is/></c>',
            "value after an inline text": '<c r="B2" t="inlineStr"><is/><v>unsubscribed</v></c>',
            "text outside of a value": '<c r="B2" t="str">unsubscribed</c>',
            "text outside of an inline text": '<c r="B2" t="inlineStr"><is>unsubscribed</is></c>',
            "text in a run": '<c r="B2" t="inlineStr"><is><r>unsubscribed</r></is></c>',
            "text after a value": '<c r="B2" t="str"><v/>unsubscribed</c>',
            "text after an inline text": '<c r="B2" t="inlineStr"><is><t/>unsubscribed</is></c>',
        }.items()
    },
    **{
        f"shared text {content!r}": (
            partial(with_part, "xl/sharedStrings.xml", SHARED_TEXTS % content),
            DAMAGED,
        )
        for content in (
            "<si>unsubscribed</si>",
            "<si><t>un</t>subscribed</si>",
            "<si><r>unsubscribed</r></si>",
            "<si><T>unsubscribed</T></si>",
        )
    },
    **{
        f"sheet in {encoding}": (
            partial(with_sheet, (mark + PEOPLE_SHEET).encode(encoding)),
            DAMAGED,
        )
        for encoding, mark in {
            "utf-16-le": "\ufeff",
            "utf-16-be": "\ufeff",
            "utf-16": '<?xml version="1.0" encoding="UTF-16"?>',
        }.items()
    },
    "unusual compression": (lambda: package(PEOPLE_SHEET, method=zipfile.ZIP_LZMA), DAMAGED),
    "encrypted entries": (lambda: forge_archive(package(PEOPLE_SHEET), flags=1), ENCRYPTED),
    "binary workbook": (
        lambda: package(
            PEOPLE_SHEET, main_type="application/vnd.ms-excel.sheet.binary.macroEnabled.main"
        ),
        UNKNOWN,
    ),
    "Word document": (
        lambda: package(
            PEOPLE_SHEET,
            main_type="application/vnd.openxmlformats-officedocument.wordprocessingml.document"
            ".main+xml",
        ),
        UNKNOWN,
    ),
}


def find_error_code(data: bytes) -> str:
    with pytest.raises(DomainError) as error:
        read_workbook(data)
    return error.value.code


@pytest.mark.parametrize("name", HOSTILE_WORKBOOKS)
def test_hostile_workbook_is_refused_with_the_right_error(name: str) -> None:
    build, code = HOSTILE_WORKBOOKS[name]
    assert find_error_code(build()) == code


def test_row_with_an_absurd_time_is_named_in_the_error() -> None:
    """A time of 1e300 days makes the library panic."""
    styles = STYLES % '<xf numFmtId="0"/><xf numFmtId="46"/>'
    rows = PEOPLE_SHEET.replace(
        "</sheetData>", '<row r="7"><c r="B7" s="1"><v>1e300</v></c></row></sheetData>'
    )
    with pytest.raises(DomainError, match="row 7 contains an invalid date or time") as error:
        read_workbook(package(rows, parts={"xl/styles.xml": styles}))
    assert error.value.code == DAMAGED


def test_zip_file_of_a_newer_version_is_refused() -> None:
    data = forge_archive(package(PEOPLE_SHEET), version=64)
    assert not containers.is_workbook(io.BufferedReader(io.BytesIO(data)))
    with pytest.raises(DomainError) as error:
        containers.open_container(io.BytesIO(data))
    assert error.value.code == "import.truncated"
    with pytest.raises(DomainError, match="zip directory"):
        read_workbook(data)


def test_overlapping_merged_ranges_are_refused_at_once() -> None:
    rows = f'<row r="1">{cell("A1", "x")}</row><row r="16000">{cell("KN16000", "x")}</row>'
    merged = '<mergeCell ref="A1:KN16000"/>' * 50_000
    with pytest.raises(DomainError, match="merged ranges cover"):
        read_workbook(package(build_sheet(rows, after=merged)))


@pytest.mark.slow
def test_million_formulas_without_values_are_read_in_bounded_memory() -> None:
    formulas = "<c><f>A1</f></c>" * 299
    rows = (
        f'<row r="{number}">{cell(f"A{number}", f"m{number}@example.com")}{formulas}</row>'
        for number in range(2, 3_347)
    )
    header = f'<row r="1">{cell("A1", "email")}{cell("B1", "Unsubscribed")}</row>'
    _, read = read_workbook(package(build_sheet(header, *rows)))
    codes = Counter(row.problem.code for row in read if isinstance(row, MemberRow) and row.problem)
    assert codes == {"row.status_unknown": 3_345}


@pytest.mark.slow
def test_hundred_thousand_number_formats_are_read_with_little_memory() -> None:
    numbers = range(100_000)
    zeros = "0" * 100
    formats = "".join(
        f'<numFmt numFmtId="{n}" formatCode="{zeros}&quot;{n}&quot;"/>' for n in numbers
    )
    styles = "".join(f'<xf numFmtId="{n}"/>' for n in numbers)
    row = f'<row r="2">{cell("A2", "ann@example.com")}<c r="B2" s="7"><v>5</v></c></row>'
    header = f'<row r="1">{cell("A1", "email")}{cell("B1", "code")}</row>'
    text = f'<styleSheet xmlns="{MAIN}"><numFmts>{formats}</numFmts><cellXfs>{styles}</cellXfs>'
    data = package(build_sheet(header, row), parts={"xl/styles.xml": text + "</styleSheet>"})
    opened = Workbook(io.BytesIO(data), len(data), limit=MemoryLimit.LOW)
    with closing(opened):
        for steps in opened.open(), opened.choose_sheet(None, None):
            deque(steps, maxlen=0)
        [member] = open_member_rows(opened)
    assert isinstance(member, MemberRow)
    assert member.cells[1] == "0" * 99 + "57"


@pytest.mark.slow
def test_millions_of_empty_shared_texts_fail_only_their_own_import() -> None:
    texts = SHARED_TEXTS.encode().replace(b"%s", repeat_text("<si/>", 45_000_000))
    assert (
        find_error_code(package(PEOPLE_SHEET, parts={"xl/sharedStrings.xml": texts})) == TOO_LARGE
    )


VALID_WORKBOOKS: dict[str, Callable[[], bytes]] = {
    "dimension of the whole sheet": lambda: with_sheet(
        PEOPLE_SHEET.replace("<sheetData>", '<dimension ref="A1:XFD1048576"/><sheetData>')
    ),
    "formatted cells without values": lambda: with_sheet(
        PEOPLE_SHEET.replace(
            "</sheetData>", '<row r="1048576"><c r="XFD1048576" s="0"/></row></sheetData>'
        )
    ),
    "names that leave the archive": lambda: package(
        PEOPLE_SHEET, parts={"../../etc/passwd": "x", "/etc/cron.d/x": "x", "xl/../../a": "x"}
    ),
    "links to other files": lambda: package(
        PEOPLE_SHEET,
        parts={
            "xl/worksheets/_rels/sheet1.xml.rels": '<Relationships><Relationship Id="rId1"'
            ' Target="file:///etc/passwd" TargetMode="External"/></Relationships>'
        },
    ),
    "a huge table of styles": lambda: package(
        PEOPLE_SHEET, parts={"xl/styles.xml": STYLES % ('<xf numFmtId="14"/>' * 500_000)}
    ),
    "values that aren't numbers": lambda: with_sheet(
        PEOPLE_SHEET.replace(
            "</sheetData>",
            '<row r="1"><c r="B1"><v>inf</v></c><c r="C1"><v>NaN</v></c>'
            '<c r="D1"><v>1e999</v></c><c r="E1"><v>x</v></c></row></sheetData>',
        )
    ),
    "deeply nested elements": lambda: with_sheet(
        PEOPLE_SHEET.replace("<sheetData>", "<a>" * 50_000 + "</a>" * 50_000 + "<sheetData>")
    ),
    "names with a prefix": lambda: with_sheet(add_prefix(PEOPLE_SHEET)),
    "main part in another folder, and a decoy in the usual one": lambda: package(
        WIDE_SHEET,
        parts={
            "_rels/.rels": RELATIONSHIP % ("officeDocument", "main/workbook.xml"),
            "main/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{OFFICE}"><sheets>'
            '<sheet name="Sheet1" sheetId="1" r:id="rId1"/></sheets></workbook>',
            "main/_rels/workbook.xml.rels": RELATIONSHIP % ("worksheet", "worksheets/a.xml"),
            "main/worksheets/a.xml": PEOPLE_SHEET,
        },
    ),
}


@pytest.mark.parametrize("name", VALID_WORKBOOKS)
def test_odd_but_valid_workbook_is_read(name: str) -> None:
    _, rows = read_workbook(VALID_WORKBOOKS[name]())
    assert rows[-1].cells[0] == "ann@example.com"


def test_zip64_workbook_is_read() -> None:
    file = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(package(PEOPLE_SHEET))) as source,
        zipfile.ZipFile(file, "w") as target,
    ):
        for name in source.namelist():
            with target.open(name, "w", force_zip64=True) as part:
                part.write(source.read(name))
    _, [row] = read_workbook(file.getvalue())
    assert row.cells == ["ann@example.com"]


def test_workbook_of_more_than_100_mb_is_refused_before_it_is_read() -> None:
    child = Workbook(io.BytesIO(b"PK"), 100 * 1024**2 + 1)
    with closing(child), pytest.raises(DomainError) as error:
        next(child.open())
    assert error.value.code == TOO_LARGE


@pytest.mark.parametrize(
    "bad_sheet",
    [WIDE_SHEET, PEOPLE_SHEET[:-40], build_sheet('<row r="1"><c r="A1" t="zz"><v>9</v></c></row>')],
)
def test_sheet_that_cannot_be_read_is_skipped_if_a_later_sheet_has_addresses(
    bad_sheet: str,
) -> None:
    reader, rows = read_workbook(package(bad_sheet, PEOPLE_SHEET))
    assert reader.description.sheet == "Sheet2"
    assert [row.cells for row in rows] == [["ann@example.com"]]


def test_error_of_the_first_unreadable_sheet_is_raised_if_no_sheet_has_addresses() -> None:
    notes = build_sheet('<row r="1">' + cell("A1", "Topic") + "</row>")
    assert find_error_code(package(notes, WIDE_SHEET, PEOPLE_SHEET[:-40])) == TOO_LARGE
    assert find_error_code(package(PEOPLE_SHEET[:-40], WIDE_SHEET, notes)) == DAMAGED


@pytest.mark.parametrize("seed", range(12))
def test_workbook_with_random_damage_is_read_or_refused(seed: int) -> None:
    """The test damages a few bytes of the archive, or one byte of a part before compression."""
    random_source = random.Random(seed)
    data = bytearray(workbook({"Members": [["email", "n"], ["ann@example.com", 1.5]]}))
    if seed % 2:
        file = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(file, "w") as target:
            damaged_name = random_source.choice(source.namelist())
            for name in source.namelist():
                part = bytearray(source.read(name))
                if name == damaged_name:
                    part[random_source.randrange(len(part))] = random_source.randrange(256)
                target.writestr(name, bytes(part))
        data = bytearray(file.getvalue())
    else:
        for _ in range(4):
            data[random_source.randrange(30, len(data))] = random_source.randrange(256)
    # Any other exception would be a bug.
    with suppress(DomainError):
        read_workbook(bytes(data))
