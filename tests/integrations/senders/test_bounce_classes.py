"""Tests of the table that classifies bounces by their enhanced status codes.

The table applies to senders' reports and to imported files.
"""

import csv
import io
from collections.abc import Mapping
from typing import Any

import pytest

from integrations.senders.generic import ENVELOPE_TYPE, GenericAdapter
from models import ImportKind
from services.subscriptions.imports.columns.suppression_files import SuppressionReader
from services.subscriptions.imports.formats.containers import open_ranged_file
from services.subscriptions.imports.formats.formats import open_suppression_rows
from services.subscriptions.imports.rows import MemberRow
from tests.support.imports.forms import StoredObject
from tests.support.senders.adapters import ADDRESS, describe, parse_one

pytestmark = pytest.mark.tier("check")

CLASSES = ("hard", "soft", "blocked", "content")
# Maps each code to the classes of bounces that a provider calls hard, soft, blocked and content.
CLASSES_BY_CODE = {
    **dict.fromkeys(("5.1.1", "5.1.2", "5.1.3", "5.1.6", "5.1.10"), ("hard",) * 4),
    **dict.fromkeys(("5.1.0", "5.2.0", "5.2.1", "5.4.1", "5.4.4"), CLASSES),
    **dict.fromkeys(("5.0.0", "5.1.4", "5.1.11", "5.2.4", "5.8.1", "5.10.1"), CLASSES),
    **dict.fromkeys(("5.2.2", "4.2.2"), ("soft", "soft", "blocked", "content")),
    **dict.fromkeys(("4.0.0", "4.1.1", "4.4.7", "4.10.1"), ("soft", "soft", "blocked", "content")),
    **dict.fromkeys(("5.1.7", "5.1.8", "5.2.3"), ("blocked", "blocked", "blocked", "content")),
    **dict.fromkeys(("5.3.0", "5.3.4", "5.4.0"), ("blocked", "blocked", "blocked", "content")),
    **dict.fromkeys(("5.4.7", "5.4.14", "5.5.4"), ("blocked", "blocked", "blocked", "content")),
    **dict.fromkeys(("5.6.0", "5.7.1", "5.7.26"), ("blocked", "blocked", "blocked", "content")),
    **dict.fromkeys(("4.7.0", "4.7.28", "5.07.01"), ("blocked", "blocked", "blocked", "content")),
}


def report_bounce(bounce: dict[str, Any]) -> str:
    report = {"kind": "bounced", "email": ADDRESS, "bounce": bounce}
    envelope = {"type": ENVELOPE_TYPE, "timestamp": "x", "data": {"reports": [report]}}
    return describe(parse_one(GenericAdapter(), envelope))


def read_row(cells: Mapping[str, str], kind: ImportKind = ImportKind.BOUNCES) -> str:
    """Return the suppression status or the error code of the only row of a file."""
    text = io.StringIO()
    csv.writer(text).writerows([["email", *cells], [ADDRESS, *cells.values()]])
    reader = open_suppression_rows(open_ranged_file(StoredObject(text.getvalue().encode())))
    [row] = SuppressionReader(reader.header, reader.sample, kind).read(reader)
    assert isinstance(row, MemberRow)
    return row.problem.code if row.problem else row.suppression.value


@pytest.mark.parametrize(("code", "classes"), CLASSES_BY_CODE.items())
def test_code_of_a_bounce_decides_in_reports_and_in_files(
    code: str, classes: tuple[str, ...]
) -> None:
    effects = [report_bounce({"class": name, "status": code}) for name in CLASSES]
    assert effects == [f"bounced {name} {code}" for name in classes]
    reply = f"smtp; 5{code[0]}0 {code} Refused by the server"
    for cells in (
        {"bounceType": "{}", "diagnosticCode": reply},
        {"reason": reply, "status": code, "type": "{}"},
        {"code": f"({code}) Refused", "kind": "{}"},
        {"bounce_type": "{}", "SMTP Response": f"host mx.example.org said: 550-{code} Refused"},
        {"event": "bounce", "type": "{}", "server response": f"550 [{code}]: no"},
        {"type": "{}", "response": f"550 {code[0]}.0.0 {code} no"},
        {"type": "{}", "response": f"[550] {code} no"},
        {"type": "{}", "response": f"Refused with code {code}"},
        # A full reply of a mail server is read below every header.
        {"type": "{}", "Anmerkung": f"host said: 550 {code} Refused"},
        {"type": "{}", "описание": f"550-{code} Refused"},
    ):
        words = {"Permanent": classes[0], "Transient": classes[1], "blocked": classes[2]}
        for word, name in words.items():
            row = {header: cell.format(word) for header, cell in cells.items()}
            expected = "bounced" if name == "hard" else "row.may_pass"
            assert read_row(row) == expected, row
    # Without a word in the file, a code that names no cause means a hard bounce.
    expected = "bounced" if classes[0] == "hard" else "row.may_pass"
    assert read_row({"code": f"{code} Refused"}, ImportKind.SUPPRESSIONS) == expected


def test_bounce_without_a_code_has_the_class_that_the_provider_names() -> None:
    assert [report_bounce({"class": name}) for name in CLASSES] == [
        f"bounced {name}" for name in CLASSES
    ]
    assert report_bounce({"class": "hard", "status": "2.1.5"}) == "bounced hard 2.1.5"


@pytest.mark.parametrize(
    ("cells", "status"),
    [
        ({"code": "550"}, "bounced"),
        ({"code": "550 No such user", "type": "Permanent"}, "bounced"),
        ({"code": "550 Busy", "type": "Transient"}, "row.may_pass"),
        ({"code": "450 Busy", "type": ""}, "row.may_pass"),
        ({"code": "450 Busy", "type": "Permanent"}, "row.may_pass"),
        # A code that names a cause decides, wherever it stands in the row.
        ({"code": "550", "type": "Permanent", "status": "5.7.1"}, "row.may_pass"),
        ({"status": "5.0.0", "reason": "550 5.1.1 Unknown"}, "bounced"),
        ({"status": "5.0.0", "reason": "550-5.7.26 Unauthenticated"}, "row.may_pass"),
        ({"reason": "550 5.7.1 Policy", "status": "5.1.1"}, "bounced"),
        # Product's own numbers are words for the bounce.
        ({"TypeCode": "1", "Details": "smtp;550 5.7.1 Policy"}, "row.may_pass"),
        ({"TypeCode": "2", "Details": "smtp;550 5.1.1 Unknown"}, "bounced"),
        ({"bounce_class": "10", "raw_reason": "550 5.6.0 Content"}, "row.may_pass"),
        # Below the header of another subject, a number alone isn't a code.
        ({"type": "hard", "app version": "5.7.1"}, "bounced"),
        ({"type": "hard", "note": "client 4.2.1 at 192.0.2.1"}, "bounced"),
        # A column can say that a bounce isn't hard.
        ({"event": "bounce", "hard_bounce": "0"}, "row.may_pass"),
        ({"event": "bounce", "hard_bounce": "true"}, "bounced"),
        ({"event": "bounce", "hard_bounce": "no", "response": "550 5.1.1 Unknown"}, "bounced"),
        ({"event": "spam", "hard_bounce": "0"}, "complained"),
        # The words behind a bounce can blame something other than the address.
        ({"reason": "Hard bounce: mailbox full"}, "row.may_pass"),
        ({"reason": "Bounced - blocked"}, "row.may_pass"),
        ({"reason": "Hard bounce (policy)"}, "row.may_pass"),
        ({"reason": "Bounced: user unknown"}, "bounced"),
        ({"reason": "blacklisted sender 192.0.2.1"}, "row.may_pass"),
        ({"reason": "blacklisted"}, "unsubscribed"),
        # A code never opts out a person about whom the row reports no bounce.
        ({"event": "delivered", "response": "550 5.1.1 Unknown"}, "row.may_pass"),
        ({"event": "Subscribe", "code": "5.1.1"}, "row.may_pass"),
        # A code takes back neither a complaint nor an unsubscription.
        ({"reason": "SpamComplaint", "details": "550 5.7.1 Policy"}, "complained"),
        ({"reason": "unsubscribed", "details": "550 5.7.1 Policy"}, "unsubscribed"),
    ],
)
def test_words_and_codes_of_a_row_agree_on_one_status(cells: dict[str, str], status: str) -> None:
    assert read_row(cells) == status


def test_owner_decides_about_values_that_contain_a_code() -> None:
    text = b"email,code\na@example.com,5.7.1\nb@example.com,5.7.26\n"
    reader = open_suppression_rows(open_ranged_file(StoredObject(text)))
    values = {"5.7.1": "bounced"}
    suppressions = SuppressionReader(
        reader.header, reader.sample, ImportKind.BOUNCES, status_values=values
    )
    rows = [row for row in suppressions.read(reader) if isinstance(row, MemberRow)]
    assert [row.suppression for row in rows] == ["bounced", "may_pass"]
