"""The date and number formats that an import recognizes in the columns of a file."""

import pytest

from core import clock
from core.errors import DomainError
from models import MemberField
from services.subscriptions.imports.columns.column_forms import (
    ColumnForms,
    DecimalMark,
    normalise_number,
)
from services.subscriptions.imports.columns.dates import DateOrder, parse_date
from services.subscriptions.imports.columns.field_values import parse_value
from tests.support.imports.forms import read_rows

AUGUST_20 = "2025-08-20T00:00:00+00:00"
HALF_PAST_TWO = "2025-08-20T14:30:00+00:00"


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("2025-08-20", AUGUST_20),
        ("2025/8/20", AUGUST_20),
        ("20.08.2025", AUGUST_20),
        ("20.8.2025", AUGUST_20),
        ("20/08/2025", AUGUST_20),
        ("20-08-2025", AUGUST_20),
        ("45889", AUGUST_20),
        ("1755648000", AUGUST_20),
        ("1755648000000", AUGUST_20),
        ("Aug 20, 2025", AUGUST_20),
        ("August 20th, 2025", AUGUST_20),
        ("20 August 2025", AUGUST_20),
        ("20. August 2025", AUGUST_20),
        ("20-Aug-2025", AUGUST_20),
        ("20 août 2025", AUGUST_20),
        ("20 de agosto de 2025", AUGUST_20),
        ("20 августа 2025 \u0433.", AUGUST_20),
        ("2025年8月20日", AUGUST_20),
        ("20.08.2025 14:30", HALF_PAST_TWO),
        ("20.08.2025, 14:30:00", HALF_PAST_TWO),
        ("Aug 20, 2025 2:30 PM", HALF_PAST_TWO),
        ("45889.604166667", HALF_PAST_TWO),
        ("2025-08-20 16:30:00 +0200", HALF_PAST_TWO),
        ("1. März 2024", "2024-03-01T00:00:00+00:00"),
        ("1er mars 2024", "2024-03-01T00:00:00+00:00"),
        ("12 AM, Aug 20", None),
        ("20.08.25", AUGUST_20),
        ("20/8/25", AUGUST_20),
        ("20-Aug-25", AUGUST_20),
        ("20. August 25", AUGUST_20),
        ("Aug 20, 25", AUGUST_20),
        ("20.08.25 14:30", HALF_PAST_TWO),
        ("31.12.68", "2068-12-31T00:00:00+00:00"),
        ("31.12.69", "1969-12-31T00:00:00+00:00"),
        # Ambiguous, because the year may come first.
        ("20-08-25", None),
        ("31.12.125", None),
        ("08.20.25", None),
        ("08.20.2025", None),
        ("20 Foo 2025", None),
        ("20.08.2025 25:00", None),
        ("19999", None),
        ("2025", None),
    ],
)
def test_import_parses_common_date_formats_and_rejects_ambiguous_dates(
    cell: str, expected: str | None
) -> None:
    if expected is None:
        with pytest.raises(ValueError, match="must be a date"):
            parse_date(cell)
    else:
        moment = parse_date(cell)
        assert moment is not None
        assert moment.isoformat() == expected


@pytest.mark.parametrize("header", ["Geburtstag", "Date of birth", "fecha de nacimiento"])
def test_birthday_with_a_two_digit_year_is_never_in_the_future(header: str) -> None:
    year = clock.now().year
    for written_year, birth_year in ((year - 1, year - 1), (year + 1, year - 99), (1999, 1999)):
        field = MemberField(id=1, key="x", label=header, type="date", choices=[])
        cell = f"01.01.{written_year % 100:02}"
        assert parse_value(cell, field, ColumnForms(), 0) == f"{birth_year}-01-01"
        # Four-digit years are kept as written. Dates other than birthdays may be in the future.
        four_digit_date = parse_value(f"01.01.{written_year}", field, ColumnForms(), 0)
        renewal_field = MemberField(id=1, key="x", label="Renewal", type="date", choices=[])
        assert (
            four_digit_date
            == parse_value(cell, renewal_field, ColumnForms(), 0)
            == f"{written_year}-01-01"
        )


@pytest.mark.parametrize("header", ["Angemeldet am", "Created at", "Opt-in time"])
def test_join_date_with_a_two_digit_year_in_the_future_is_left_out(header: str) -> None:
    next_year = clock.now().year + 1
    file = f"email,{header}\na@example.com,01.01.{next_year % 100:02}\nb@example.com,01.02.24\n"
    future, past = read_rows(file)
    assert future.extras is not None
    assert (future.extras.joined_at, future.extras.claim) == (None, {})
    assert [each.rule for each in future.extras.left_out] == ["must not be in the future"]
    assert past.extras is not None
    assert str(past.extras.joined_at).startswith("2024-02-01")


def test_two_digit_years_do_not_settle_the_order_of_day_and_month() -> None:
    forms = ColumnForms()
    forms.parse_date(0, "03/04/24")
    with pytest.raises(DomainError) as error:
        forms.find_notations(["when"])
    assert error.value.code == "import.date_order_needed"
    with pytest.raises(ValueError, match="must be a date"):
        forms.parse_date(0, "12/31/24")
    assert forms.find_notations(["when"]) == {"0": "mdy"}


def test_dotted_date_is_always_read_with_the_day_first() -> None:
    cells = ["03.04.2025", "03/04/2025"]
    dates = [parse_date(cell, DateOrder.MONTH_FIRST) for cell in cells]
    assert [each and (each.day, each.month) for each in dates] == [(3, 4), (4, 3)]


@pytest.mark.parametrize(
    ("cell", "mark", "number"),
    [
        ("594,08", DecimalMark.COMMA, "594.08"),
        ("1.594,08", DecimalMark.COMMA, "1594.08"),
        ("1.594", DecimalMark.COMMA, "1594"),
        ("1\u202f594,08", DecimalMark.COMMA, "1594.08"),
        ("1'594.08", DecimalMark.POINT, "1594.08"),
        ("-1,594.08", DecimalMark.POINT, "-1594.08"),
        ("1.594", None, "1.594"),
        ("594.08", None, "594.08"),
        ("1e3", None, "1e3"),
        ("12 Euro", None, "12 Euro"),
    ],
)
def test_number_is_parsed_by_the_decimal_mark_of_its_column(
    cell: str, mark: DecimalMark | None, number: str
) -> None:
    assert normalise_number(cell, mark) == number


def test_number_with_an_ambiguous_thousands_separator_is_rejected() -> None:
    with pytest.raises(ValueError, match="ambiguous comma"):
        normalise_number("1,594", None)


def test_date_and_number_notations_learned_from_first_rows_need_no_second_reading() -> None:
    forms = ColumnForms()
    forms.learn([0], [1], [["03/04/2025", "1,5"], ["08/20/2025", "2"]])
    april = forms.parse_date(0, "04/03/2025")
    assert april is not None
    assert (april.month, forms.normalise_number(1, "1,594")) == (4, "1.594")
    notations = forms.find_notations(["when", "sum"])
    assert notations == {"0": "mdy", "1": "comma"}
    assert not forms.has_misread_cells(notations)


def test_date_notation_contradicted_by_later_rows_requires_a_second_reading() -> None:
    forms = ColumnForms()
    forms.parse_date(0, "03/04/2025")
    with pytest.raises(ValueError, match="must be a date"):
        forms.parse_date(0, "08/20/2025")
    notations = forms.find_notations(["when"])
    assert notations == {"0": "mdy"}
    assert forms.has_misread_cells(notations)
    assert not ColumnForms(notations).has_misread_cells(notations)
