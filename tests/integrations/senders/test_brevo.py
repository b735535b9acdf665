import base64
from datetime import UTC, datetime
from typing import Any

import pytest

from integrations.senders.brevo import BrevoAdapter
from integrations.senders.port import BounceClass, Report, ReportKind
from tests.support.senders.adapters import (
    ADDRESS,
    DELIVERY_ID,
    OTHER_ID,
    describe,
    parse,
    parse_one,
    verify,
)

ADAPTER = BrevoAdapter()
BOUNCE = {
    "event": "hard_bounce",
    "email": ADDRESS,
    "id": 31,
    "date": "2026-11-29 12:11:12",
    "ts": 1_796_000_000,
    "ts_event": 1_796_000_000,
    "ts_epoch": 1_795_947_072_250,
    "message-id": "<202611291011.1@smtp-relay.example.com>",
    "subject": "Your letter",
    "X-Mailin-custom": DELIVERY_ID,
    "sending_ip": "192.0.2.1",
    "template_id": 4,
    "tags": ["issue-12"],
    "reason": "550 5.1.1 There is no such mailbox",
}


@pytest.mark.parametrize(
    ("event_type", "effect"),
    [
        ("hard_bounce", "bounced hard"),
        ("invalid_email", "bounced hard"),
        ("soft_bounce", "bounced soft"),
        ("blocked", "bounced blocked"),
        ("error", "bounced blocked"),
        ("spam", "complained"),
        ("complaint", "complained"),
        ("unsubscribe", "unsubscribed"),
        ("unsubscribed", "unsubscribed"),
        ("delivered", "delivered"),
        ("opened", "opened"),
        ("unique_opened", "opened"),
        ("click", "clicked"),
        ("proxy_open", "opened machine"),
        ("unique_proxy_open", "opened machine"),
        ("request", "ignored"),
        ("sent", "ignored"),
        ("deferred", "ignored"),
        ("list_addition", "ignored"),
        (None, "invalid"),
        ([], "invalid"),
    ],
)
def test_brevo_event_has_the_effect_of_the_table(event_type: object, effect: str) -> None:
    content = {**BOUNCE, "event": event_type, "reason": None}
    assert describe(parse_one(ADAPTER, content)) == effect


@pytest.mark.parametrize(
    ("reason", "effect"),
    [
        ("552 5.2.2 The mailbox is full", "bounced soft 5.2.2"),
        ("554 5.3.4 The system has no space", "bounced blocked 5.3.4"),
        ("550 5.7.1 Rejected by policy", "bounced blocked 5.7.1"),
        ("550 blocked by 10.5.7.1", "bounced hard"),
        ("550 5.7.1.20 refused", "bounced hard"),
        ("550 no such user", "bounced hard"),
        ("550 rejected by MailServer 5.3.1: no such user", "bounced hard"),
        ("mx.example.org (Exim 4.94.2) said: 550 5.1.1 Unknown", "bounced hard 5.1.1"),
        ("550 see section 5.7.0 of our rules", "bounced hard"),
        ("550 5.0.0 Failed", "bounced hard 5.0.0"),
        ("550 5.0.0 Failed: 550-5.7.26 Unauthenticated", "bounced blocked 5.7.26"),
        ("smtp; 550 #5.7.1 Rejected", "bounced blocked 5.7.1"),
        ("Rejected by policy (#5.7.1)", "bounced blocked 5.7.1"),
        ("5.7.509 Access denied", "bounced blocked 5.7.509"),
        ("550 5.1.1.", "bounced hard 5.1.1"),
        (None, "bounced hard"),
    ],
)
def test_hard_bounce_with_the_status_of_a_policy_or_full_mailbox_is_not_hard(
    reason: object, effect: str
) -> None:
    assert describe(parse_one(ADAPTER, {**BOUNCE, "reason": reason})) == effect


def test_brevo_report_takes_its_time_only_from_the_field_in_utc() -> None:
    assert parse_one(ADAPTER, BOUNCE) == Report(
        kind=ReportKind.BOUNCED,
        delivery_id=DELIVERY_ID,
        email=ADDRESS,
        occurred_at=datetime(2026, 11, 29, 10, 11, 12, 250_000, tzinfo=UTC),
        message_id="<202611291011.1@smtp-relay.example.com>",
        bounce_class=BounceClass.HARD,
        status="5.1.1",
    )
    # Brevo sends ``ts_epoch`` in milliseconds. Pressroom ignores the value 1,795,947,072, because
    # this number of milliseconds means a day in January 1970.
    for value in (None, "1795947072250", 1_795_947_072, -1, 0, 1e300, 2**64 - 1, True):
        assert parse_one(ADAPTER, {**BOUNCE, "ts_epoch": value}).occurred_at is None


@pytest.mark.parametrize(
    ("id_fields", "delivery_id"),
    [
        ({"X-Mailin-custom": f'{{"delivery_id": "{DELIVERY_ID}"}}'}, DELIVERY_ID),
        ({"x-mailin-custom": OTHER_ID, "X-Mailin-custom": None}, None),
        ({"X-Mailin-custom": None, "X-Pressroom-Delivery": OTHER_ID}, OTHER_ID),
        ({"X-Mailin-custom": "a|b", "tags": ["issue-12", DELIVERY_ID]}, DELIVERY_ID),
        ({"X-Mailin-custom": "{}", "tags": None, "tag": DELIVERY_ID}, DELIVERY_ID),
        ({"X-Mailin-custom": f"{DELIVERY_ID}a", "tags": []}, None),
        ({"X-Mailin-custom": f'["{DELIVERY_ID}"]', "tags": [7, None]}, None),
    ],
)
def test_brevo_delivery_id_is_found_in_the_custom_header_then_header_then_tag(
    id_fields: dict[str, Any], delivery_id: str | None
) -> None:
    event = parse_one(ADAPTER, {**BOUNCE, **id_fields})
    assert isinstance(event, Report)
    assert event.delivery_id == delivery_id


def test_batch_of_brevo_events_keeps_its_order() -> None:
    batch = [{**BOUNCE, "event": name} for name in ("delivered", "opened", "request")] + [7]
    effects = [describe(event) for event in parse(ADAPTER, batch).events]
    assert effects == ["delivered", "opened", "ignored", "invalid"]


def test_brevo_request_needs_the_senders_secret() -> None:
    token = base64.b64encode(b"pressroom:s3cret").decode()
    for value in ("Bearer s3cret", f"Basic {token}"):
        assert verify(ADAPTER, b"[]", {"authorization": value}, ("s3cret",)) is None
        error = verify(ADAPTER, b"[]", {"authorization": value}, ("other",))
        assert error == "sender.signature_invalid"
