from collections.abc import Iterator
from dataclasses import fields

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from integrations.senders.brevo import BrevoAdapter
from integrations.senders.events import MAX_EVENTS
from integrations.senders.generic import GenericAdapter
from integrations.senders.mailgun import MailgunAdapter
from integrations.senders.port import Report, SenderAdapter, SenderProvider, UnusedEvent
from integrations.senders.postmark import PostmarkAdapter
from integrations.senders.resend import ResendAdapter
from integrations.senders.sendgrid import SIGNATURE_HEADER, TIMESTAMP_HEADER, SendGridAdapter
from integrations.senders.ses import SesAdapter
from tests.support.senders.adapters import (
    ADDRESS,
    DELIVERY_ID,
    NOW_SECONDS,
    notify,
    parse,
    parse_one,
    verify,
)
from tests.support.sizes import sized

ADAPTERS: list[SenderAdapter] = [
    SesAdapter(),
    PostmarkAdapter(),
    MailgunAdapter(),
    SendGridAdapter(),
    BrevoAdapter(),
    ResendAdapter(),
]
# The field names and values that the adapters look for in request bodies. Random request bodies
# that contain these field names and values run most of the adapters' code.
FIELD_NAMES = (
    *("RecordType", "Type", "Metadata", "Tag", "Email", "Recipient", "Details", "BouncedAt"),
    *("MessageID", "SuppressSending", "SuppressionReason", "UserAgent", "event-data", "event"),
    *("message", "headers", "user-variables", "recipient", "timestamp", "severity", "reason"),
    *("delivery-status", "client-info", "type", "status", "email", "category", "delivery_id"),
    *("sg_message_id", "sg_machine_open", "ts_epoch", "X-Mailin-custom", "tags", "tag", "data"),
    *("eventType", "mail", "destination", "bounceType", "bounceSubType", "bouncedRecipients"),
    *("emailAddress", "complaint", "complainedRecipients", "delivery", "recipients", "open"),
    *("subscription", "newTopicPreferences", "topicSubscriptionStatus", "complaintFeedbackType"),
    *("to", "cc", "bounce", "created_at", "email_id", "name", "value", "message-id", "signature"),
)
FIELD_VALUES = (
    *("Bounce", "HardBounce", "Open", "SubscriptionChange", "failed", "permanent", "bounce"),
    *("opened", "dropped", "Invalid", "hard_bounce", "proxy_open", "email.bounced"),
    *("Permanent", "Complaint", "Delivery", "Reject", "Subscription", "OptOut"),
    *("contact.updated", "delivery_id", ADDRESS, DELIVERY_ID, f"<{ADDRESS}", "5.1.1", "{}", "["),
    *("2026-11-29T10:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "\x00"),
    *("", "\n", "\u202e", "@", "a@", "x" * 1000),
)
NUMBERS = st.sampled_from([0, -1, 1e308, -1e308, 2**63, -(2**63), 1.5, 1_795_947_072_250])
SCALARS = st.none() | st.booleans() | NUMBERS | st.sampled_from(FIELD_VALUES) | st.text(max_size=5)
CONTENTS = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(FIELD_NAMES), inner, min_size=1, max_size=12)
    ),
    max_leaves=40,
)

TOPIC_ARN = notify("")["TopicArn"]
SECRETS = ("whsec_" + "a2" * 16, "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE", "key", "\x00")
# Invalid values for the headers and body fields with which a provider authenticates its requests,
# such as signatures and passwords.
PROOF_VALUES = st.sampled_from(
    [
        *("", str(NOW_SECONDS), "-1", "9" * 11, "9" * 400, "\u0663", "nan", "1e9", " ", "\x00"),
        *("Basic", "Basic !!!", "basic cHJlc3Nyb29tOg==", "Bearer ", "Bearer \xff", "é"),
        *("v1,", "v1,!!", "v1a," + "A" * 44, "MEUCIQ==", "1", "2"),
        *("Notification", "SubscriptionConfirmation", TOPIC_ARN),
        "https://sns.us-east-1.amazonaws.com@127.0.0.1/SimpleNotificationService-a.pem",
    ]
)
HEADERS = st.dictionaries(
    st.sampled_from(
        [
            "authorization",
            *(f"webhook-{name}" for name in ("id", "timestamp", "signature")),
            *(f"svix-{name}" for name in ("id", "timestamp", "signature")),
            *(SIGNATURE_HEADER, TIMESTAMP_HEADER),
        ]
    ),
    PROOF_VALUES | st.text(st.characters(max_codepoint=255), max_size=5),
    max_size=9,
)
PROOFS = st.recursive(
    st.none() | st.booleans() | NUMBERS | PROOF_VALUES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["signature", "timestamp", "token", *notify(""), "Token", "Subject"]),
            inner,
            max_size=12,
        )
    ),
    max_leaves=30,
)


def require_clean_events(adapter: SenderAdapter, body: bytes) -> None:
    """Parse a request body, and require that all texts in its events are short and printable."""
    for event in adapter.parse(body).events:
        if isinstance(event, UnusedEvent):
            assert event.event_type is None or len(event.event_type) <= 100
        else:
            assert event.delivery_id or event.email
        for text in list_texts(event):
            assert text.isprintable()
            assert len(text) <= 320


def list_texts(event: Report | UnusedEvent) -> Iterator[str]:
    values = (getattr(event, field.name) for field in fields(event))
    yield from (value for value in values if isinstance(value, str))


@pytest.mark.tier("fast", "properties")
@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.provider)
@given(content=CONTENTS)
@settings(max_examples=sized(150, 5_000, few=25), deadline=None)
def test_no_content_of_a_body_makes_parsing_fail(adapter: SenderAdapter, content: object) -> None:
    require_clean_events(adapter, orjson.dumps(content))
    if adapter.provider is SenderProvider.SES:
        require_clean_events(adapter, orjson.dumps(notify(content)))


@pytest.mark.tier("fast", "properties")
@pytest.mark.parametrize(
    "adapter", [GenericAdapter(), *ADAPTERS], ids=lambda adapter: adapter.provider
)
@given(headers=HEADERS, content=PROOFS | st.binary(max_size=20))
@settings(max_examples=sized(300, 10_000, few=100), deadline=None)
def test_no_request_makes_the_verification_fail(
    adapter: SenderAdapter, headers: dict[str, str], content: object
) -> None:
    body = content if isinstance(content, bytes) else orjson.dumps(content)
    code = verify(adapter, body, headers, SECRETS, topic_arn=TOPIC_ARN)
    assert code == "sender.signature_invalid"


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.provider)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"7",
        b'"x"',
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        b"{" * 100_000,
        b"[" * 1_000_000,
        b'{"event-data":' * 1_000 + b"{}" + b"}" * 1_000,
        b"9" * 1_000_000,
        b'{"timestamp":1e999}',
        b'{"event":NaN}',
        b'{"event":"\\ud800"}',
        b'{"event":"open","event":"bounce","event":7}',
        b"[" + b"{}," * 300_000 + b"{}]",
        b"[" + b"[]," * 300_000 + b"[]]",
        b'{"tags":[' + b'"x",' * 200_000 + b'"x"],"event":"opened","email":"a@b.example"}',
        b'{"data":{"to":[' + b'"x",' * 200_000 + b'"x"]},"type":"email.opened"}',
    ],
    ids=range(18),
)
def test_no_malformed_or_huge_body_makes_parsing_fail(adapter: SenderAdapter, body: bytes) -> None:
    require_clean_events(adapter, body)
    assert len(adapter.parse(body).events) <= MAX_EVENTS + 1


def test_events_beyond_the_limit_yield_one_invalid_event() -> None:
    event = {"event": "open", "email": ADDRESS, "delivery_id": DELIVERY_ID}
    *reports, last = parse(SendGridAdapter(), [event] * (MAX_EVENTS + 5)).events
    assert len(reports) == MAX_EVENTS
    assert all(isinstance(report, Report) for report in reports)
    assert isinstance(last, UnusedEvent)


@pytest.mark.parametrize(
    ("fields", "effect"),
    [
        ({"email": "ada\n@example.org"}, None),
        ({"email": "a" * 320 + "@example.org"}, None),
        ({"email": "nobody"}, None),
        ({"email": "@example.org"}, None),
        ({"email": ["ada@example.org"]}, None),
        ({"email": " ada@example.org "}, ADDRESS),
        ({"email": f'"A, <b>" <{ADDRESS}>'}, ADDRESS),
    ],
)
def test_address_of_a_report_is_one_readable_address(
    fields: dict[str, object], effect: str | None
) -> None:
    event = parse_one(SendGridAdapter(), {"event": "open", "delivery_id": DELIVERY_ID, **fields})
    assert isinstance(event, Report)
    assert event.email == effect


def test_unreadable_and_long_texts_are_not_kept() -> None:
    for text in ("a\x00b", "a\nb", "\u202e", "x" * 256, "", 7):
        event = {"event": "open", "delivery_id": DELIVERY_ID, "sg_message_id": text}
        report = parse_one(SendGridAdapter(), event)
        assert isinstance(report, Report)
        assert report.message_id is None
    unused = parse_one(SendGridAdapter(), {"event": "x" * 101})
    assert isinstance(unused, UnusedEvent)
    assert unused.event_type == "x" * 100
