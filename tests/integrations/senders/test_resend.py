import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from standardwebhooks import Webhook

from integrations.senders.port import BounceClass, Report, ReportKind
from integrations.senders.resend import ResendAdapter
from tests.support.senders.adapters import (
    ADDRESS,
    DELIVERY_ID,
    NOW,
    OTHER_ID,
    describe,
    parse_one,
    verify,
)

ADAPTER = ResendAdapter()
SECRET = "whsec_" + base64.b64encode(b"k" * 24).decode()
FORMER_SECRET = "whsec_" + base64.b64encode(b"f" * 24).decode()
DATA: dict[str, Any] = {
    "email_id": "5d7c1d0e-11aa-4d7c-8c45-0e4d0f2b9d11",
    "created_at": "2026-11-29T09:00:00.000Z",
    "from": "Letters <letters@example.com>",
    "to": [f"Ada <{ADDRESS}>"],
    "subject": "Your letter",
    "tags": {"delivery_id": DELIVERY_ID, "edition": "12"},
}
PERMANENT = {"type": "Permanent", "subType": "General", "message": "550 5.1.1 No such mailbox"}


def event(name: object, **data: object) -> dict[str, Any]:
    return {"type": name, "created_at": "2026-11-29T10:11:12.5Z", "data": {**DATA, **data}}


CONTACT = {"id": "c1", "email": ADDRESS, "first_name": "Ada"}
EVENTS: list[tuple[dict[str, Any], str]] = [
    (event("email.bounced", bounce=PERMANENT), "bounced hard 5.1.1"),
    (event("email.bounced", bounce={"type": "Transient"}), "bounced soft"),
    (event("email.bounced", bounce={"type": "Undetermined"}), "bounced soft"),
    (event("email.bounced"), "bounced soft"),
    (
        event("email.bounced", bounce={"type": "Permanent", "message": "552 5.2.2 Full"}),
        "bounced soft 5.2.2",
    ),
    (
        event(
            "email.bounced",
            bounce={
                "type": "Permanent",
                "message": "The recipient's server rejected the mail.",
                "diagnosticCode": [7, "smtp; 550 5.0.0 Failed", "smtp; 550 5.7.1 Policy"],
            },
        ),
        "bounced blocked 5.7.1",
    ),
    (
        event("email.bounced", bounce={"type": "Permanent", "diagnosticCode": None}),
        "bounced hard",
    ),
    (event("email.suppressed"), "bounced hard"),
    (event("email.failed", failed={"reason": "quota"}), "bounced blocked"),
    (event("email.complained"), "complained"),
    (event("email.delivered"), "delivered"),
    (event("email.opened"), "opened"),
    (event("email.opened", open={"userAgent": "Mozilla/5.0"}), "opened machine"),
    (event("email.clicked", click={"userAgent": "Firefox"}), "clicked"),
    (event("email.clicked", click={"userAgent": "Mimecast"}), "clicked machine"),
    (event("email.sent"), "ignored"),
    (event("email.delivery_delayed"), "ignored"),
    (event("email.received"), "ignored"),
    ({"type": "contact.updated", "data": {**CONTACT, "unsubscribed": True}}, "unsubscribed"),
    ({"type": "contact.updated", "data": {**CONTACT, "unsubscribed": False}}, "ignored"),
    ({"type": "contact.created", "data": {**CONTACT, "unsubscribed": True}}, "ignored"),
    (event(None), "invalid"),
    ({"type": "email.opened", "data": []}, "invalid"),
]


@pytest.mark.parametrize(("fields", "effect"), EVENTS)
def test_resend_event_has_the_effect_of_the_table(fields: dict[str, Any], effect: str) -> None:
    assert describe(parse_one(ADAPTER, fields)) == effect


def test_resend_report_takes_the_time_of_the_event_and_not_of_the_mail() -> None:
    assert parse_one(ADAPTER, event("email.bounced", bounce=PERMANENT)) == Report(
        kind=ReportKind.BOUNCED,
        delivery_id=DELIVERY_ID,
        email=ADDRESS,
        occurred_at=datetime(2026, 11, 29, 10, 11, 12, 500_000, tzinfo=UTC),
        message_id=DATA["email_id"],
        bounce_class=BounceClass.HARD,
        status="5.1.1",
    )


@pytest.mark.parametrize(
    ("id_fields", "delivery_id"),
    [
        ({"tags": [{"name": "delivery_id", "value": DELIVERY_ID}]}, DELIVERY_ID),
        (
            {
                "tags": {"edition": DELIVERY_ID},
                "headers": [{"name": "x-pressroom-Delivery", "value": OTHER_ID}],
            },
            OTHER_ID,
        ),
        ({"tags": {"edition": DELIVERY_ID}, "headers": [7, {"name": 7}]}, DELIVERY_ID),
        ({"tags": [{"name": "edition", "value": DELIVERY_ID}, None]}, DELIVERY_ID),
        ({"tags": "delivery_id"}, None),
    ],
)
def test_resend_delivery_id_is_found_in_the_named_tag_then_header_then_tags(
    id_fields: dict[str, Any], delivery_id: str | None
) -> None:
    report = parse_one(ADAPTER, event("email.opened", **id_fields))
    assert isinstance(report, Report)
    assert report.delivery_id == delivery_id


@pytest.mark.parametrize(
    "recipients", [{"to": [ADDRESS, "bob@example.org"]}, {"cc": ["bob@example.org"]}]
)
def test_resend_event_about_a_mail_with_several_recipients_is_ignored(
    recipients: dict[str, Any],
) -> None:
    assert describe(parse_one(ADAPTER, event("email.bounced", **recipients))) == "ignored"


BODY = orjson.dumps(event("email.opened"))


def sign(secret: str = SECRET, sent_at: datetime = NOW) -> dict[str, str]:
    return {
        "svix-id": "msg_1",
        "svix-timestamp": str(int(sent_at.timestamp())),
        "svix-signature": Webhook(secret).sign("msg_1", sent_at, BODY.decode()),
    }


@pytest.mark.parametrize("secret", [SECRET, FORMER_SECRET])
def test_resend_signature_of_the_current_and_the_former_secret_is_accepted(secret: str) -> None:
    assert verify(ADAPTER, BODY, sign(secret), (SECRET, FORMER_SECRET)) is None


def test_resend_request_without_a_valid_signature_is_rejected() -> None:
    old_headers = sign(sent_at=NOW - timedelta(minutes=6))
    renamed_headers = {key.replace("svix", "webhook"): text for key, text in sign().items()}
    for body, headers in (
        (BODY, {}),
        (BODY, sign(FORMER_SECRET)),
        (BODY, old_headers),
        (BODY, renamed_headers),
        (BODY.replace(b"opened", b"failed"), sign()),
    ):
        assert verify(ADAPTER, body, headers, (SECRET,)) == "sender.signature_invalid"
