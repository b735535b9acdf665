"""Meanings of cells in consent columns: opted out, not subscribed, no effect or unrecognised."""

import pytest

from core.errors import DomainError
from services.subscriptions.imports.consent_interpreter import ConsentInterpreter
from services.subscriptions.imports.import_options import read_status_values
from services.subscriptions.imports.rows import MemberRow
from tests.support.imports.forms import opened

OPTED_OUT, NOTHING, UNKNOWN = "unsubscribed", "wanted", "unknown"
NOT_SUBSCRIBED, MAY_PASS = "not_subscribed", "may_pass"
# One header for each kind of consent column.
OPT_OUT, CONSENT, OPT_IN = "Unsubscribed", "Accepts marketing", "Opted in"
CONFIRMATION, STATUS = "Confirmed", "Status"

EMPTY = ["", " ", "null", "NULL", "[]", "{}", "[null]", "nan", r"\N"]
YES = ["yes", "TRUE", "1", "1.0", "x", "y", "t", "on", "ja", "Oui", "sí", "да", "✓", "[true]"]
NO = ["no", "FALSE", "0", "0.00", "n", "off", "Nein", "нет", "não", "✗"]
ZEROS = ["0000-00-00", "0000-00-00 00:00:00", "00/00/0000", "-", "–", "---", "n.a.", "none"]
DATES = ["2024-01-02", "02.01.2024", "1/2/2024", "2 janvier 2024", "1704189600", "45293"]
DATES += ["2024-01-02T10:00:00Z", "Jan 2, 2024 2:30 PM"]
UNKNOWN_CELLS = ["2", "-1", "?", "yes?", "perhaps", "0001-01-01", "9999-12-31", "a b c", "x" * 300]
UNKNOWN_CELLS += ["The reader was very happy with all of this", "[2, 3]", '{"a": 1}', "*", "100%"]
OPT_OUT_WORDS = {
    "unsubscribed": [
        *(
            "Unsubscribed",
            "unsubscribed (2024-01-02)",
            "Unsubscribed 2024-01-02 10:00:00",
            "opted-out",
        ),
        *("OptedOut", "Do Not Allow", "do not contact", "no consent", "blacklisted", "abgemeldet"),
        *("ausgetragen", "gesperrt", "Dado de baja", "désabonné", "disiscritto", "uitgeschreven"),
        *("avregistrerad", "wypisany", "отписан", "['UNSUBSCRIBED']", "has unsubscribed", "退订"),
        "unsubscribed by user: does not want our mails",
    ],
    "bounced": [
        "bounced_hard",
        "HARD_BOUNCE",
        "['HARD_BOUNCE']",
        '["hard_bounce"]',
        "hard bounce (550)",
    ],
    "complained": ["SPAM complaint", "marked as spam", "Reported as spam", "['SPAM_COMPLAINT']"],
    "cleaned": ["Cleaned", "invalid email"],
}
SOFT_BOUNCES = ["soft bounce", "SoftBounce", "bounced (soft)", "Bounced: 4.2.2", "['SOFT_BOUNCE']"]
CONTRADICTIONS = ["unsubscribed: no", "unsubscribed, resubscribed", "bounced 0", "unsubscribed?"]
ACTIVE = ["active", "aktiv", "Actif", "activo", "attivo", "ativo", "actief", "aktywny", "активен"]
PLANS = ["premium", "Past due", "churned"]
PENDING = ["pending", "Unconfirmed", "removed by admin", "gekündigt", "inactive", "Not subscribed"]
REFUSED = ["disabled", "denied", "withdrawn 2024-01-02", "abgelehnt"]


def read(header: str, *cells: str, readings: ConsentInterpreter | None = None) -> list[str]:
    lines = (
        f'p{n}@example.com,"{each}"\n'.replace('["', '[""').replace('"]', '""]')
        for n, each in enumerate(cells)
    )
    reader = opened(f"email,{header}\n" + "".join(lines), consent=readings)
    found = [row for row in reader if isinstance(row, MemberRow)]
    assert len(found) == len(cells)
    return [row.suppression.value for row in found]


@pytest.mark.parametrize(
    ("header", "answers"),
    [
        (
            OPT_OUT,
            {
                OPTED_OUT: [*YES, *DATES],
                NOTHING: [*EMPTY, *NO, *ZEROS, "Allow", "subscribed", "not unsubscribed", "opt-in"],
                UNKNOWN: [*UNKNOWN_CELLS, *CONTRADICTIONS, *ACTIVE, *PENDING, *REFUSED],
            },
        ),
        (
            CONSENT,
            {
                OPTED_OUT: [*NO, *REFUSED],
                NOTHING: [*EMPTY, *YES, *ACTIVE, "subscribed", "Allow", "granted"],
                UNKNOWN: [*UNKNOWN_CELLS, *CONTRADICTIONS, *ZEROS, *DATES, *PLANS],
                NOT_SUBSCRIBED: PENDING,
            },
        ),
        (
            OPT_IN,
            {
                NOTHING: [*EMPTY, *YES, "opted in", "double opt-in"],
                UNKNOWN: [*UNKNOWN_CELLS, *ZEROS, *DATES],
                NOT_SUBSCRIBED: [*NO, *PENDING],
            },
        ),
        (
            CONFIRMATION,
            {
                NOTHING: [*EMPTY, *YES, *DATES, *ACTIVE],
                NOT_SUBSCRIBED: [*NO, *PENDING],
                UNKNOWN: [
                    *UNKNOWN_CELLS,
                    *(word for each in OPT_OUT_WORDS.values() for word in each),
                ],
            },
        ),
        (
            STATUS,
            {
                OPTED_OUT: REFUSED,
                NOTHING: [*EMPTY, *ACTIVE, *PLANS, "subscribed", "confirmed"],
                NOT_SUBSCRIBED: PENDING,
                UNKNOWN: [*UNKNOWN_CELLS, *CONTRADICTIONS, *YES, *NO, *ZEROS, *DATES, "customer"],
            },
        ),
    ],
)
def test_consent_cell_is_interpreted_by_the_kind_of_its_column(
    header: str, answers: dict[str, list[str]]
) -> None:
    for answer, cells in answers.items():
        found = read(header, *cells)
        assert dict(zip(cells, found, strict=True)) == dict.fromkeys(cells, answer)


@pytest.mark.parametrize("header", [OPT_OUT, CONSENT, OPT_IN, STATUS])
def test_opt_out_word_counts_in_every_consent_column_except_confirmations(header: str) -> None:
    for status, cells in OPT_OUT_WORDS.items():
        assert dict(zip(cells, read(header, *cells), strict=True)) == dict.fromkeys(cells, status)
    assert set(read(header, *SOFT_BOUNCES)) == {MAY_PASS}


def test_bounce_column_distinguishes_hard_from_soft_bounces() -> None:
    cells = ["hard", "Permanent", "soft", "temporary", "", "unclear"]
    assert read("Bounce status", *cells) == [
        *("bounced", "bounced", MAY_PASS, MAY_PASS, NOTHING, UNKNOWN)
    ]


@pytest.mark.parametrize(
    ("header", "cells", "status", "code"),
    [
        ("Status,Unsubscribed", "active,yes", "unsubscribed", None),
        ("Status,Unsubscribed", "whatever,yes", "unsubscribed", None),
        ("Status,Unsubscribed", "whatever,no", UNKNOWN, "row.status_unknown"),
        ("Bounced,Spam report,Opt out", "1,1,1", "complained", None),
        ("Bounced,Opt out", "1,1", "bounced", None),
        ("Confirmed,Status", "no,perhaps", UNKNOWN, "row.status_unknown"),
        ("Confirmed,Status", "no,active", NOT_SUBSCRIBED, "row.not_subscribed"),
        ("Confirmed,Status", "yes,soft bounce", MAY_PASS, "row.may_pass"),
        # Next to a confirmation column, a no in an opt-in column only states how the person joined.
        ("Confirmed,optedin", "1,0", "wanted", None),
        ("Confirmed,optedin", "0,0", NOT_SUBSCRIBED, "row.not_subscribed"),
        ("Confirmed,optedin", ",0", NOT_SUBSCRIBED, "row.not_subscribed"),
        ("Confirmed,optedin", "1,opted out", "unsubscribed", None),
        ("Confirmed,Accepts email", "1,0", "unsubscribed", None),
    ],
)
def test_strictest_consent_value_of_a_row_wins(
    header: str, cells: str, status: str, code: str | None
) -> None:
    [row] = opened(f"email,{header}\na@example.com,{cells}\n")
    assert isinstance(row, MemberRow)
    assert row.suppression == status
    assert (row.problem.code if row.problem else None) == code


def test_unknown_consent_value_is_reported_with_its_column() -> None:
    [row] = opened("email,Status\na@example.com,gone fishing\n")
    assert isinstance(row, MemberRow)
    assert row.problem is not None
    assert "'gone fishing'" in row.problem.reason
    assert "'Status'" in row.problem.reason


def test_single_letter_statuses_count_only_in_the_newsletter_plugin_export() -> None:
    header = '"Email","Name","Surname","Gender","Status","Date","Token"\n'
    letters = ["C", "U", "B", "S", "P"]
    lines = [f"p{each}@example.com,,,,{each},2024-01-02,x\n" for each in letters]
    assert [
        row.suppression for row in opened(header + "".join(lines)) if isinstance(row, MemberRow)
    ] == [*("wanted", "unsubscribed", "bounced", "not_subscribed", "complained")]
    other = "".join([*lines, "a@example.com,,,,A,2024-01-02,x\n"])
    assert {row.suppression for row in opened(header + other) if isinstance(row, MemberRow)} == {
        UNKNOWN
    }
    assert set(read(STATUS, *letters)) == {UNKNOWN}


def test_unknown_word_in_a_combined_status_and_tier_column_is_not_a_status() -> None:
    assert read("Type", "platinum", "unsubscribed", "gold") == ["wanted", "unsubscribed", "wanted"]


def test_owner_defined_status_values_override_recognition_but_never_lift_an_opt_out() -> None:
    values = {"1": "subscribed", "2 ": "unsubscribed", "Drei": "bounced", "4": "complained"}
    values |= {"5": "not_subscribed", "active": "unsubscribed"}
    cells = ["1", "2", "DREI", "4", "5", "active", "6"]
    assert read(STATUS, *cells, readings=ConsentInterpreter(None, values)) == [
        *(
            "wanted",
            "unsubscribed",
            "bounced",
            "complained",
            NOT_SUBSCRIBED,
            "unsubscribed",
            UNKNOWN,
        )
    ]
    # In an opt-out column, a yes remains an opt-out, whatever the owner assigns to the value.
    readings = ConsentInterpreter(
        None, {"1": "subscribed", "2": "subscribed", "-1": "unsubscribed"}
    )
    assert read(OPT_OUT, "1", "2", "-1", readings=readings) == [OPTED_OUT, NOTHING, OPTED_OUT]
    # The owner assigned a status to a value of the column, so the column is a status.
    readings = ConsentInterpreter(None, {"9": "unsubscribed"})
    assert read("Kontaktstatus", "9", "8", readings=readings) == [OPTED_OUT, UNKNOWN]


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "[]",
            "{",
            '"2"',
            '{"2": 3}',
            '{"2": "gone"}',
            '{"2": "wanted"}',
            '{"2\\u0000": "bounced"}',
        ),
        *('{"Unsubscribed": "subscribed"}', '{"hard-bounce": "subscribed"}'),
        *('{"abgemeldet (2024)": "subscribed"}', '{"disabled": "subscribed"}'),
        "{" + ",".join(f'"{number}": "bounced"' for number in range(201)) + "}",
    ],
)
def test_status_values_that_are_malformed_or_lift_an_opt_out_are_rejected(text: str) -> None:
    with pytest.raises(DomainError) as error:
        read_status_values(text)
    assert error.value.code == "import.status_values"


def test_owner_defined_status_value_cannot_lift_an_opt_out_of_a_product_export() -> None:
    file = "email,status,tier,created_at\na@example.com,inactive,free,2024-01-01\n"
    with pytest.raises(DomainError) as error:
        opened(file, consent=ConsentInterpreter(None, {"inactive": "subscribed"}))
    assert error.value.code == "import.status_values"


def test_consent_values_are_counted_per_column_with_their_interpretation() -> None:
    readings = ConsentInterpreter()
    cells = ["active"] * 3_000 + ["2"] * 5 + ["3", "unsubscribed"] + [f"v{n}" for n in range(2_000)]
    read(STATUS, *cells, readings=readings)
    [values] = readings.list_values_by_column().values()
    assert values[:2] == [
        {"value": "2", "rows": 5, "read_as": "unknown"},
        {"value": "3", "rows": 1, "read_as": "unknown"},
    ]
    assert len(values) == 50
    readings = ConsentInterpreter()
    read("Opted out", *["no"] * 2_000, "yes", "x" * 100, readings=readings)
    assert readings.list_values_by_column() == {
        1: [
            {"value": "x" * 60, "rows": 1, "read_as": "unknown"},
            {"value": "no", "rows": 2_000, "read_as": "nothing"},
            {"value": "yes", "rows": 1, "read_as": "unsubscribed"},
        ]
    }
