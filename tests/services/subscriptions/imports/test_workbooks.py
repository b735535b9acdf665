"""Tests of the values that an import reads from an Excel workbook."""

import datetime
import io
import zipfile
from contextlib import closing
from typing import Any

import pytest

from core.errors import DomainError
from models import ImportKind
from services.subscriptions.imports.columns.column_forms import ColumnForms
from services.subscriptions.imports.columns.suppression_files import SuppressionReader
from services.subscriptions.imports.formats.formats import open_suppression_rows
from services.subscriptions.imports.rows import MemberRow, RejectedRecord, SuppressionStatus
from tests.support.imports.workbooks import (
    MAIN,
    cell,
    open_workbook,
    package,
    read_workbook,
    sheet_xml,
    workbook,
)

DAY = datetime.date(2025, 4, 3)
HEADER = '<row r="1">' + cell("A1", "email") + cell("B1", "note") + "</row>"


def read_only_row(data: bytes, **options: Any) -> MemberRow:
    _, [row] = read_workbook(data, **options)
    assert isinstance(row, MemberRow)
    return row


def read_cells(*values: object, **formats: str) -> list[str]:
    """Return the texts that an import reads from cells with these values."""
    header = ["email", *(f"column {number}" for number, _ in enumerate(values))]
    rows: list[list[object]] = [[*header], ["ann@example.com", *values]]
    return list(read_only_row(workbook({"Members": rows}, **formats)).cells[1:])


def read_error(data: bytes, **options: Any) -> DomainError:
    with pytest.raises(DomainError) as error:
        read_workbook(data, **options)
    return error.value


@pytest.mark.parametrize(
    ("value", "format_", "text"),
    [
        (12345, "", "12345"),
        (12345.5, "", "12345.5"),
        (0.1 + 0.2, "", "0.3"),
        (1e-7, "", "0.0000001"),
        (491701234567, "", "491701234567"),
        (123456789012345678, "", "123456789012346000"),
        (-0.0, "", "0"),
        (0.25, "0%", "0.25"),
        (True, "", "TRUE"),
        (False, "", "FALSE"),
        (45750, "dd.mm.yyyy", "2025-04-03"),
        (45750.4375, "m/d/yy h:mm", "2025-04-03 10:30:00"),
        (0.4375, "h:mm", "10:30:00"),
        (1.5, "[h]:mm", "36:00:00"),
        ("03/04/2025", "", "03/04/2025"),
        (1067, "00000", "01067"),
        (0, "00000", "00000"),
        (123456, "00000", "123456"),
        (1067.4, "00000", "01067"),
        (-67, "00000", "-00067"),
        (-67, "00000;(00000)", "(00067)"),
        (12345, "000-00", "123-45"),
        (45, "000-00", "000-45"),
        (301234567, "(000) 000-0000", "(030) 123-4567"),
        (1067, '"D-"00000', "D-01067"),
        (1067, "[Red][$-407]0\\ 0000_)", "0 1067"),
        (67, "#000", "067"),
        (67, "0###", "0067"),
        (612345678, '0#" "##" "##" "##" "##', "06 12 34 56 78"),
        (1067, "00000;-00000;;@", "01067"),
        (0, "00000;-00000;;@", "0"),
        (0, '00000;00000;"none"', "0"),
        (1e30, "00000", "1" + "0" * 30),
        (1e300, "00000", "1" + "0" * 300),
        (67, "0", "67"),
        (1067, "#,##0", "1067"),
        (1067, "0,000,000", "1067"),
        (7.5, "00.00", "7.5"),
        (0.25, "00%", "0.25"),
        (7, "[$€-407] 00", "7"),
        (7, '"€" 00', "7"),
        (7, "[<100]00;000", "7"),
        ("01067", "00000", "01067"),
        ("  Ann  ", "", "  Ann  "),
        ("Łódź 東京", "", "Łódź 東京"),
    ],
)
def test_typed_cell_becomes_an_unambiguous_text(value: object, format_: str, text: str) -> None:
    assert read_cells(value, **({"B": format_} if format_ else {})) == [text]


def test_dates_of_a_workbook_with_the_1904_date_system_are_read_correctly() -> None:
    styles = (
        '<styleSheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">'
        '<cellXfs count="2"><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs></styleSheet>'
    )
    row = '<row r="2">' + cell("A2", "ann@example.com") + '<c r="B2" s="1"><v>44288</v></c></row>'
    data = package(
        sheet_xml(HEADER + row),
        parts={"xl/styles.xml": styles},
        workbook_options='<workbookPr date1904="1"/>',
    )
    assert read_only_row(data).cells == ["ann@example.com", "2025-04-03"]


def test_owner_is_never_asked_for_the_order_of_typed_dates() -> None:
    rows: list[list[object]] = [
        ["email", "joined_at"],
        ["ann@example.com", DAY],
        ["ben@example.com", DAY],
    ]
    forms = ColumnForms()
    reader, (row, _) = read_workbook(workbook({"Members": rows}, B="dd/mm/yyyy"), forms=forms)
    assert forms.find_notations(reader.header) == {}
    assert isinstance(row, MemberRow)
    assert row.extras is not None
    assert row.extras.joined_at == "2025-04-03T00:00:00.000000Z"


def test_number_of_a_workbook_is_not_read_with_the_decimal_comma_of_texts() -> None:
    forms = ColumnForms()
    rows: list[list[object]] = [
        ["email", "score"],
        ["ann@example.com", 1.234],
        ["ben@example.com", "1,5"],
    ]
    reader, (number, text) = read_workbook(workbook({"Members": rows}))
    forms.learn([], [1], reader.sample)
    assert [forms.normalise_number(1, each.cells[1]) for each in (number, text)] == ["1.234", "1.5"]


def test_number_with_leading_zeros_is_a_text() -> None:
    rows: list[list[object]] = [["email", "code"], ["ann@example.com", 1067]]
    row = read_only_row(workbook({"Members": rows}, B="00000"))
    assert type(row.cells[1]) is str


@pytest.mark.parametrize(
    "content",
    [
        '<c r="B2" t="inlineStr"><v>unsubscribed</v></c>',
        '<c r="B2" s="0" t="inlineStr"><f>A1&amp;"x"</f><v>unsubscribed</v></c>',
        '<c r="B2" t="inlineStr"><is><r><t>unsub</t></r><r><t>scribed</t></r></is></c>',
        '<c r="B2" t="str"><is><t>unsubscribed</t></is></c>',
        '<c r="B2"><is><t>unsubscribed</t></is></c>',
        '<c r="B2" t="str"><v>unsub<!-- x -->scribed</v></c>',
        '<c r="B2" t="inlineStr"><is><t><![CDATA[unsubscribed]]></t></is></c>',
    ],
)
def test_text_of_a_cell_is_read_wherever_the_cell_has_it(content: str) -> None:
    row = '<row r="2">' + cell("A2", "ann@example.com") + content + "</row>"
    member = read_only_row(package(sheet_xml(HEADER + row)), mapping={"note": "status"})
    assert member.cells[1] == "unsubscribed"
    assert member.is_opt_out


def test_sheet_with_errors_and_inline_texts_is_read_whole() -> None:
    rows = "".join(
        f'<row r="{number}">'
        + cell(f"A{number}", f"m{number}@example.com")
        + (
            error_cell(f"B{number}", "#SPILL!")
            if number % 2
            else f'<c r="B{number}" t="inlineStr"><v>note &amp; {number}</v></c>'
        )
        + "</row>"
        for number in range(2, 8)
    )
    _, members = read_workbook(package(sheet_xml(HEADER + rows)))
    assert [member.cells[1] for member in members] == [
        "" if number % 2 else f"note & {number}" for number in range(2, 8)
    ]


UNCALCULATED = [
    '<c r="B2"><f>IF(D2&gt;0,"yes","no")</f></c>',
    '<c r="B2"><f>C2</f><v></v></c>',
    '<c r="B2"><f>C2</f><v/></c>',
    '<c r="B2"><f t="shared" si="0"/></c>',
    '<c r="B2"><f>C2</f><v> </v></c>',
]


@pytest.mark.parametrize("content", UNCALCULATED)
def test_formula_without_a_value_in_a_consent_column_never_adds_a_member(content: str) -> None:
    row = '<row r="2">' + cell("A2", "ann@example.com") + content + "</row>"
    data = package(sheet_xml(HEADER + row))
    member = read_only_row(data, mapping={"note": "unsubscribed"})
    assert member.problem is not None
    assert member.problem.code == "row.status_unknown"
    assert "never calculated" in member.problem.reason


@pytest.mark.parametrize("content", UNCALCULATED)
def test_formula_without_a_value_in_another_column_is_listed_as_a_problem(content: str) -> None:
    row = '<row r="2">' + cell("A2", "ann@example.com") + content + "</row>"
    member = read_only_row(package(sheet_xml(HEADER + row)))
    assert member.suppression is SuppressionStatus.WANTED
    assert member.extras is not None
    assert list(map(str, member.extras.left_out)) == [
        "note: the cell contains a formula that was never calculated"
    ]


def test_placeholder_of_a_program_that_does_not_calculate_is_not_a_value() -> None:
    """XlsxWriter stores 0 for each formula, and asks for a calculation when the file is opened."""
    header = ["email", "Unsubscribed", "score", "seats"]
    row = ["ann@example.com", '=IF(C2>0,"yes","no")', "=1+1", 0]
    member = read_only_row(workbook({"Members": [[*header], [*row]]}))
    assert member.problem is not None
    assert member.problem.code == "row.status_unknown"
    assert member.cells == ["ann@example.com", "", "", "0"]
    formula = '<c r="B2"><f>C2</f><v>0</v></c>'
    rows = HEADER + '<row r="2">' + cell("A2", "ann@example.com") + formula + "</row>"
    member = read_only_row(package(sheet_xml(rows)), mapping={"note": "unsubscribed"})
    assert member.suppression is SuppressionStatus.WANTED


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ('<c r="B1"><f>"Unsub"&amp;"scribed"</f></c>', "a formula that was never calculated"),
        ('<c r="B1" t="e"><v>#REF!</v></c>', "the error #REF!"),
    ],
)
def test_column_with_answers_below_an_unreadable_header_is_ambiguous(
    content: str, name: str
) -> None:
    def build(text: str) -> bytes:
        people = cell("A2", "ann@example.com") + cell("B2", text)
        header = f'<row r="1">{cell("A1", "email")}{content}</row>'
        return package(sheet_xml(f'{header}<row r="2">{people}</row>'))

    error = read_error(build("yes"))
    assert (error.code, repr(name) in error.message) == ("import.column_ambiguous", True)
    assert read_only_row(build("yes"), mapping={name: "unsubscribed"}).is_opt_out
    assert read_only_row(build("Ann Lee")).suppression is SuppressionStatus.WANTED


@pytest.mark.parametrize(
    "content", ['<c r="B2" t="str"><f>C2</f><v></v></c>', '<c r="B2"><v/></c>']
)
def test_stored_empty_text_is_empty(content: str) -> None:
    row = '<row r="2">' + cell("A2", "ann@example.com") + content + "</row>"
    member = read_only_row(package(sheet_xml(HEADER + row)), mapping={"note": "unsubscribed"})
    assert (member.suppression, member.extras) == (SuppressionStatus.WANTED, None)


def test_row_that_contains_only_formulas_without_values_is_rejected() -> None:
    formulas = '<row r="3"><c r="A3"><f>D3</f></c></row><row r="9"><c r="A9"><f>D9</f></c></row>'
    known = '<row r="2">' + cell("A2", "ann@example.com") + "</row>"
    _, [_, *rejected] = read_workbook(package(sheet_xml(HEADER + known + formulas)))
    reason = "The cell with the e-mail address contains a formula that was never calculated."
    assert rejected == [RejectedRecord(line, "row.no_email", reason, ()) for line in (3, 9)]


def test_formula_counts_as_the_value_that_was_last_saved() -> None:
    row = (
        '<row r="2">'
        + cell("A2", "ann@example.com")
        + '<c r="B2" t="str"><f>1/0</f><v>saved</v></c></row>'
    )
    assert read_only_row(package(sheet_xml(HEADER + row))).cells == ["ann@example.com", "saved"]
    row = '<row r="2">' + cell("A2", "ann@example.com") + '<c r="B2"><f>1+1</f></c></row>'
    assert read_only_row(package(sheet_xml(HEADER + row))).cells[0] == "ann@example.com"


def error_cell(reference: str, error: str = "#N/A") -> str:
    return f'<c r="{reference}" t="e"><v>{error}</v></c>'


def test_cell_with_an_error_is_empty_and_reported_as_a_problem() -> None:
    row = '<row r="2">' + cell("A2", "ann@example.com") + error_cell("B2") + "</row>"
    member = read_only_row(package(sheet_xml(HEADER + row)), mapping={"note": "tags"})
    assert member.cells == ["ann@example.com", ""]
    assert member.extras is not None
    assert list(map(str, member.extras.left_out)) == ["note: the cell contains the error #N/A"]
    ignored = read_only_row(package(sheet_xml(HEADER + row)))
    assert ignored.extras is None


@pytest.mark.parametrize(
    "error", ["#SPILL!", "#GETTING_DATA", "#CALC!", "#FIELD!", "#BLOCKED!", "Err:502", " #N/A"]
)
def test_error_of_a_newer_or_other_program_leaves_the_other_cells_readable(error: str) -> None:
    rows = "".join(
        f'<row r="{number}">'
        + cell(f"A{number}", f"m{number}@example.com")
        + (error_cell(f"B{number}", error) if number % 2 else cell(f"B{number}", "vip"))
        + "</row>"
        for number in range(2, 5_002)
    )
    content = sheet_xml(HEADER + rows)
    for text in (content, content.replace("<v>", "<x:v>").replace("</v>", "</x:v>")):
        data = package(text.replace("<worksheet ", f'<worksheet xmlns:x="{MAIN}" '))
        _, members = read_workbook(data, mapping={"note": "tags"})
        assert [(row.line, list(row.cells)) for row in members] == [
            (number, [f"m{number}@example.com", "" if number % 2 else "vip"])
            for number in range(2, 5_002)
        ]
        _, second, *_ = members
        assert isinstance(second, MemberRow)
        assert second.extras is not None
        assert list(map(str, second.extras.left_out)) == [
            f"note: the cell contains the error {error}"
        ]


def test_error_of_a_newer_program_in_an_earlier_sheet_leaves_the_members_readable() -> None:
    notes = sheet_xml('<row r="1">' + error_cell("A1", "#SPILL!") + "</row>")
    row = '<row r="2">' + cell("A2", "ann@example.com") + error_cell("B2", "#CALC!") + "</row>"
    assert read_only_row(package(notes, sheet_xml(HEADER + row))).email == "ann@example.com"


def test_row_with_an_error_in_its_address_is_rejected_with_the_error() -> None:
    row = '<row r="2">' + error_cell("A2", "#REF!") + "</row>"
    known = '<row r="3">' + cell("A3", "ann@example.com") + "</row>"
    _, [rejected, _] = read_workbook(package(sheet_xml(HEADER + row + known)))
    assert rejected == RejectedRecord(
        2, "row.no_email", "The cell with the e-mail address contains the error #REF!.", ()
    )


@pytest.mark.parametrize("mapping", [{"note": "unsubscribed"}, {"note": "status"}])
def test_error_in_a_consent_column_never_adds_a_member(mapping: dict[str, str]) -> None:
    row = '<row r="2">' + cell("A2", "ann@example.com") + error_cell("B2") + "</row>"
    member = read_only_row(package(sheet_xml(HEADER + row)), mapping=mapping)
    assert member.suppression is SuppressionStatus.UNKNOWN
    assert member.problem is not None
    assert member.problem.code == "row.status_unknown"
    assert "#N/A" in member.problem.reason


def build_table(header: list[str], *cells: str) -> bytes:
    """Return a workbook with this header, and one member with these cells after the address."""
    header_cells = "".join(cell(f"{'ABCD'[column]}1", text) for column, text in enumerate(header))
    row = cell("A2", "ann@example.com") + "".join(cells)
    return package(sheet_xml(f'<row r="1">{header_cells}</row><row r="2">{row}</row>'))


EXPIRY_HEADER = ["email", "tier", "paid_expiry", "status"]


@pytest.mark.parametrize("error", ["#N/A", "#SPILL!", ""])
@pytest.mark.parametrize("tier", ["gold", ""])
def test_error_in_the_expiry_of_a_paid_tier_rejects_the_row(error: str, tier: str) -> None:
    data = build_table(EXPIRY_HEADER, cell("B2", tier), error_cell("C2", error))
    _, [rejected] = read_workbook(data)
    assert isinstance(rejected, RejectedRecord)
    assert rejected.code == "row.expiry_unreadable"
    assert (error or "#N/A") in rejected.reason


def test_error_in_an_expiry_without_effect_keeps_the_row() -> None:
    free = read_only_row(build_table(EXPIRY_HEADER, cell("B2", "free"), error_cell("C2")))
    assert (free.tier, free.paid_expiry) == ("free", None)
    opt_out = read_only_row(
        build_table(EXPIRY_HEADER, cell("B2", "gold"), error_cell("C2"), cell("D2", "unsubscribed"))
    )
    assert opt_out.is_opt_out


@pytest.mark.parametrize("expiry", [cell("C2", "banana"), error_cell("C2")])
def test_error_in_a_consent_column_blocks_the_person_even_if_the_expiry_is_invalid(
    expiry: str,
) -> None:
    member = read_only_row(build_table(EXPIRY_HEADER, cell("B2", "gold"), expiry, error_cell("D2")))
    assert member.suppression is SuppressionStatus.UNKNOWN
    assert member.problem is not None
    assert member.problem.code == "row.status_unknown"


def test_merged_range_belongs_to_its_first_cell() -> None:
    rows = "".join(
        f'<row r="{number}">'
        + cell(f"A{number}", f"m{number}@example.com")
        + cell(f"B{number}", f"note {number}")
        + cell(f"C{number}", "x")
        + "</row>"
        for number in range(2, 6)
    )
    merged = '<mergeCells><mergeCell ref="B3:C4"/><mergeCell ref="B5"/></mergeCells>'
    _, members = read_workbook(package(sheet_xml(HEADER + rows, merged)))
    assert [list(row.cells[1:]) for row in members] == [
        ["note 2", "x"],
        ["note 3", ""],
        ["", ""],
        ["note 5", "x"],
    ]


def build_merged(merged: str, column_c: dict[int, str]) -> bytes:
    """Return a workbook with six members in the rows 2 to 7, and merged ranges."""
    header = HEADER.replace("</row>", cell("C1", "status") + "</row>")
    rows = "".join(
        f'<row r="{number}">'
        + cell(f"A{number}", f"m{number}@example.com")
        + cell(f"B{number}", f"note {number}")
        + column_c.get(number, "")
        + "</row>"
        for number in range(2, 8)
    )
    return package(
        sheet_xml(header + rows, f'<mergeCells><mergeCell ref="{merged}"/></mergeCells>')
    )


def list_problems(data: bytes) -> list[str]:
    """Return the status of each row, or the code of its problem."""
    _, members = read_workbook(data)
    return [
        str(row.suppression) if row.problem is None else row.problem.code
        for row in members
        if isinstance(row, MemberRow)
    ]


def test_merged_range_in_a_consent_column_holds_for_all_its_rows() -> None:
    status = cell("C3", "unsubscribed")
    expected = ["wanted", *["unsubscribed"] * 3, "wanted", "wanted"]
    assert list_problems(build_merged("C3:C5", {3: status})) == expected
    hidden = cell("C4", "active")
    assert list_problems(build_merged("C3:C5", {3: status, 4: hidden})) == expected
    assert list_problems(build_merged("B3:C5", {3: status, 7: cell("C7", "active")})) == [
        "wanted",
        *["row.status_unknown"] * 3,
        "wanted",
        "wanted",
    ]
    unreadable = [status.replace("unsubscribed", "?"), error_cell("C3"), '<c r="C3"><f>D3</f></c>']
    for content in unreadable:
        assert list_problems(build_merged("C3:C5", {3: content, 7: cell("C7", "active")})) == [
            "wanted",
            *["row.status_unknown"] * 3,
            "wanted",
            "wanted",
        ]


def test_merged_range_that_begins_in_the_header_belongs_to_its_first_cell() -> None:
    data = build_merged("C1:C3", {7: cell("C7", "unsubscribed")})
    assert list_problems(data) == [*["wanted"] * 5, "unsubscribed"]


def test_merged_reason_in_a_suppression_file_holds_for_all_its_rows() -> None:
    data = build_merged("C3:C5", {2: cell("C2", "complaint"), 3: cell("C3", "hard bounce")})
    with closing(open_workbook(data)) as opened:
        reader = open_suppression_rows(opened)
        suppressions = SuppressionReader(reader.header, reader.sample, ImportKind.SUPPRESSIONS)
        rows = [row for row in suppressions.read(reader) if isinstance(row, MemberRow)]
    bounced = SuppressionStatus.BOUNCED
    unknown = SuppressionStatus.UNKNOWN
    assert [row.suppression for row in rows] == [
        *(SuppressionStatus.COMPLAINED, bounced, bounced, bounced, unknown, unknown)
    ]


@pytest.mark.parametrize(
    ("folder", "main_part", "target"),
    [
        ("xl/", "book.xml", "xl/book.xml"),
        ("xl/", "Workbook2.xml", "/xl/Workbook2.xml"),
        ("xl/", "book.xml", "./xl/book.xml"),
        ("main/", "workbook.xml", "main/workbook.xml"),
        ("", "a b.xml", "a b.xml"),
    ],
)
def test_main_part_can_have_any_name(folder: str, main_part: str, target: str) -> None:
    """The text and the date need the part with the texts and the part with the styles."""
    rows: list[list[object]] = [["email", "day", "code"], ["ann@example.com", DAY, 7]]
    data = workbook({"Members": rows}, B="dd/mm/yyyy", C="000")
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(file, "w") as moved:
        for name in source.namelist():
            content = source.read(name)
            if name in ("_rels/.rels", "[Content_Types].xml"):
                old = b"/xl/workbook.xml" if name.startswith("[") else b"xl/workbook.xml"
                new = f"/{folder}{main_part}" if name.startswith("[") else target
                content = content.replace(old, new.encode())
            new_name = name.replace("xl/", folder).replace("workbook.xml", main_part)
            moved.writestr(new_name, content)
    row = read_only_row(file.getvalue())
    assert row.cells == ["ann@example.com", DAY.isoformat(), "007"]


def test_line_number_is_the_row_number_in_the_sheet() -> None:
    """The sheet has a title, blank rows, and a table that begins far from the first cell."""
    rows = (
        '<row r="4">' + cell("D4", "Our readers") + "</row>"
        '<row r="7">' + cell("D7", "email") + cell("E7", "name") + "</row>"
        '<row r="9">' + cell("D9", "ann@example.com") + cell("E9", "Ann") + "</row>"
        '<row r="12">' + cell("D12", "no address") + "</row>"
    )
    reader, [ann, other_row] = read_workbook(package(sheet_xml(rows)))
    assert (ann.line, ann.cells) == (9, ["ann@example.com", "Ann"])
    assert other_row.line == 12
    assert reader.header == ["email", "name"]
    assert reader.description.header_line == 7


def test_sheet_without_cell_positions_is_read_in_order() -> None:
    rows = (
        "<row>" + cell("", "email") + cell("", "name") + "</row>"
        "<row>" + cell("", "ann@example.com") + cell("", "Ann") + "</row>"
    )
    row = read_only_row(package(sheet_xml(rows)))
    assert (row.line, row.email, row.name) == (2, "ann@example.com", "Ann")


PEOPLE_ROWS = [["E-mail", "Name"], ["ann@example.com", "Ann"]]
NOTE_ROWS = [["Topic", "Date"], ["Party", DAY.isoformat()]]


def test_first_visible_sheet_with_an_address_column_is_read() -> None:
    people, notes = (
        sheet_xml(
            "".join(
                f'<row r="{number}">'
                + "".join(cell(f"{'AB'[column]}{number}", text) for column, text in enumerate(row))
                + "</row>"
                for number, row in enumerate(rows, start=1)
            )
        )
        for rows in (PEOPLE_ROWS, NOTE_ROWS)
    )
    data = package(
        people,
        people,
        notes,
        people,
        people,
        names=["Old", "Older", "Notes", "Members", "Copy"],
        states=["hidden", "veryHidden"],
    )
    reader, rows = read_workbook(data)
    assert reader.description.sheet == "Members"
    assert reader.description.sheets == [
        {"name": "Old", "hidden": True},
        {"name": "Older", "hidden": True},
        {"name": "Notes", "hidden": False},
        {"name": "Members", "hidden": False},
        {"name": "Copy", "hidden": False},
    ]
    assert [row.line for row in rows] == [2]
    for name in ("Copy", "Older", "oLDER"):
        assert read_workbook(data, name)[0].description.sheet == name.capitalize()


def test_column_mapping_decides_which_sheet_is_read() -> None:
    sheets = {"Notes": NOTE_ROWS, "Leute": [["Mitglied"], ["ann@example.com"]]}
    reader, _ = read_workbook(workbook(sheets), mapping={"Mitglied": "email"})
    assert reader.description.sheet == "Leute"


def test_workbook_without_an_address_column_names_the_columns_of_its_first_sheet() -> None:
    error = read_error(workbook({"Empty": [], "Notes": NOTE_ROWS, "More": [["x"], ["y"]]}))
    assert error.code == "import.no_email_column"
    assert "'Topic', 'Date'" in str(error)


def test_unknown_sheet_is_refused_with_the_names_of_the_sheets() -> None:
    error = read_error(workbook({"Members": PEOPLE_ROWS, "Notes": NOTE_ROWS}), sheet="Readers")
    assert error.code == "import.sheet_not_found"
    assert str(error) == (
        "The workbook has no sheet 'Readers'. The sheets are: 'Members', 'Notes'."
    )


@pytest.mark.parametrize("sheets", [{"Empty": []}, {"A": [], "B": []}])
def test_workbook_without_values_is_empty(sheets: dict[str, list[list[object]]]) -> None:
    assert read_error(workbook(sheets)).code == "import.empty"
    assert read_error(workbook(sheets), sheet=next(iter(sheets))).code == "import.empty"


@pytest.mark.parametrize(
    "main_type",
    [
        "application/vnd.ms-excel.sheet.macroEnabled.main+xml",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.template.main+xml",
    ],
)
def test_workbooks_with_macros_and_templates_are_read_like_other_workbooks(main_type: str) -> None:
    row = '<row r="2">' + cell("A2", "ann@example.com") + "</row>"
    data = package(
        sheet_xml(HEADER + row), main_type=main_type, parts={"xl/vbaProject.bin": b"\0macro"}
    )
    assert read_only_row(data).email == "ann@example.com"


def test_null_character_in_a_cell_is_removed_and_its_notation_in_a_text_is_kept() -> None:
    row = '<row r="2">' + cell("A2", "ann@example.com") + cell("B2", "a_x0000_b \\u0000") + "</row>"
    assert read_only_row(package(sheet_xml(HEADER + row))).cells[1] == "ab \\u0000"


def test_only_the_overlong_row_of_a_workbook_is_rejected() -> None:
    long_row = '<row r="2">' + cell("A2", "ann@example.com") + cell("B2", "x" * 300_000) + "</row>"
    row = '<row r="3">' + cell("A3", "ben@example.com") + "</row>"
    _, [rejected, ben] = read_workbook(package(sheet_xml(HEADER + long_row + row)))
    assert isinstance(rejected, RejectedRecord)
    assert (rejected.line, rejected.code) == (2, "row.too_long")
    assert isinstance(ben, MemberRow)
