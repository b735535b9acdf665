import hashlib
import hmac
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from integrations.senders.mailgun import MailgunAdapter
from integrations.senders.port import BounceClass, Report, ReportKind
from tests.support.senders.adapters import (
    ADDRESS,
    DELIVERY_ID,
    NOW,
    NOW_SECONDS,
    OTHER_ID,
    describe,
    parse_one,
    verify,
)

ADAPTER = MailgunAdapter()
KEY = "mailgun-signing-key"
FORMER_KEY = "mailgun-former-key"
FAILURE: dict[str, Any] = {
    "id": "Zk1",
    "event": "failed",
    "severity": "permanent",
    "reason": "bounce",
    "timestamp": 1_795_947_072.25,
    "recipient": ADDRESS,
    "recipient-domain": "example.org",
    "message": {
        "headers": {
            "to": f"Ada <{ADDRESS}>",
            "from": "letters@example.com",
            "subject": "Your letter",
            "message-id": "20261129101112.1@mg.example.com",
        },
        "size": 512,
    },
    "user-variables": {"delivery_id": DELIVERY_ID, "edition": "12"},
    "tags": ["issue-12"],
    "delivery-status": {
        "code": 550,
        "enhanced-code": "5.1.1",
        "message": "No such mailbox",
        "description": "",
    },
}
ACTION: dict[str, Any] = {
    **{name: FAILURE[name] for name in ("timestamp", "recipient", "message", "user-variables")},
    "ip": "192.0.2.7",
    "geolocation": {"city": "Rome"},
    "client-info": {"client-name": "Firefox", "user-agent": "Mozilla/5.0 (X11)", "bot": ""},
}


def failure(severity: str, reason: str, status: str = "", message: str = "") -> dict[str, Any]:
    outcome = {"enhanced-code": status, "message": message}
    return {**FAILURE, "severity": severity, "reason": reason, "delivery-status": outcome}


def action(event: str, **client: object) -> dict[str, Any]:
    return {**ACTION, "event": event, "client-info": {**ACTION["client-info"], **client}}


def build_body(data: object, **signature: object) -> dict[str, Any]:
    return {"signature": signature, "event-data": data}


EVENTS: list[tuple[dict[str, Any], str]] = [
    (FAILURE, "bounced hard 5.1.1"),
    (failure("permanent", "suppress-bounce"), "bounced hard"),
    (failure("permanent", "generic"), "bounced soft"),
    (failure("permanent", "old"), "bounced soft"),
    (failure("temporary", "bounce"), "bounced soft"),
    (failure("temporary", "generic", message="452 4.2.2 Full"), "bounced soft 4.2.2"),
    (failure("permanent", "espblock"), "bounced blocked"),
    (failure("temporary", "espblock"), "bounced blocked"),
    (failure("permanent", "bounce", "5.2.2"), "bounced soft 5.2.2"),
    (failure("permanent", "bounce", "5.7.1"), "bounced blocked 5.7.1"),
    (failure("permanent", "suppress-complaint"), "complained"),
    (failure("permanent", "suppress-unsubscribe"), "unsubscribed"),
    ({**FAILURE, "event": "complained"}, "complained"),
    (action("unsubscribed"), "unsubscribed"),
    ({**FAILURE, "event": "delivered"}, "delivered"),
    (action("opened"), "opened"),
    (action("clicked"), "clicked"),
    (action("opened", bot="apple"), "opened machine"),
    (action("opened", bot="gmail"), "opened machine"),
    (action("clicked", bot="generic"), "clicked machine"),
    # Unsubscriptions and complaints have an effect, even if Mailgun thinks that a program caused
    # them.
    (action("unsubscribed", bot="gmail"), "unsubscribed"),
    (action("complained", bot="generic"), "complained"),
    ({**FAILURE, "event": "accepted"}, "ignored"),
    ({**FAILURE, "event": "rejected"}, "ignored"),
    ({**FAILURE, "event": None}, "invalid"),
    ({}, "invalid"),
]


@pytest.mark.parametrize(("data", "effect"), EVENTS)
def test_mailgun_event_has_the_effect_of_the_table(data: dict[str, Any], effect: str) -> None:
    assert describe(parse_one(ADAPTER, build_body(data))) == effect


def test_mailgun_report_contains_only_the_fields_that_pressroom_uses() -> None:
    assert parse_one(ADAPTER, build_body(FAILURE)) == Report(
        kind=ReportKind.BOUNCED,
        delivery_id=DELIVERY_ID,
        email=ADDRESS,
        occurred_at=datetime(2026, 11, 29, 10, 11, 12, 250_000, tzinfo=UTC),
        message_id="20261129101112.1@mg.example.com",
        bounce_class=BounceClass.HARD,
        status="5.1.1",
    )


@pytest.mark.parametrize(
    ("id_fields", "delivery_id"),
    [
        (
            {
                "user-variables": {},
                "message": {"headers": {"X-Pressroom-Delivery": OTHER_ID}},
                "tags": [DELIVERY_ID],
            },
            OTHER_ID,
        ),
        ({"user-variables": [], "tags": ["issue-12", DELIVERY_ID]}, DELIVERY_ID),
        ({"user-variables": {"delivery_id": 7}}, None),
    ],
)
def test_mailgun_delivery_id_is_found_in_variables_then_header_then_tag(
    id_fields: dict[str, Any], delivery_id: str | None
) -> None:
    event = parse_one(ADAPTER, build_body({**FAILURE, **id_fields}))
    assert isinstance(event, Report)
    assert event.delivery_id == delivery_id


OTHER_ADDRESS = "bob@example.org"
BOTH_RECIPIENTS = f'"Ada, PhD" <{ADDRESS}>, {OTHER_ADDRESS}'


@pytest.mark.parametrize(
    ("message", "has_id"),
    [
        ({"recipients": [ADDRESS, OTHER_ADDRESS]}, False),
        ({"recipients": [ADDRESS], "headers": {"To": BOTH_RECIPIENTS}}, False),
        ({"headers": {"to": ADDRESS, "cc": OTHER_ADDRESS}}, False),
        ({"recipients": [ADDRESS], "headers": {"to": f'"{ADDRESS}" <{ADDRESS.upper()}>'}}, True),
        ({"recipients": None, "headers": {"to": ["x"], "cc": ""}}, True),
    ],
)
def test_mailgun_event_of_a_mail_to_several_people_has_no_delivery_id(
    *, message: dict[str, Any], has_id: bool
) -> None:
    report = parse_one(ADAPTER, build_body({**FAILURE, "message": message}))
    assert isinstance(report, Report)
    assert report.email == ADDRESS
    assert report.delivery_id == (DELIVERY_ID if has_id else None)


def sign_body(key: str = KEY, seconds: int = NOW_SECONDS, **changed_fields: object) -> bytes:
    digest = hmac.new(key.encode(), f"{seconds}t0ken".encode(), hashlib.sha256).hexdigest()
    signature = {"timestamp": str(seconds), "token": "t0ken", "signature": digest}
    return orjson.dumps(build_body(FAILURE, **signature | changed_fields))


def test_mailgun_signature_of_the_current_and_the_former_key_is_accepted() -> None:
    for key in (KEY, FORMER_KEY):
        assert verify(ADAPTER, sign_body(key), {}, (KEY, FORMER_KEY)) is None
    assert verify(ADAPTER, sign_body(signature=b"".hex()), {}, (KEY,)) == "sender.signature_invalid"


@pytest.mark.parametrize(
    "body",
    [
        sign_body(FORMER_KEY),
        sign_body(token="Tökén", signature="ü"),
        sign_body(token="other"),
        sign_body(timestamp=str(NOW_SECONDS + 1)),
        sign_body(timestamp=None),
        sign_body(timestamp="٣"),
        sign_body(timestamp="9" * 200),
        sign_body(timestamp=NOW_SECONDS),
        sign_body(token=["t0ken"]),
        sign_body(signature={}),
        orjson.dumps({"event-data": FAILURE}),
        orjson.dumps({"signature": "x", "event-data": FAILURE}),
        b"[" * 100_000,
        b"\xff",
        b"",
    ],
)
def test_mailgun_body_without_a_valid_signature_is_rejected(body: bytes) -> None:
    assert verify(ADAPTER, body, {}, (KEY,)) == "sender.signature_invalid"


@pytest.mark.parametrize(
    ("age", "is_valid"),
    [
        (timedelta(hours=9), True),
        (timedelta(hours=24, seconds=1), False),
        (timedelta(hours=-25), False),
    ],
)
def test_mailgun_signature_is_valid_longer_than_mailgun_retries(
    *, age: timedelta, is_valid: bool
) -> None:
    body = sign_body(seconds=int((NOW - age).timestamp()))
    assert (verify(ADAPTER, body, {}, (KEY,)) is None) is is_valid
