from datetime import UTC, datetime
from typing import Any

import pytest

from integrations.senders.port import (
    BounceClass,
    ParsedBody,
    Report,
    ReportKind,
    TopicChange,
    UnusedEvent,
    UnusedReason,
)
from integrations.senders.ses import SesAdapter
from tests.support.senders.adapters import (
    ADDRESS,
    DELIVERY_ID,
    OTHER_ID,
    describe,
    notify,
    parse,
    parse_one,
)

ADAPTER = SesAdapter()
OTHER_ADDRESS = "bob@example.org"
OCCURRED_AT = datetime(2026, 11, 29, 10, 11, 12, 500_000, tzinfo=UTC)
TIME = {"timestamp": "2026-11-29T10:11:12.500Z"}
MAIL: dict[str, Any] = {
    "timestamp": "2026-11-29T10:00:00.000Z",
    "messageId": "0100019a-1",
    "source": "letters@example.com",
    "destination": [ADDRESS],
    "tags": {"ses:configuration-set": ["letters"], "delivery_id": [DELIVERY_ID]},
    "commonHeaders": {"subject": "Your letter"},
}
SHARED_MAIL = {**MAIL, "destination": [ADDRESS, OTHER_ADDRESS]}


def ses_event(
    name: str, details: dict[str, Any] | None = None, mail: object = MAIL
) -> dict[str, Any]:
    return {"eventType": name, "mail": mail, name.lower(): {**TIME, **(details or {})}}


def bounce(
    bounce_type: str, subtype: str = "General", status: str | None = None, text: str | None = None
) -> dict[str, Any]:
    recipient = {"emailAddress": ADDRESS, "status": status, "diagnosticCode": text}
    return ses_event(
        "Bounce",
        {
            "bounceType": bounce_type,
            "bounceSubType": subtype,
            "bouncedRecipients": [recipient],
            "feedbackId": "f1",
            "remoteMtaIp": "192.0.2.1",
        },
    )


def complaint(feedback_type: str | None, mail: object = MAIL) -> dict[str, Any]:
    recipients = [{"emailAddress": ADDRESS}]
    details = {"complainedRecipients": recipients, "complaintFeedbackType": feedback_type}
    return ses_event("Complaint", details, mail)


def preferences(*, is_unsubscribed: bool = False, **topics: str) -> dict[str, Any]:
    statuses = [
        {"topicName": name, "subscriptionStatus": status} for name, status in topics.items()
    ]
    return {"unsubscribeAll": is_unsubscribed, "topicSubscriptionStatus": statuses}


def subscription(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    details = {"oldTopicPreferences": before, "newTopicPreferences": after}
    return ses_event("Subscription", {"source": "UnsubscribeHeader", **details})


EVENTS: list[tuple[dict[str, Any], str]] = [
    (bounce("Permanent", "NoEmail", "5.1.1"), "bounced hard 5.1.1"),
    (bounce("Permanent", "OnAccountSuppressionList"), "bounced hard"),
    (bounce("Permanent", "General", None, "smtp; 550 5.7.1 No"), "bounced blocked 5.7.1"),
    (bounce("Permanent", "General", "5.0.0", "smtp; 550 5.7.1 No"), "bounced blocked 5.7.1"),
    (bounce("Permanent", "General", "5.1.1", "smtp; 550 5.7.1 No"), "bounced hard 5.1.1"),
    (bounce("Permanent", "General", "5.2.2"), "bounced soft 5.2.2"),
    (bounce("Permanent", "General", "5.3.0"), "bounced blocked 5.3.0"),
    (bounce("Permanent", "General", None, "smtp; 553 5.1.8 Sender"), "bounced blocked 5.1.8"),
    (bounce("Transient", "MailboxFull", "4.2.2"), "bounced soft 4.2.2"),
    (bounce("Transient", "ContentRejected", "5.1.1"), "bounced hard 5.1.1"),
    (bounce("Transient", "General"), "bounced soft"),
    (bounce("Undetermined", "Undetermined"), "bounced soft"),
    (bounce("Transient", "MessageTooLarge"), "bounced content"),
    (bounce("Transient", "ContentRejected"), "bounced content"),
    (bounce("Transient", "AttachmentRejected"), "bounced content"),
    (bounce("Unheard"), "ignored"),
    (ses_event("Reject", {"reason": "Bad content"}), "bounced content"),
    (complaint("abuse"), "complained"),
    (complaint(None), "complained"),
    *((complaint(name), "complained") for name in ("fraud", "other", "opt-out", "unheard")),
    *((complaint(name), "ignored") for name in ("not-spam", "Not_Spam", "virus", "auth-failure")),
    *((complaint(name), "ignored") for name in ("dkim", "dmarc")),
    (ses_event("Delivery", {"recipients": [ADDRESS]}), "delivered"),
    (ses_event("Open", {"userAgent": "Mozilla/5.0 (X11) Firefox"}), "opened"),
    (ses_event("Open", {"userAgent": "Mozilla/5.0"}), "opened machine"),
    (ses_event("Click", {"link": "https://example.com/", "userAgent": "Firefox"}), "clicked"),
    (subscription(preferences(), preferences(is_unsubscribed=True)), "unsubscribed"),
    (subscription(preferences(a="OptIn"), preferences(a="OptOut")), "unsubscribed"),
    (subscription(preferences(a="OptOut"), preferences(a="OptIn")), "ignored"),
    (subscription(preferences(a="OptOut"), preferences(a="OptOut", b="OptIn")), "ignored"),
    (subscription({"unsubscribeAll": True}, preferences(a="OptIn", b="OptOut")), "ignored"),
    (subscription({"unsubscribeAll": True}, {"unsubscribeAll": False}), "ignored"),
    (ses_event("Subscription"), "unsubscribed"),
    (ses_event("Send"), "ignored"),
    (ses_event("DeliveryDelay", {"delayType": "General"}), "ignored"),
    (ses_event("Rendering Failure"), "ignored"),
    (ses_event("Open", mail=SHARED_MAIL), "ignored"),
    (ses_event("Reject", mail=SHARED_MAIL), "ignored"),
    (ses_event("Open", mail={"destination": []}), "invalid"),
    ({"mail": MAIL}, "invalid"),
]


@pytest.mark.parametrize(("content", "effect"), EVENTS)
def test_ses_event_has_the_effect_of_the_table(content: dict[str, Any], effect: str) -> None:
    assert describe(parse_one(ADAPTER, notify(content))) == effect


def test_ses_report_contains_only_the_fields_that_pressroom_uses() -> None:
    report = Report(
        kind=ReportKind.BOUNCED,
        delivery_id=DELIVERY_ID,
        email=ADDRESS,
        occurred_at=OCCURRED_AT,
        message_id="0100019a-1",
        bounce_class=BounceClass.HARD,
        status="5.1.1",
    )
    content = bounce("Permanent", "NoEmail", "5.1.1")
    assert parse_one(ADAPTER, notify(content)) == report
    # In feedback notifications of SES, the field with the event's type has a different name.
    content["notificationType"] = content.pop("eventType")
    assert parse_one(ADAPTER, notify(content)) == report


def test_rejected_mail_was_rejected_at_the_time_of_sending() -> None:
    content = {"eventType": "Reject", "mail": MAIL, "reject": {"reason": "Bad content"}}
    event = parse_one(ADAPTER, notify(content))
    assert event.occurred_at == datetime(2026, 11, 29, 10, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("id_fields", "delivery_id"),
    [
        ({"headers": [{"name": "X-Pressroom-Delivery", "value": OTHER_ID}]}, DELIVERY_ID),
        (
            {
                "tags": {"edition": [DELIVERY_ID]},
                "headers": [{"name": "x-pressroom-delivery", "value": OTHER_ID}],
            },
            OTHER_ID,
        ),
        ({"tags": {"edition": ["12", DELIVERY_ID]}}, DELIVERY_ID),
        ({"tags": {"delivery_id": []}}, None),
        ({"tags": [DELIVERY_ID], "headers": "x"}, None),
    ],
)
def test_ses_delivery_id_is_found_in_the_named_tag_then_header_then_tags(
    id_fields: dict[str, Any], delivery_id: str | None
) -> None:
    event = parse_one(ADAPTER, notify(ses_event("Open", mail={**MAIL, **id_fields})))
    assert isinstance(event, Report)
    assert event.delivery_id == delivery_id


def test_each_named_recipient_of_a_shared_mail_gets_a_report_without_delivery_id() -> None:
    bounced = [{"emailAddress": ADDRESS}, {"emailAddress": f"Bob <{OTHER_ADDRESS}>"}]
    bounces = {"bounceType": "Permanent", "bouncedRecipients": bounced}
    deliveries = {"recipients": [ADDRESS, OTHER_ADDRESS]}
    for content in (
        ses_event("Bounce", bounces, SHARED_MAIL),
        ses_event("Delivery", deliveries, SHARED_MAIL),
    ):
        reports = parse(ADAPTER, notify(content)).events
        assert [
            (report.delivery_id, report.email) for report in reports if isinstance(report, Report)
        ] == [(None, ADDRESS), (None, OTHER_ADDRESS)]


@pytest.mark.parametrize("destination", [[], [ADDRESS]])
def test_event_that_names_several_people_has_no_delivery_id(destination: list[str]) -> None:
    mail = {**MAIL, "destination": destination}
    bounced = [{"emailAddress": ADDRESS}, {"emailAddress": OTHER_ADDRESS}]
    bounces = {"bounceType": "Permanent", "bouncedRecipients": bounced}
    for content in (
        ses_event("Bounce", bounces, mail),
        ses_event("Delivery", {"recipients": [ADDRESS, OTHER_ADDRESS]}, mail),
    ):
        reports = parse(ADAPTER, notify(content)).events
        assert [
            (report.delivery_id, report.email) for report in reports if isinstance(report, Report)
        ] == [(None, ADDRESS), (None, OTHER_ADDRESS)]


def test_mail_to_one_person_twice_has_a_delivery_id() -> None:
    mail = {**MAIL, "destination": [ADDRESS, f"Ada <{ADDRESS.upper()}>"]}
    event = parse_one(ADAPTER, notify(ses_event("Open", mail=mail)))
    assert isinstance(event, Report)
    assert (event.delivery_id, event.email) == (DELIVERY_ID, ADDRESS)


def test_complaint_counts_only_if_it_names_one_person() -> None:
    event = parse_one(ADAPTER, notify(complaint("abuse", SHARED_MAIL)))
    assert isinstance(event, Report)
    assert (event.delivery_id, event.email) == (None, ADDRESS)
    candidates = [{"emailAddress": ADDRESS}, {"emailAddress": OTHER_ADDRESS}]
    content = ses_event("Complaint", {"complainedRecipients": candidates}, SHARED_MAIL)
    assert describe(parse_one(ADAPTER, notify(content))) == "ignored"


def test_bounce_without_recipients_concerns_the_only_recipient_of_the_mail() -> None:
    event = parse_one(ADAPTER, notify(ses_event("Bounce", {"bounceType": "Permanent"})))
    assert isinstance(event, Report)
    assert (event.delivery_id, event.email) == (DELIVERY_ID, ADDRESS)


def test_first_signature_version_of_sns_is_a_warning() -> None:
    content = ses_event("Open")
    assert parse(ADAPTER, notify(content)).warnings == frozenset()
    warnings = parse(ADAPTER, notify(content, SignatureVersion="1")).warnings
    assert warnings == {"sns_signature_v1"}


CONFIRMATION = {"SubscribeURL": "https://elsewhere.example/", "Token": "t0ken"}


def test_changes_of_the_subscription_to_a_topic_contain_no_events() -> None:
    subscribed = notify("", Type="SubscriptionConfirmation", **CONFIRMATION)
    assert parse(ADAPTER, subscribed) == ParsedBody(
        (), topic_change=TopicChange.CONFIRM, confirmation_token="t0ken"
    )
    unsubscribed = notify("", Type="UnsubscribeConfirmation", **CONFIRMATION)
    assert parse(ADAPTER, unsubscribed) == ParsedBody((), topic_change=TopicChange.UNSUBSCRIBED)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (notify("Successfully validated SNS topic for event publishing."), UnusedReason.IGNORED),
        (notify("Hello"), UnusedReason.INVALID),
        (notify("[]"), UnusedReason.INVALID),
        (notify("[" * 100_000), UnusedReason.INVALID),
        (notify({}, Type="Other"), UnusedReason.INVALID),
        (notify({}, Type=["Notification"]), UnusedReason.INVALID),
        (notify({}, TopicArn=7), UnusedReason.INVALID),
        (notify({}, SignatureVersion="3"), UnusedReason.INVALID),
        (notify({}, Type="SubscriptionConfirmation"), UnusedReason.INVALID),
        (
            notify({}, Type="SubscriptionConfirmation", SubscribeURL="", Token="\n"),
            UnusedReason.INVALID,
        ),
        ({}, UnusedReason.INVALID),
        ([], UnusedReason.INVALID),
    ],
)
def test_body_without_an_event_of_ses_has_no_effect(body: object, reason: UnusedReason) -> None:
    parsed_body = parse(ADAPTER, body)
    assert parsed_body.topic_change is None
    assert parsed_body.events == (UnusedEvent(reason),)
