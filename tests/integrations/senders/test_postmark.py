import base64
from datetime import UTC, datetime
from typing import Any

import pytest

from integrations.senders.port import BounceClass, Report, ReportKind, UnusedEvent, UnusedReason
from integrations.senders.postmark import PostmarkAdapter
from tests.support.senders.adapters import (
    ADDRESS,
    DELIVERY_ID,
    OTHER_ID,
    describe,
    parse_one,
    verify,
)

ADAPTER = PostmarkAdapter()
SECRET = "s3cret:with-colon"
FORMER_SECRET = "f0rmer"
MESSAGE_ID = "7e2c0b5a-1f0e-4c59-9d57-0a64e10a9e3c"
COMMON_FIELDS = {
    "MessageID": MESSAGE_ID,
    "ServerID": 77,
    "MessageStream": "broadcast",
    "Tag": "issue-12",
    "Metadata": {"delivery_id": DELIVERY_ID, "edition": "12"},
}
BOUNCE = {
    **COMMON_FIELDS,
    "RecordType": "Bounce",
    "ID": 4_200_000_001,
    "Type": "HardBounce",
    "TypeCode": 1,
    "Name": "Hard bounce",
    "Description": "The server was unable to deliver your message.",
    "Details": "smtp;550 5.1.1 There is no such mailbox",
    "Email": ADDRESS,
    "From": "letters@example.com",
    "BouncedAt": "2026-11-29T10:11:12.1234567Z",
    "Inactive": True,
    "Subject": "Your letter",
}
ENGAGEMENT = {
    **COMMON_FIELDS,
    "Recipient": ADDRESS,
    "ReceivedAt": "2026-11-29T11:11:12+01:00",
    "UserAgent": "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0",
    "Geo": {"IP": "192.0.2.7", "City": "Rome"},
}
SUBSCRIPTION_CHANGE = {
    **COMMON_FIELDS,
    "RecordType": "SubscriptionChange",
    "MessageID": None,
    "Recipient": ADDRESS,
    "ChangedAt": "2026-11-29T10:11:12Z",
    "Origin": "Recipient",
    "SuppressSending": True,
    "SuppressionReason": "ManualSuppression",
}
OCCURRED_AT = datetime(2026, 11, 29, 10, 11, 12, tzinfo=UTC)


def bounce(name: str, details: str = "") -> dict[str, Any]:
    return {**BOUNCE, "Type": name, "Details": details}


EVENTS: list[tuple[dict[str, Any], str]] = [
    (BOUNCE, "bounced hard 5.1.1"),
    (bounce("BadEmailAddress"), "bounced hard"),
    (bounce("SoftBounce"), "bounced soft"),
    (bounce("Transient", "smtp;421 4.4.2 Connection dropped"), "bounced soft 4.4.2"),
    (bounce("DnsError"), "bounced soft"),
    (bounce("Blocked", "smtp;550 5.7.1 Blocked"), "bounced blocked 5.7.1"),
    (bounce("DMARCPolicy"), "bounced blocked"),
    (bounce("SpamNotification"), "bounced content"),
    (bounce("HardBounce", "smtp;552 5.2.2 Mailbox full"), "bounced soft 5.2.2"),
    (bounce("HardBounce", "smtp;550-5.7.26 Unauthenticated"), "bounced blocked 5.7.26"),
    (bounce("Unsubscribe"), "unsubscribed"),
    (bounce("SpamComplaint"), "complained"),
    ({**BOUNCE, "RecordType": "SpamComplaint", "Type": "SpamComplaint"}, "complained"),
    (bounce("AutoResponder"), "ignored"),
    (bounce("Subscribe"), "ignored"),
    (bounce("ManuallyDeactivated"), "ignored"),
    ({**ENGAGEMENT, "RecordType": "Open", "FirstOpen": True}, "opened"),
    ({**ENGAGEMENT, "RecordType": "Open", "UserAgent": "Mozilla/5.0"}, "opened machine"),
    ({**ENGAGEMENT, "RecordType": "Click", "OriginalLink": "https://example.com/"}, "clicked"),
    (
        {
            **COMMON_FIELDS,
            "RecordType": "Delivery",
            "Recipient": ADDRESS,
            "DeliveredAt": "2026-11-29",
        },
        "delivered",
    ),
    (SUBSCRIPTION_CHANGE, "unsubscribed"),
    ({**SUBSCRIPTION_CHANGE, "SuppressionReason": "HardBounce"}, "ignored"),
    ({**SUBSCRIPTION_CHANGE, "SuppressionReason": "SpamComplaint"}, "ignored"),
    ({**SUBSCRIPTION_CHANGE, "SuppressSending": "true"}, "ignored"),
    ({**SUBSCRIPTION_CHANGE, "SuppressSending": False, "SuppressionReason": None}, "ignored"),
    ({**COMMON_FIELDS, "RecordType": "Inbound", "From": ADDRESS}, "ignored"),
    ({**COMMON_FIELDS, "Email": ADDRESS}, "invalid"),
]


@pytest.mark.parametrize(("fields", "effect"), EVENTS)
def test_postmark_event_has_the_effect_of_the_table(fields: dict[str, Any], effect: str) -> None:
    assert describe(parse_one(ADAPTER, fields)) == effect


def test_postmark_report_contains_only_the_fields_that_pressroom_uses() -> None:
    assert parse_one(ADAPTER, BOUNCE) == Report(
        kind=ReportKind.BOUNCED,
        delivery_id=DELIVERY_ID,
        email=ADDRESS,
        occurred_at=OCCURRED_AT.replace(microsecond=123456),
        message_id=MESSAGE_ID,
        bounce_class=BounceClass.HARD,
        status="5.1.1",
    )
    assert parse_one(ADAPTER, {**ENGAGEMENT, "RecordType": "Click"}) == Report(
        kind=ReportKind.CLICKED,
        delivery_id=DELIVERY_ID,
        email=ADDRESS,
        occurred_at=OCCURRED_AT,
        message_id=MESSAGE_ID,
    )
    assert parse_one(ADAPTER, bounce("AutoResponder")) == UnusedEvent(
        UnusedReason.IGNORED, "AutoResponder", OCCURRED_AT.replace(microsecond=123456)
    )


@pytest.mark.parametrize(
    ("id_fields", "delivery_id"),
    [
        ({"Metadata": {"Delivery_Id": DELIVERY_ID.upper()}}, DELIVERY_ID.upper()),
        ({"Metadata": {"X-Pressroom-Delivery": OTHER_ID}, "Tag": DELIVERY_ID}, OTHER_ID),
        ({"Metadata": {}, "Tag": DELIVERY_ID}, DELIVERY_ID),
        ({"Metadata": {"delivery_id": "short"}, "Tag": DELIVERY_ID}, DELIVERY_ID),
        ({"Metadata": None, "Tag": "issue-12"}, None),
    ],
)
def test_postmark_delivery_id_is_found_in_metadata_then_header_then_tag(
    id_fields: dict[str, Any], delivery_id: str | None
) -> None:
    event = parse_one(ADAPTER, {**BOUNCE, **id_fields})
    assert isinstance(event, Report)
    assert event.delivery_id == delivery_id


def test_postmark_time_without_offset_is_missing() -> None:
    event = parse_one(ADAPTER, {**BOUNCE, "BouncedAt": "2026-11-29T10:11:12"})
    assert event.occurred_at is None


def basic_credentials(user: str, password: str) -> dict[str, str]:
    value = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"authorization": f"Basic {value}"}


@pytest.mark.parametrize(
    "headers",
    [
        basic_credentials("pressroom", SECRET),
        basic_credentials("pressroom", FORMER_SECRET),
        {"authorization": f"bearer {SECRET}"},
        {"authorization": f"Bearer  {FORMER_SECRET} "},
    ],
)
def test_current_and_former_secret_are_accepted_as_password_and_as_token(
    headers: dict[str, str],
) -> None:
    assert verify(ADAPTER, b"{}", headers, (SECRET, FORMER_SECRET)) is None


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Basic"},
        {"authorization": "Basic ?"},
        {"authorization": "Basic \udcff"},
        {"authorization": f"Digest {SECRET}"},
        {"authorization": SECRET},
        {"authorization": "Bearer "},
        {"authorization": f"Bearer {SECRET[:-1]}"},
        {"authorization": f"Bearer pressroom:{SECRET}"},
        {"authorization": f"Basic pressroom:{SECRET}"},
        basic_credentials("pressroom", ""),
        basic_credentials("pressroom", "wrong"),
        basic_credentials("root", SECRET),
        basic_credentials("", SECRET),
    ],
)
def test_request_without_the_senders_secret_is_rejected(headers: dict[str, str]) -> None:
    assert verify(ADAPTER, b"{}", headers, (SECRET,)) == "sender.signature_invalid"


def test_sender_without_secrets_accepts_no_credentials() -> None:
    for headers in (basic_credentials("pressroom", ""), {"authorization": "Bearer "}):
        assert verify(ADAPTER, b"{}", headers) == "sender.signature_invalid"
