import json
from typing import Any

import pytest

from models import ImportKind
from services.subscriptions.imports.containers import open_ranged_file
from services.subscriptions.imports.formats import open_suppression_rows
from services.subscriptions.imports.json_lines_reader import convert_document
from services.subscriptions.imports.rows import MemberRow
from services.subscriptions.imports.suppression_files import SuppressionReader
from tests.support.imports.forms import Stored

pytestmark = pytest.mark.tier("check")

SES = {
    "SuppressedDestinationSummaries": [
        {"EmailAddress": "a@example.com", "Reason": "BOUNCE", "LastUpdateTime": "2026-01-01"},
        {"EmailAddress": "b@example.com", "Reason": "COMPLAINT", "LastUpdateTime": 1.5},
    ],
    "NextToken": "abc",
}
POSTMARK = {
    "Suppressions": [
        {"EmailAddress": "a@example.com", "SuppressionReason": "HardBounce", "Origin": "Recipient"},
        {"EmailAddress": "b@example.com", "SuppressionReason": "SpamComplaint", "Origin": "Admin"},
        {"EmailAddress": "c@example.com", "SuppressionReason": "ManualSuppression"},
    ]
}
MAILGUN = {
    "items": [
        {
            "address": "a@example.com",
            "code": "550",
            "error": "No such mailbox",
            "created_at": "Mon, 06 May 2024 18:11:58 UTC",
        },
        {"address": "d@example.com", "code": "421", "error": "Busy", "created_at": "Mon"},
    ],
    "paging": {"next": "https://api.mailgun.net/v3/x"},
}
SENDGRID = [
    {"created": 1443651125, "email": "a@example.com", "reason": "550 5.1.1 No", "status": "5.1.1"},
    {"created": 1433800303, "email": "d@example.com", "reason": "452 full", "status": "4.2.2"},
]
BREVO = {
    "count": 3,
    "contacts": [
        {
            "email": "a@example.com",
            "senderEmail": "news@example.org",
            "reason": {"code": "hardBounce", "message": "Hard bounced"},
            "blockedAt": "2026-01-01T00:00:00Z",
        },
        {"email": "b@example.com", "reason": {"code": "contactFlaggedAsSpam", "message": "Spam"}},
        {"email": "c@example.com", "reason": {"code": "unsubscribedViaEmail", "message": "Left"}},
    ],
}
MAY_PASS, KIND_UNKNOWN = "row.may_pass", "row.kind_unknown"
BOUNCED, COMPLAINED, LEFT = "bounced", "complained", "unsubscribed"
EACH = {"a@example.com": BOUNCED, "b@example.com": COMPLAINED, "c@example.com": LEFT}
A_AND_B = {"a@example.com": BOUNCED, "b@example.com": COMPLAINED}


def read(content: bytes, kind: ImportKind = ImportKind.SUPPRESSIONS) -> dict[str, str]:
    """By address the reason, or the code of the rejection by its last cell."""
    lines = convert_document(open_ranged_file(Stored(content)), len(content))
    reader = open_suppression_rows(lines)
    found: dict[str, str] = {}
    for row in SuppressionReader(reader.header, reader.sample, kind).read(reader):
        assert isinstance(row, MemberRow)
        found[row.email] = row.problem.code if row.problem else row.suppression.value
    return found


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (SES, A_AND_B),
        (POSTMARK, EACH),
        (BREVO, EACH),
        (MAILGUN, {"a@example.com": BOUNCED, "d@example.com": "row.may_pass"}),
        (SENDGRID, {"a@example.com": BOUNCED, "d@example.com": "row.may_pass"}),
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_suppression_lists_from_mail_provider_apis_are_read(
    document: Any, expected: dict[str, str], indent: int | None
) -> None:
    assert read(json.dumps(document, indent=indent).encode()) == expected
    assert read(b"\xef\xbb\xbf" + json.dumps(document).encode()) == expected


@pytest.mark.parametrize(
    ("file", "kind", "expected"),
    [
        # SES, as its bulk jobs have it: no header.
        ("a@example.com,BOUNCE\nb@example.com,COMPLAINT\n", "suppressions", A_AND_B),
        (
            (
                "EmailAddress,SuppressionReason,Origin,CreatedAt\n"
                "a@example.com,HardBounce,Recipient,2026-01-01\n"
                "b@example.com,SpamComplaint,Recipient,2026-01-01\n"
                "c@example.com,ManualSuppression,Customer,2026-01-01\n"
            ),
            "suppressions",
            EACH,
        ),
        # Mailgun: what the file is stands nowhere in it.
        ("address,created_at\nb@example.com,Mon\n", "complaints", {"b@example.com": COMPLAINED}),
        (
            "address,code,error,created_at\na@example.com,550,No,Mon\nd@example.com,450,Full,Mon\n",
            "bounces",
            {"a@example.com": BOUNCED, "d@example.com": MAY_PASS},
        ),
        # SendGrid.
        (
            "ip,email,created\n192.0.2.1,b@example.com,1\n",
            "complaints",
            {"b@example.com": COMPLAINED},
        ),
        (
            (
                "status,reason,email,created\n5.1.1,550 5.1.1 gone,a@example.com,1\n"
                "4.4.1,timeout,d@example.com,1\n,,e@example.com,1\n"
            ),
            "bounces",
            {
                "a@example.com": BOUNCED,
                "d@example.com": "row.may_pass",
                "e@example.com": "row.kind_unknown",
            },
        ),
        # If the file has a column of reasons, each row needs a recognised reason.
        (
            "email,reason\na@example.com,bounce\nb@example.com,spam\nc@example.com,\n",
            "suppressions",
            {**A_AND_B, "c@example.com": "row.kind_unknown"},
        ),
        ("email,reason\nb@example.com,Spam Report\n", "bounces", {"b@example.com": COMPLAINED}),
        ("email\nc@example.com\n", "suppressions", {"c@example.com": LEFT}),
        # Our own export, and those of other products: the status of each.
        (
            "email,status\na@example.com,bounced\nc@example.com,active\n",
            "suppressions",
            {"a@example.com": BOUNCED, "c@example.com": MAY_PASS},
        ),
        # A soft bounce, or a code that begins with 4, overrides a bounce in the same row.
        (
            (
                "email,bounceType,bounceSubType,diagnostic\n"
                "a@example.com,Permanent,General,550 5.1.1\n"
                "d@example.com,Transient,MailboxFull,smtp; 552 5.2.2 full\n"
            ),
            "bounces",
            {"a@example.com": BOUNCED, "d@example.com": MAY_PASS},
        ),
        (
            (
                "email,code\na@example.com,550-5.1.1 gone\nd@example.com,451 4.7.1\n"
                "e@example.com,554 4.4.7 expired\nf@example.com,250 OK\ng@example.com,99\n"
            ),
            "bounces",
            {
                "a@example.com": BOUNCED,
                **dict.fromkeys(("d@example.com", "e@example.com", "f@example.com"), MAY_PASS),
                "g@example.com": KIND_UNKNOWN,
            },
        ),
        # Postmark's type codes are not SMTP codes.
        (
            (
                "Email,TypeCode,BouncedAt\na@example.com,1,2024\nd@example.com,512,2024\n"
                "e@example.com,4096,2024\n"
            ),
            "bounces",
            {"a@example.com": BOUNCED, "d@example.com": MAY_PASS, "e@example.com": MAY_PASS},
        ),
        (
            (
                "email,event,reason\na@example.com,dropped,Bounced Address\n"
                "c@example.com,dropped,Unsubscribed Address\nd@example.com,dropped,Spam Content\n"
                "e@example.com,group_resubscribe,\nf@example.com,failed,\n"
            ),
            "bounces",
            {
                "a@example.com": BOUNCED,
                "c@example.com": LEFT,
                "d@example.com": MAY_PASS,
                "e@example.com": MAY_PASS,
                "f@example.com": KIND_UNKNOWN,
            },
        ),
        # Without a header, the column of reasons is recognised by its cells.
        (
            "a@example.com,BOUNCE\nb@example.com,COMPLAINT\nc@example.com,WHAT\n",
            "suppressions",
            {**A_AND_B, "c@example.com": KIND_UNKNOWN},
        ),
        # Postal codes and event times are not reasons.
        (
            "email,zip code,event time,expires\nb@example.com,45123,2024-01-02,soon\n",
            "complaints",
            {"b@example.com": COMPLAINED},
        ),
    ],
)
def test_suppression_files_of_mail_providers_are_read(
    file: str, kind: str, expected: dict[str, str]
) -> None:
    assert read(file.encode(), ImportKind(kind)) == expected


def test_late_event_type_in_json_lines_applies_to_earlier_suppression_rows() -> None:
    file = '{"email": "d@example.com"}\n' * 3_000
    file += '{"email": "b@example.com", "event": {"type": "spamReport"}}\n'
    settled = None
    for is_settled in (False, True):
        reader = open_suppression_rows(open_ranged_file(Stored(file.encode())))
        header, kind = reader.header, ImportKind.BOUNCES
        suppressions = SuppressionReader(header, reader.sample, kind, earlier_decisions=settled)
        rows = [row for row in suppressions.read(reader) if isinstance(row, MemberRow)]
        assert suppressions.has_misread_rows() is not is_settled
        settled = suppressions.find_decisions()
    assert (rows[0].suppression, rows[-1].suppression) == ("unknown", COMPLAINED)


def test_mapping_and_status_values_decide_the_meaning_of_suppression_rows() -> None:
    file = "email,why,type\na@example.com,9,x\nb@example.com,spam,HardBounce\nd@example.com,7,x\n"
    reader = open_suppression_rows(open_ranged_file(Stored(file.encode())))
    suppressions = SuppressionReader(
        reader.header,
        reader.sample,
        ImportKind.BOUNCES,
        mapping={"why": "status", "type": "ignore"},
        status_values={"9": "unsubscribed"},
    )
    statuses = [row.suppression for row in suppressions.read(reader) if isinstance(row, MemberRow)]
    assert statuses == [LEFT, COMPLAINED, "unknown"]
    assert suppressions.list_unknown_values() == [{"column": "why", "value": "7", "rows": 1}]
