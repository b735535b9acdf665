import json
from typing import Any

import pytest

from models import ImportKind
from services.subscriptions.imports.columns.suppression_files import SuppressionReader
from services.subscriptions.imports.formats.containers import open_ranged_file
from services.subscriptions.imports.formats.formats import open_suppression_rows
from services.subscriptions.imports.formats.json_lines_reader import convert_document
from services.subscriptions.imports.rows import MemberRow
from tests.support.imports.forms import StoredObject

pytestmark = pytest.mark.tier("check")

SES_DOCUMENT = {
    "SuppressedDestinationSummaries": [
        {"EmailAddress": "a@example.com", "Reason": "BOUNCE", "LastUpdateTime": "2026-01-01"},
        {"EmailAddress": "b@example.com", "Reason": "COMPLAINT", "LastUpdateTime": 1.5},
    ],
    "NextToken": "abc",
}
POSTMARK_DOCUMENT = {
    "Suppressions": [
        {"EmailAddress": "a@example.com", "SuppressionReason": "HardBounce", "Origin": "Recipient"},
        {"EmailAddress": "b@example.com", "SuppressionReason": "SpamComplaint", "Origin": "Admin"},
        {"EmailAddress": "c@example.com", "SuppressionReason": "ManualSuppression"},
    ]
}
MAILGUN_DOCUMENT = {
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
SENDGRID_DOCUMENT = [
    {"created": 1443651125, "email": "a@example.com", "reason": "550 5.1.1 No", "status": "5.1.1"},
    {"created": 1433800303, "email": "d@example.com", "reason": "452 full", "status": "4.2.2"},
]
BREVO_DOCUMENT = {
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
MAY_PASS = "row.may_pass"
KIND_UNKNOWN = "row.kind_unknown"
BOUNCED = "bounced"
COMPLAINED = "complained"
UNSUBSCRIBED = "unsubscribed"
REASON_OF_EACH_KIND = {
    "a@example.com": BOUNCED,
    "b@example.com": COMPLAINED,
    "c@example.com": UNSUBSCRIBED,
}
BOUNCE_AND_COMPLAINT = {"a@example.com": BOUNCED, "b@example.com": COMPLAINED}


def read_reasons(content: bytes, kind: ImportKind = ImportKind.SUPPRESSIONS) -> dict[str, str]:
    """Map each address in a suppression list to its suppression reason, or to its error code."""
    lines = convert_document(open_ranged_file(StoredObject(content)), len(content))
    reader = open_suppression_rows(lines)
    reasons: dict[str, str] = {}
    for row in SuppressionReader(reader.header, reader.sample, kind).read(reader):
        assert isinstance(row, MemberRow)
        reasons[row.email] = row.problem.code if row.problem else row.suppression.value
    return reasons


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (SES_DOCUMENT, BOUNCE_AND_COMPLAINT),
        (POSTMARK_DOCUMENT, REASON_OF_EACH_KIND),
        (BREVO_DOCUMENT, REASON_OF_EACH_KIND),
        (MAILGUN_DOCUMENT, {"a@example.com": BOUNCED, "d@example.com": "row.may_pass"}),
        (SENDGRID_DOCUMENT, {"a@example.com": BOUNCED, "d@example.com": "row.may_pass"}),
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_suppression_lists_from_mail_provider_apis_are_read(
    document: Any, expected: dict[str, str], indent: int | None
) -> None:
    assert read_reasons(json.dumps(document, indent=indent).encode()) == expected
    assert read_reasons(b"\xef\xbb\xbf" + json.dumps(document).encode()) == expected


@pytest.mark.parametrize(
    ("file", "kind", "expected"),
    [
        # The export of an SES bulk job has no header.
        ("a@example.com,BOUNCE\nb@example.com,COMPLAINT\n", "suppressions", BOUNCE_AND_COMPLAINT),
        (
            (
                "EmailAddress,SuppressionReason,Origin,CreatedAt\n"
                "a@example.com,HardBounce,Recipient,2026-01-01\n"
                "b@example.com,SpamComplaint,Recipient,2026-01-01\n"
                "c@example.com,ManualSuppression,Customer,2026-01-01\n"
            ),
            "suppressions",
            REASON_OF_EACH_KIND,
        ),
        # An export from Mailgun doesn't state whether the export lists bounces or complaints.
        ("address,created_at\nb@example.com,Mon\n", "complaints", {"b@example.com": COMPLAINED}),
        (
            "address,code,error,created_at\na@example.com,550,No,Mon\nd@example.com,450,Full,Mon\n",
            "bounces",
            {"a@example.com": BOUNCED, "d@example.com": MAY_PASS},
        ),
        # Exports from SendGrid.
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
            {**BOUNCE_AND_COMPLAINT, "c@example.com": "row.kind_unknown"},
        ),
        ("email,reason\nb@example.com,Spam Report\n", "bounces", {"b@example.com": COMPLAINED}),
        ("email\nc@example.com\n", "suppressions", {"c@example.com": UNSUBSCRIBED}),
        # Member exports of Pressroom and other products have a status column.
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
        # Complaints that programs sent, or that say that a mail isn't spam, opt nobody out.
        (
            (
                "email,feedbackType\nb@example.com,abuse\nc@example.com,other\n"
                "d@example.com,not-spam\ne@example.com,Auth-Failure\nf@example.com,unheard\n"
                "g@example.com,\nh@example.com,opt-out\n"
            ),
            "complaints",
            {
                **dict.fromkeys(("b@example.com", "c@example.com"), COMPLAINED),
                **dict.fromkeys(("d@example.com", "e@example.com"), MAY_PASS),
                **dict.fromkeys(("f@example.com", "g@example.com"), COMPLAINED),
                "h@example.com": UNSUBSCRIBED,
            },
        ),
        (
            (
                "email,eventType,complaint.complaintFeedbackType\na@example.com,Bounce,\n"
                "b@example.com,Complaint,fraud\nc@example.com,Complaint,\n"
                "d@example.com,Complaint,not-spam\ne@example.com,Complaint,virus\n"
            ),
            "suppressions",
            {
                "a@example.com": BOUNCED,
                **dict.fromkeys(("b@example.com", "c@example.com"), COMPLAINED),
                **dict.fromkeys(("d@example.com", "e@example.com"), MAY_PASS),
            },
        ),
        (
            (
                "email,type\nb@example.com,abuse\nc@example.com,other\nd@example.com,not_spam\n"
                "e@example.com,dkim\nf@example.com,spam complaint: virus\ng@example.com,unheard\n"
            ),
            "complaints",
            {
                **dict.fromkeys(("b@example.com", "c@example.com"), COMPLAINED),
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
                "c@example.com": UNSUBSCRIBED,
                "d@example.com": MAY_PASS,
                "e@example.com": MAY_PASS,
                "f@example.com": KIND_UNKNOWN,
            },
        ),
        # Without a header, the column of reasons is recognised by its cells.
        (
            "a@example.com,BOUNCE\nb@example.com,COMPLAINT\nc@example.com,WHAT\n",
            "suppressions",
            {**BOUNCE_AND_COMPLAINT, "c@example.com": KIND_UNKNOWN},
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
    assert read_reasons(file.encode(), ImportKind(kind)) == expected


def test_late_event_type_in_json_lines_applies_to_earlier_suppression_rows() -> None:
    file = '{"email": "d@example.com"}\n' * 3_000
    file += '{"email": "b@example.com", "event": {"type": "spamReport"}}\n'
    decisions = None
    for has_decisions in (False, True):
        reader = open_suppression_rows(open_ranged_file(StoredObject(file.encode())))
        header = reader.header
        kind = ImportKind.BOUNCES
        suppressions = SuppressionReader(header, reader.sample, kind, earlier_decisions=decisions)
        rows = [row for row in suppressions.read(reader) if isinstance(row, MemberRow)]
        assert suppressions.has_misread_rows() is not has_decisions
        decisions = suppressions.find_decisions()
    assert (rows[0].suppression, rows[-1].suppression) == ("unknown", COMPLAINED)


def test_mapping_and_status_values_decide_the_meaning_of_suppression_rows() -> None:
    file = "email,why,type\na@example.com,9,x\nb@example.com,spam,HardBounce\nd@example.com,7,x\n"
    reader = open_suppression_rows(open_ranged_file(StoredObject(file.encode())))
    suppressions = SuppressionReader(
        reader.header,
        reader.sample,
        ImportKind.BOUNCES,
        mapping={"why": "status", "type": "ignore"},
        status_values={"9": "unsubscribed"},
    )
    statuses = [row.suppression for row in suppressions.read(reader) if isinstance(row, MemberRow)]
    assert statuses == [UNSUBSCRIBED, COMPLAINED, "unknown"]
    assert suppressions.list_unknown_values() == [{"column": "why", "value": "7", "rows": 1}]
