"""Meanings of cells in consent columns: opted out, not subscribed, no effect or unrecognised."""

import pytest

from core.errors import DomainError
from services.subscriptions.imports.columns.consent_interpreter import ConsentInterpreter
from services.subscriptions.imports.import_options import read_status_values
from services.subscriptions.imports.rows import MemberRow
from tests.support.imports.forms import open_reader

OPTED_OUT = "unsubscribed"
WANTED = "wanted"
UNKNOWN = "unknown"
NOT_SUBSCRIBED = "not_subscribed"
MAY_PASS = "may_pass"
# One header for each kind of consent column.
OPT_OUT_HEADER = "Unsubscribed"
CONSENT_HEADER = "Accepts marketing"
OPT_IN_HEADER = "Opted in"
CONFIRMATION_HEADER = "Confirmed"
STATUS_HEADER = "Status"
HOLDING_HEADER = "On hold"

EMPTY_CELLS = ["", " ", "null", "NULL", "[]", "{}", "[null]", "nan", r"\N"]
YES_CELLS = ["yes", "TRUE", "1", "1.0", "x", "y", "t", "on", "ja", "Oui", "sí", "да", "✓", "[true]"]
NO_CELLS = ["no", "FALSE", "0", "0.00", "n", "off", "Nein", "нет", "não", "✗"]
PLACEHOLDER_CELLS = [
    "0000-00-00",
    "0000-00-00 00:00:00",
    "00/00/0000",
    "-",
    "–",
    "---",
    "n.a.",
    "none",
]
DATE_CELLS = ["2024-01-02", "02.01.2024", "1/2/2024", "2 janvier 2024", "1704189600", "45293"]
DATE_CELLS += ["2024-01-02T10:00:00Z", "Jan 2, 2024 2:30 PM"]
UNKNOWN_CELLS = ["2", "-1", "?", "yes?", "perhaps", "0001-01-01", "9999-12-31", "a b c", "x" * 300]
UNKNOWN_CELLS += ["The reader was very happy with all of this", "[2, 3]", '{"a": 1}', "*", "100%"]
OPT_OUT_CELLS_BY_STATUS = {
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
        "bounced (5.1.1)",
    ],
    "complained": ["SPAM complaint", "marked as spam", "Reported as spam", "['SPAM_COMPLAINT']"],
    "cleaned": ["Cleaned", "invalid email"],
}
SOFT_BOUNCE_CELLS = [
    "soft bounce",
    "SoftBounce",
    "bounced (soft)",
    "Bounced: 4.2.2",
    "Bounced (5.7.1)",
    "hard bounce: 552 5.2.2 mailbox full",
    "Hard bounce (mailbox full)",
    "bounced: quota exceeded",
    "['SOFT_BOUNCE']",
]
CONTRADICTORY_CELLS = [
    "unsubscribed: no",
    "unsubscribed, resubscribed",
    "bounced 0",
    "unsubscribed?",
]
ACTIVE_CELLS = [
    "active",
    "aktiv",
    "Actif",
    "activo",
    "attivo",
    "ativo",
    "actief",
    "aktywny",
    "активен",
]
PLAN_CELLS = ["premium", "Past due", "churned"]
PENDING_CELLS = [
    "pending",
    "Unconfirmed",
    "removed by admin",
    "gekündigt",
    "inactive",
    "Not subscribed",
]
HELD_CELLS = ["held", "On hold", "active (on hold)", "held 2024-01-02", "angehalten"]
REFUSAL_CELLS = ["disabled", "denied", "withdrawn 2024-01-02", "abgelehnt"]


def read_statuses(
    header: str, *cells: str, interpreter: ConsentInterpreter | None = None
) -> list[str]:
    lines = (
        f'p{n}@example.com,"{each}"\n'.replace('["', '[""').replace('"]', '""]')
        for n, each in enumerate(cells)
    )
    reader = open_reader(f"email,{header}\n" + "".join(lines), consent=interpreter)
    member_rows = [row for row in reader if isinstance(row, MemberRow)]
    assert len(member_rows) == len(cells)
    return [row.suppression.value for row in member_rows]


@pytest.mark.parametrize(
    ("header", "cells_by_status"),
    [
        (
            OPT_OUT_HEADER,
            {
                OPTED_OUT: [*YES_CELLS, *DATE_CELLS],
                WANTED: [
                    *EMPTY_CELLS,
                    *NO_CELLS,
                    *PLACEHOLDER_CELLS,
                    "Allow",
                    "subscribed",
                    "not unsubscribed",
                    "opt-in",
                ],
                UNKNOWN: [
                    *UNKNOWN_CELLS,
                    *CONTRADICTORY_CELLS,
                    *ACTIVE_CELLS,
                    *PENDING_CELLS,
                    *REFUSAL_CELLS,
                ],
            },
        ),
        (
            CONSENT_HEADER,
            {
                OPTED_OUT: [*NO_CELLS, *REFUSAL_CELLS],
                WANTED: [*EMPTY_CELLS, *YES_CELLS, *ACTIVE_CELLS, "subscribed", "Allow", "granted"],
                UNKNOWN: [
                    *UNKNOWN_CELLS,
                    *CONTRADICTORY_CELLS,
                    *PLACEHOLDER_CELLS,
                    *DATE_CELLS,
                    *PLAN_CELLS,
                ],
                NOT_SUBSCRIBED: PENDING_CELLS,
            },
        ),
        (
            OPT_IN_HEADER,
            {
                WANTED: [*EMPTY_CELLS, *YES_CELLS, "opted in", "double opt-in"],
                UNKNOWN: [*UNKNOWN_CELLS, *PLACEHOLDER_CELLS, *DATE_CELLS],
                NOT_SUBSCRIBED: [*NO_CELLS, *PENDING_CELLS],
            },
        ),
        (
            CONFIRMATION_HEADER,
            {
                WANTED: [*EMPTY_CELLS, *YES_CELLS, *DATE_CELLS, *ACTIVE_CELLS],
                NOT_SUBSCRIBED: [*NO_CELLS, *PENDING_CELLS],
                UNKNOWN: [
                    *UNKNOWN_CELLS,
                    *(word for each in OPT_OUT_CELLS_BY_STATUS.values() for word in each),
                ],
            },
        ),
        (
            STATUS_HEADER,
            {
                OPTED_OUT: REFUSAL_CELLS,
                WANTED: [*EMPTY_CELLS, *ACTIVE_CELLS, *PLAN_CELLS, "subscribed", "confirmed"],
                NOT_SUBSCRIBED: PENDING_CELLS,
                UNKNOWN: [
                    *UNKNOWN_CELLS,
                    *CONTRADICTORY_CELLS,
                    *YES_CELLS,
                    *NO_CELLS,
                    *PLACEHOLDER_CELLS,
                    *DATE_CELLS,
                    *HELD_CELLS,
                    "customer",
                ],
            },
        ),
        (
            HOLDING_HEADER,
            {
                OPTED_OUT: ["unsubscribed", "held: unsubscribed"],
                "bounced": ["held (bounced)", "On hold - hard bounce", "held, too many bounces"],
                MAY_PASS: ["on hold: soft bounce"],
                WANTED: [*EMPTY_CELLS, *NO_CELLS, *PLACEHOLDER_CELLS],
                UNKNOWN: [
                    *UNKNOWN_CELLS,
                    *YES_CELLS,
                    *DATE_CELLS,
                    *ACTIVE_CELLS,
                    *PENDING_CELLS,
                    *HELD_CELLS,
                    "held, not bounced",
                ],
            },
        ),
    ],
)
def test_consent_cell_is_interpreted_by_the_kind_of_its_column(
    header: str, cells_by_status: dict[str, list[str]]
) -> None:
    for status, cells in cells_by_status.items():
        statuses = read_statuses(header, *cells)
        assert dict(zip(cells, statuses, strict=True)) == dict.fromkeys(cells, status)


@pytest.mark.parametrize(
    "header",
    [OPT_OUT_HEADER, CONSENT_HEADER, OPT_IN_HEADER, STATUS_HEADER, HOLDING_HEADER, "Email allowed"],
)
def test_opt_out_word_counts_in_every_consent_column_except_confirmations(header: str) -> None:
    for status, cells in OPT_OUT_CELLS_BY_STATUS.items():
        assert dict(zip(cells, read_statuses(header, *cells), strict=True)) == dict.fromkeys(
            cells, status
        )
    assert set(read_statuses(header, *SOFT_BOUNCE_CELLS)) == {MAY_PASS}


def test_bounce_column_distinguishes_hard_from_soft_bounces() -> None:
    cells = ["hard", "Permanent", "soft", "temporary", "", "unclear"]
    assert read_statuses("Bounce status", *cells) == [
        *("bounced", "bounced", MAY_PASS, MAY_PASS, WANTED, UNKNOWN)
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
        ("Confirmed,Newsletter wanted", "yes,no", "wanted", None),
        ("Confirmed,Newsletter wanted", ",no", NOT_SUBSCRIBED, "row.not_subscribed"),
        ("Stop Time,Status", "2024-03-01 10:00,", "unsubscribed", None),
        ("Photo consent,Newsletter wanted", "no,yes", "wanted", None),
        ("On hold,Unsubscribed", "yes,yes", "unsubscribed", None),
        ("On hold,Unsubscribed", "yes,no", UNKNOWN, "row.status_unknown"),
    ],
)
def test_strictest_consent_value_of_a_row_wins(
    header: str, cells: str, status: str, code: str | None
) -> None:
    [row] = open_reader(f"email,{header}\na@example.com,{cells}\n")
    assert isinstance(row, MemberRow)
    assert row.suppression == status
    assert (row.problem.code if row.problem else None) == code


def test_unknown_consent_value_is_reported_with_its_column() -> None:
    [row] = open_reader("email,Status\na@example.com,gone fishing\n")
    assert isinstance(row, MemberRow)
    assert row.problem is not None
    assert "'gone fishing'" in row.problem.reason
    assert "'Status'" in row.problem.reason


def test_single_letter_statuses_count_only_in_the_newsletter_plugin_export() -> None:
    header = '"Email","Name","Surname","Gender","Status","Date","Token"\n'
    letters = ["C", "U", "B", "S", "P"]
    lines = [f"p{each}@example.com,,,,{each},2024-01-02,x\n" for each in letters]
    assert [
        row.suppression
        for row in open_reader(header + "".join(lines))
        if isinstance(row, MemberRow)
    ] == [*("wanted", "unsubscribed", "bounced", "not_subscribed", "complained")]
    lines_with_unknown_letter = "".join([*lines, "a@example.com,,,,A,2024-01-02,x\n"])
    assert {
        row.suppression
        for row in open_reader(header + lines_with_unknown_letter)
        if isinstance(row, MemberRow)
    } == {UNKNOWN}
    assert set(read_statuses(STATUS_HEADER, *letters)) == {UNKNOWN}


def test_unknown_word_in_a_combined_status_and_tier_column_is_not_a_status() -> None:
    assert read_statuses("Type", "platinum", "unsubscribed", "gold") == [
        "wanted",
        "unsubscribed",
        "wanted",
    ]
    assert read_statuses("Type", "gold", "gold, on hold") == ["wanted", UNKNOWN]


def test_owner_defined_status_values_override_recognition_but_never_lift_an_opt_out() -> None:
    values = {"1": "subscribed", "2 ": "unsubscribed", "Drei": "bounced", "4": "complained"}
    values |= {"5": "not_subscribed", "active": "unsubscribed"}
    cells = ["1", "2", "DREI", "4", "5", "active", "6"]
    assert read_statuses(STATUS_HEADER, *cells, interpreter=ConsentInterpreter(None, values)) == [
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
    interpreter = ConsentInterpreter(
        None, {"1": "subscribed", "2": "subscribed", "-1": "unsubscribed"}
    )
    assert read_statuses(OPT_OUT_HEADER, "1", "2", "-1", interpreter=interpreter) == [
        OPTED_OUT,
        WANTED,
        OPTED_OUT,
    ]
    # The owner assigned a status to a value of the column, so the column is a status.
    interpreter = ConsentInterpreter(None, {"9": "unsubscribed"})
    assert read_statuses("Kontaktstatus", "9", "8", interpreter=interpreter) == [OPTED_OUT, UNKNOWN]
    interpreter = ConsentInterpreter(None, {"1": "subscribed", "yes": "not_subscribed"})
    assert read_statuses("Status ID", "1", "2", interpreter=interpreter) == [WANTED, UNKNOWN]
    for header in "Held", "Newsletter cancelled":
        interpreter = ConsentInterpreter(None, {"yes": "not_subscribed"})
        assert read_statuses(header, "yes", "held", interpreter=interpreter) == [
            NOT_SUBSCRIBED,
            UNKNOWN,
        ]


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
        open_reader(file, consent=ConsentInterpreter(None, {"inactive": "subscribed"}))
    assert error.value.code == "import.status_values"


def test_consent_values_are_counted_per_column_with_their_interpretation() -> None:
    interpreter = ConsentInterpreter()
    cells = ["active"] * 3_000 + ["2"] * 5 + ["3", "unsubscribed"] + [f"v{n}" for n in range(2_000)]
    read_statuses(STATUS_HEADER, *cells, interpreter=interpreter)
    [values] = interpreter.list_values_by_column().values()
    assert values[:2] == [
        {"value": "2", "rows": 5, "read_as": "unknown"},
        {"value": "3", "rows": 1, "read_as": "unknown"},
    ]
    assert len(values) == 50
    interpreter = ConsentInterpreter()
    read_statuses("Opted out", *["no"] * 2_000, "yes", "x" * 100, interpreter=interpreter)
    assert interpreter.list_values_by_column() == {
        1: [
            {"value": "x" * 60, "rows": 1, "read_as": "unknown"},
            {"value": "no", "rows": 2_000, "read_as": "nothing"},
            {"value": "yes", "rows": 1, "read_as": "unsubscribed"},
        ]
    }
