import pytest

from services.subscriptions.imports.formats.csv_reader import (
    MAX_RECORD_CHARACTERS,
    MAX_RECORD_LINES,
    MAX_STRAY_QUOTES,
)
from services.subscriptions.imports.formats.line_blocks import MAX_LINE_CHARACTERS
from services.subscriptions.imports.rows import MemberRow, RejectedRecord
from tests.support.imports.forms import open_reader, read_outcomes, read_rows

OVERLONG_LINE = "x" * (MAX_LINE_CHARACTERS + 1)


def test_row_number_is_the_physical_line_where_its_record_begins() -> None:
    file = 'email,note\r\n"a@example.com","one\r\ntwo\r\n"\r\n\r\nb@example.com,\r\n,x\r\n'
    file += "c@example.com,"

    assert read_outcomes(file) == [
        (2, "a@example.com"),
        (6, "b@example.com"),
        (7, "row.no_email"),
        (8, "c@example.com"),
    ]


def test_unicode_line_separators_do_not_end_a_csv_line() -> None:
    file = "email,name\na@example.com,A\x0bB\x0cC\x1cD\u2028E\x85F\nb@example.com,\n"

    assert read_outcomes(file) == [(2, "a@example.com"), (3, "b@example.com")]


def test_overlong_line_is_rejected_and_surrounding_lines_are_read() -> None:
    file = f"email,name\na@example.com,A\nb@example.com,{OVERLONG_LINE}\n"
    file += f"c@example.com,C\n{OVERLONG_LINE}"

    assert read_outcomes(file) == [
        (2, "a@example.com"),
        (3, "row.too_long"),
        (4, "c@example.com"),
        (5, "row.too_long"),
    ]


def test_unclosed_quote_rejects_only_its_own_record() -> None:
    file = 'email,name\na@example.com,A\nb@example.com,"Bob\nc@example.com,C\nd@example.com,D'

    parsed_rows = [*open_reader(file)]

    assert read_outcomes(file) == [
        (2, "a@example.com"),
        (3, "row.unclosed_quote"),
        (4, "c@example.com"),
        (5, "d@example.com"),
    ]
    assert isinstance(parsed_rows[1], RejectedRecord)
    assert parsed_rows[1].cells == ["b@example.com", '"Bob']


def test_unclosed_quote_closed_by_a_later_record_swallows_no_member() -> None:
    file = (
        'email,name\na@example.com,"Ann\nb@example.com,Bob\nc@example.com,"Carl"\nd@example.com,D'
    )

    assert read_outcomes(file) == [
        (2, "row.unclosed_quote"),
        (3, "b@example.com"),
        (4, "c@example.com"),
        (5, "d@example.com"),
    ]


def test_stray_quotes_within_a_single_line_cell_are_tolerated() -> None:
    member_rows = read_rows('email,name\na@example.com,"Ann" Lee\nb@example.com,Bob "B" Lee\n')

    assert [row.name for row in member_rows] == ["Ann Lee", 'Bob "B" Lee']


def test_unclosed_quote_before_an_overlong_line_rejects_both_records_separately() -> None:
    file = f'email,name\na@example.com,"A\nb@example.com,B\n{OVERLONG_LINE}\nc@example.com,C\n'

    assert read_outcomes(file) == [
        (2, "row.unclosed_quote"),
        (3, "b@example.com"),
        (4, "row.too_long"),
        (5, "c@example.com"),
    ]


def test_unclosed_quote_far_from_the_end_of_file_rejects_only_its_own_record() -> None:
    members = "".join(f"m{n}@example.com,{'x' * 80}\n" for n in range(15_000))
    assert len(members) > MAX_RECORD_CHARACTERS

    outcomes = read_outcomes(f'email,name\na@example.com,"A\n{members}')

    assert outcomes[:2] == [(2, "row.unclosed_quote"), (3, "m0@example.com")]
    assert outcomes[-1] == (15_002, "m14999@example.com")
    assert len(outcomes) == 15_001


def test_record_with_too_many_lines_is_rejected_as_an_unclosed_quote() -> None:
    file = (
        'email,name\na@example.com,"' + "\n" * (MAX_RECORD_LINES + 2**17) + '"\nb@example.com,B\n'
    )

    assert read_outcomes(file)[0] == (2, "row.unclosed_quote")


def test_long_cell_with_many_lines_is_read_completely() -> None:
    note = "line\n" * 9_000
    (row,) = [*open_reader(f'email,note\na@example.com,"{note}"\n')]

    assert isinstance(row, MemberRow)
    assert row.cells[1] == note


@pytest.mark.slow
def test_file_full_of_stray_quotes_is_read_to_its_end() -> None:
    line = 'a"b,"c@example.com\n'

    outcomes = read_outcomes("email,name\n" + line * 60_000)

    assert len(outcomes) >= MAX_STRAY_QUOTES
    assert {code for _, code in outcomes} <= {"row.unclosed_quote", 'a"b'}


def test_blank_rows_are_skipped_without_a_problem() -> None:
    assert read_outcomes("email,name\n,\n , \n\t\n\na@example.com,\n") == [(6, "a@example.com")]


def test_row_with_fewer_or_more_cells_than_the_header_is_accepted() -> None:
    member_rows = read_rows("name,email,note\nAnn,a@example.com\nBob,b@example.com,x,y,z\n")

    assert [(row.name, row.email, len(row.cells)) for row in member_rows] == [
        ("Ann", "a@example.com", 2),
        ("Bob", "b@example.com", 5),
    ]


def test_invalid_json_line_is_rejected_with_its_line_number() -> None:
    file = f'{{"email": "a@example.com"}}\n\n{{"email": \n[1]\n{OVERLONG_LINE}\n{{"name": "B"}}\n'

    assert read_outcomes(file) == [
        (1, "a@example.com"),
        (3, "row.unreadable"),
        (4, "row.unreadable"),
        (5, "row.too_long"),
        (6, "row.no_email"),
    ]
