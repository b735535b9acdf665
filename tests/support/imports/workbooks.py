"""Workbooks for tests, and a reader of their rows.

``workbook`` writes ordinary workbooks with XlsxWriter. ``package`` accepts any XML, so that a test
can write workbooks that no spreadsheet program writes.
"""

import io
import warnings
import zipfile
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import xlsxwriter

from services.subscriptions.imports.formats.formats import RowReader, open_member_rows
from services.subscriptions.imports.formats.workbooks.workbook import Workbook
from services.subscriptions.imports.rows import MemberRow, RejectedRecord

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
XLSX_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"
ENCRYPTED_BIT = 0x1


def workbook(sheets: Mapping[str, Sequence[Sequence[object]]], **formats: str) -> bytes:
    """Return an ordinary workbook. ``formats`` maps the letters of columns to number formats."""
    file = io.BytesIO()
    with xlsxwriter.Workbook(file, {"in_memory": True, "remove_timezone": True}) as book:
        styles = {
            letters: book.add_format({"num_format": text}) for letters, text in formats.items()
        }
        for name, rows in sheets.items():
            sheet = book.add_worksheet(name)
            for letters, style in styles.items():
                sheet.set_column(f"{letters}:{letters}", None, style)
            for number, row in enumerate(rows):
                sheet.write_row(number, 0, row)
    return file.getvalue()


def cell(reference: str, value: object) -> str:
    """Return the XML of a spreadsheet cell that contains a text or a number."""
    place = f' r="{reference}"' if reference else ""
    if isinstance(value, str):
        return f'<c{place} t="inlineStr"><is><t>{value}</t></is></c>'
    return f"<c{place}><v>{value}</v></c>"


def sheet_xml(rows: str, after: str = "", before: str = "") -> str:
    return f'<worksheet xmlns="{MAIN}">{before}<sheetData>{rows}</sheetData>{after}</worksheet>'


def package(
    *sheets: str,
    states: Sequence[str] = (),
    names: Sequence[str] = (),
    parts: Mapping[str, str | bytes | None] | None = None,
    twice: Sequence[str] = (),
    method: int = zipfile.ZIP_DEFLATED,
    main_type: str = XLSX_TYPE,
    workbook_options: str = "",
) -> bytes:
    """Return a workbook whose sheets contain the given XML.

    A workbook is a ZIP archive. ``parts`` maps the names of files in the archive to new content, or
    to None if the archive must not contain the file. ``twice``: the names of files that the
    archive contains twice.
    """
    numbers = range(1, len(sheets) + 1)
    titles = [*names, *(f"Sheet{number}" for number in numbers)][: len(sheets)]
    entries = "".join(
        f'<sheet name="{title}" sheetId="{number}" r:id="rId{number}"'
        f' state="{state or "visible"}"/>'
        for number, title, state in zip(
            numbers, titles, [*states, *[""] * len(sheets)], strict=False
        )
    )
    links = "".join(
        f'<Relationship Id="rId{number}" Type="{OFFICE}/worksheet"'
        f' Target="worksheets/sheet{number}.xml"/>'
        for number in numbers
    )
    content: dict[str, str | bytes | None] = {
        "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types">'
        '<Default Extension="xml" ContentType="application/xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{main_type}"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="rId1"'
        f' Type="{OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{OFFICE}">{workbook_options}'
        f"<sheets>{entries}</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{PACKAGE}/relationships">{links}'
        "</Relationships>",
        **{
            f"xl/worksheets/sheet{number}.xml": text
            for number, text in zip(numbers, sheets, strict=True)
        },
        **(parts or {}),
    }
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, text in content.items():
            if text is not None:
                archive.writestr(name, text)
        with warnings.catch_warnings(action="ignore"):
            for name in twice:
                archive.writestr(name, content[name] or "")
    return file.getvalue()


def open_workbook(
    data: bytes, sheet: str | None = None, mapping: Mapping[str, str] | None = None
) -> Workbook:
    opened = Workbook(io.BytesIO(data), len(data))
    try:
        for steps in (opened.open(), opened.choose_sheet(sheet, mapping)):
            deque(steps, maxlen=0)
    except BaseException:
        opened.close()
        raise
    return opened


def read_workbook(
    data: bytes,
    sheet: str | None = None,
    mapping: Mapping[str, str] | None = None,
    **options: Any,
) -> tuple[RowReader, list[MemberRow | RejectedRecord]]:
    with closing(open_workbook(data, sheet, mapping)) as opened:
        reader = open_member_rows(opened, "members.xlsx", mapping, **options)
        return reader, list(reader)
