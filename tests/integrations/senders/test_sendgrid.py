import base64
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from integrations.senders.port import BounceClass, Report, ReportKind
from integrations.senders.sendgrid import (
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
    SendGridAdapter,
    is_public_key,
)
from tests.support.senders.adapters import (
    ADDRESS,
    DELIVERY_ID,
    NOW_SECONDS,
    OTHER_ID,
    describe,
    parse,
    parse_one,
    verify,
)

ADAPTER = SendGridAdapter()
BOUNCE = {
    "email": ADDRESS,
    "timestamp": 1_795_947_072,
    "event": "bounce",
    "type": "bounce",
    "status": "5.1.1",
    "reason": "550 5.1.1 There is no such mailbox",
    "bounce_classification": "Invalid Address",
    "smtp-id": "<a1@example.com>",
    "sg_event_id": "ZXZlbnQx",
    "sg_message_id": "a1.recvd-1.0",
    "category": ["issue-12"],
    "ip": "192.0.2.1",
    "delivery_id": DELIVERY_ID,
    "edition": "12",
}


def dropped_event(reason: object) -> dict[str, Any]:
    return {**BOUNCE, "event": "dropped", "type": None, "status": None, "reason": reason}


EVENTS: list[tuple[dict[str, Any], str]] = [
    (BOUNCE, "bounced hard 5.1.1"),
    ({**BOUNCE, "status": "5.7.1"}, "bounced blocked 5.7.1"),
    ({**BOUNCE, "status": "5.0.0", "reason": "550 5.7.1 Policy"}, "bounced blocked 5.7.1"),
    ({**BOUNCE, "status": None, "reason": "552 5.2.2 Full"}, "bounced soft 5.2.2"),
    ({**BOUNCE, "type": "blocked", "status": "4.7.0"}, "bounced blocked 4.7.0"),
    ({**BOUNCE, "type": "expired"}, "ignored"),
    (dropped_event("Bounced Address"), "bounced hard"),
    (dropped_event("Invalid"), "bounced hard"),
    (dropped_event("Spam Content"), "bounced content"),
    (dropped_event("Recipient List over Package Quota"), "bounced blocked"),
    (dropped_event("Invalid SMTPAPI header"), "bounced blocked"),
    (dropped_event(None), "bounced blocked"),
    (dropped_event("Spam Reporting Address"), "complained"),
    (dropped_event("Unsubscribed Address"), "unsubscribed"),
    ({**BOUNCE, "event": "spamreport"}, "complained"),
    ({**BOUNCE, "event": "unsubscribe"}, "unsubscribed"),
    ({**BOUNCE, "event": "group_unsubscribe", "asm_group_id": 4}, "unsubscribed"),
    ({**BOUNCE, "event": "group_resubscribe", "asm_group_id": 4}, "ignored"),
    ({**BOUNCE, "event": "delivered", "response": "250 OK"}, "delivered"),
    ({**BOUNCE, "event": "open", "sg_machine_open": False}, "opened"),
    ({**BOUNCE, "event": "open", "sg_machine_open": True}, "opened machine"),
    ({**BOUNCE, "event": "open", "useragent": "x GoogleImageProxy y"}, "opened machine"),
    ({**BOUNCE, "event": "click", "url": "https://example.com/"}, "clicked"),
    ({**BOUNCE, "event": "processed"}, "ignored"),
    ({**BOUNCE, "event": "deferred"}, "ignored"),
    ({**BOUNCE, "event": 7}, "invalid"),
]


@pytest.mark.parametrize(("fields", "effect"), EVENTS)
def test_sendgrid_event_has_the_effect_of_the_table(fields: dict[str, Any], effect: str) -> None:
    assert describe(parse_one(ADAPTER, [fields])) == effect


def test_sendgrid_report_contains_only_the_fields_that_pressroom_uses() -> None:
    assert parse_one(ADAPTER, [BOUNCE]) == Report(
        kind=ReportKind.BOUNCED,
        delivery_id=DELIVERY_ID,
        email=ADDRESS,
        occurred_at=datetime(2026, 11, 29, 10, 11, 12, tzinfo=UTC),
        message_id="a1.recvd-1.0",
        bounce_class=BounceClass.HARD,
        status="5.1.1",
    )


@pytest.mark.parametrize(
    ("id_fields", "delivery_id"),
    [
        ({"delivery_id": None, "X-Pressroom-Delivery": OTHER_ID}, OTHER_ID),
        ({"delivery_id": "", "category": ["issue-12", DELIVERY_ID]}, DELIVERY_ID),
        ({"delivery_id": [], "category": DELIVERY_ID}, DELIVERY_ID),
        ({"delivery_id": f" {DELIVERY_ID}\n"}, DELIVERY_ID),
        ({"delivery_id": "\u017f" * 52}, None),
    ],
)
def test_sendgrid_delivery_id_is_found_in_arguments_then_header_then_category(
    id_fields: dict[str, Any], delivery_id: str | None
) -> None:
    event = parse_one(ADAPTER, [{**BOUNCE, **id_fields}])
    assert isinstance(event, Report)
    assert event.delivery_id == delivery_id


def test_batch_of_sendgrid_events_keeps_its_order() -> None:
    batch = [BOUNCE, "x", {**BOUNCE, "event": "open"}]
    effects = [describe(event) for event in parse(ADAPTER, batch).events]
    assert effects == ["bounced hard 5.1.1", "invalid", "opened"]


@cache
def get_key(name: str) -> ec.EllipticCurvePrivateKey:
    assert name
    return ec.generate_private_key(ec.SECP256R1())


def public_text(private_key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> str:
    content = private_key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(content).decode()


def public_pem(private_key: ec.EllipticCurvePrivateKey) -> str:
    public_key = private_key.public_key()
    return public_key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


BODY = orjson.dumps([BOUNCE]) + b"\r\n"


def sign_headers(name: str = "current", timestamp: str = str(NOW_SECONDS)) -> dict[str, str]:
    signature = get_key(name).sign(timestamp.encode() + BODY, ec.ECDSA(SHA256()))
    return {
        TIMESTAMP_HEADER: timestamp,
        SIGNATURE_HEADER: base64.b64encode(signature).decode(),
    }


def test_sendgrid_signature_of_the_current_and_the_former_key_is_accepted() -> None:
    keys = (public_text(get_key("current")), public_pem(get_key("former")))
    for name in ("current", "former"):
        assert verify(ADAPTER, BODY, sign_headers(name), keys) is None
    assert verify(ADAPTER, BODY, sign_headers("foreign"), keys) == "sender.signature_invalid"


@pytest.mark.parametrize(
    "changed_headers",
    [
        {SIGNATURE_HEADER: ""},
        {SIGNATURE_HEADER: "?"},
        {SIGNATURE_HEADER: "é"},
        {SIGNATURE_HEADER: base64.b64encode(b"x" * 70).decode()},
        {TIMESTAMP_HEADER: ""},
        {TIMESTAMP_HEADER: str(NOW_SECONDS + 1)},
        {TIMESTAMP_HEADER: "\udcff"},
    ],
)
def test_sendgrid_request_with_an_altered_header_is_rejected(
    changed_headers: dict[str, str],
) -> None:
    keys = (public_text(get_key("current")),)
    assert (
        verify(ADAPTER, BODY, sign_headers() | changed_headers, keys) == "sender.signature_invalid"
    )


@pytest.mark.parametrize(
    ("age", "is_valid"),
    [
        (timedelta(hours=24, minutes=59), True),
        (timedelta(hours=25, seconds=1), False),
        (timedelta(days=30), False),
        (-timedelta(hours=26), False),
    ],
)
def test_sendgrid_signature_is_valid_longer_than_sendgrid_retries(
    *, age: timedelta, is_valid: bool
) -> None:
    headers = sign_headers(timestamp=str(NOW_SECONDS - int(age.total_seconds())))
    assert (verify(ADAPTER, BODY, headers, (public_text(get_key("current")),)) is None) is is_valid


@pytest.mark.parametrize("timestamp", ["x", "-1", "1e9", "٣", "9" * 11, "9" * 5_000])
def test_unreadable_time_of_sendgrid_is_rejected(timestamp: str) -> None:
    keys = (public_text(get_key("current")),)
    headers = sign_headers(timestamp=timestamp)
    assert verify(ADAPTER, BODY, headers, keys) == "sender.signature_invalid"


def test_start_of_a_signed_body_is_not_accepted_as_the_timestamp() -> None:
    keys = (public_text(get_key("current")),)
    headers = sign_headers()
    body = headers[TIMESTAMP_HEADER].encode() + BODY
    for changed_headers in (
        headers | {TIMESTAMP_HEADER: ""},
        {SIGNATURE_HEADER: headers[SIGNATURE_HEADER]},
    ):
        assert verify(ADAPTER, body, changed_headers, keys) == "sender.signature_invalid"


def test_sendgrid_signature_covers_every_byte_of_the_body() -> None:
    keys = (public_text(get_key("current")),)
    assert verify(ADAPTER, BODY.strip(), sign_headers(), keys) == "sender.signature_invalid"
    assert verify(ADAPTER, BODY, {}, keys) == "sender.signature_invalid"
    assert verify(ADAPTER, BODY, sign_headers(), ("", "not a key")) == "sender.signature_invalid"


def test_only_a_p256_public_key_is_a_key_of_sendgrid() -> None:
    assert is_public_key(public_text(get_key("current")))
    assert is_public_key(public_pem(get_key("current")) + "\n")
    other_curve = ec.generate_private_key(ec.SECP384R1())
    rsa_key = rsa.generate_private_key(65537, 2048)
    for text in ("", "x", "-----BEGIN", public_text(other_curve), public_text(rsa_key), "é"):
        assert not is_public_key(text)
