import time
from dataclasses import replace
from datetime import timedelta

import pytest
from pydantic import SecretStr

from core import clock
from core.errors import DomainError, Kind
from devstack.sandbox.stripe.objects import StripeKeys
from integrations.payments.port import Evidence, OpenedCheckout, PaymentChannel
from integrations.payments.stripe import StripeCheckout
from tests.support.credits.payment_events import EventReader, build_paid_session, sign_event
from tests.support.credits.payments import Json, SandboxPayments, build_checkout


def test_payment_event_with_one_valid_signature_is_accepted_during_secret_rotation(
    payment_sandbox: SandboxPayments, opened_checkout: OpenedCheckout, read_event: EventReader
) -> None:
    payment_sandbox.hold()
    payment_sandbox.expire(opened_checkout.session_id)
    [event] = payment_sandbox.events(opened_checkout.session_id)
    payment_sandbox.deliver(event, signature="rolled")
    evidence = read_event.evidence("checkout.session.expired", opened_checkout)
    assert (evidence.session_id, evidence.expired, evidence.paid) == (
        opened_checkout.session_id,
        True,
        False,
    )


@pytest.mark.parametrize("body", [b"{}", b"\xff\xfe"])
@pytest.mark.parametrize(
    "header",
    [
        *("", "t=,v1=", "t=1", "v1=00", "nonsense", "t=1,v1=é", "t=1,v1"),
        *(f"t={'9' * 5000},v1=00", "t={now},v1=00"),
    ],
    ids=range(9),
)
def test_malformed_signature_header_is_rejected_as_invalid_signature(
    account: StripeCheckout, header: str, body: bytes
) -> None:
    with pytest.raises(DomainError) as error:
        account.parse_event(body, header.replace("{now}", str(int(time.time()))))
    assert error.value.code == "webhook.signature_invalid"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b"not json",
        b'{"object": "v2.core.event", "id": "evt_1", "type": "x"}',
        b'{"object": "event", "id": "evt_1", "type": "charge.refunded", "created": 1}',
        b'{"object": "event", "id": "evt_1", "type": "x", "created": 1e300, "data": {"object": 1}}',
        build_paid_session(payment_intent=[], amount_total="much", metadata=7),
    ],
    ids=range(9),
)
def test_signed_malformed_payment_event_is_rejected_as_unreadable(
    account: StripeCheckout, stripe_keys: StripeKeys, body: bytes
) -> None:
    with pytest.raises(DomainError) as error:
        account.parse_event(*sign_event(stripe_keys, body))
    assert (error.value.code, error.value.kind) == ("webhook.unreadable", Kind.MALFORMED)


def test_payment_event_contains_order_amount_and_currency(
    account: StripeCheckout, payment_sandbox: SandboxPayments, read_event: EventReader
) -> None:
    order = build_checkout(500, "JPY")
    opened_checkout = account.open_checkout(order)
    payment_sandbox.pay(opened_checkout.payment_url)
    event = read_event.event("checkout.session.completed", opened_checkout)
    [stored_event] = payment_sandbox.events(opened_checkout.session_id)
    assert (event.id, event.type) == (stored_event["id"], "checkout.session.completed")
    assert abs(event.created_at - clock.now()) < timedelta(minutes=1)
    assert event.evidence == Evidence(
        order_id=order.order_id,
        session_id=opened_checkout.session_id,
        payment_id=payment_sandbox.session(opened_checkout.session_id)["payment"],
        amount_minor=500,
        currency="JPY",
        paid=True,
    )


def test_payment_event_of_declined_card_is_ignored(
    payment_sandbox: SandboxPayments, opened_checkout: OpenedCheckout, read_event: EventReader
) -> None:
    payment_sandbox.decline(opened_checkout.session_id)
    assert read_event.event("payment_intent.payment_failed", opened_checkout).evidence is None


def test_refund_event_contains_total_refunded_amount(
    account: StripeCheckout, payment_sandbox: SandboxPayments, read_event: EventReader
) -> None:
    order = build_checkout()
    opened_checkout = account.open_checkout(order)
    payment_sandbox.pay(opened_checkout.session_id)
    payment_sandbox.refund(opened_checkout.session_id, 34)
    expected = Evidence(
        order_id=order.order_id,
        payment_id=payment_sandbox.session(opened_checkout.session_id)["payment"],
        amount_minor=1234,
        currency="USD",
        paid=True,
        refunded_minor=34,
    )
    assert read_event.evidence("charge.refunded", opened_checkout) == expected
    payment_sandbox.refund(opened_checkout.session_id)
    assert read_event.evidence("charge.refunded", opened_checkout).refunded_minor == 1234


@pytest.mark.parametrize(("ending", "lost"), [("win", 0), ("lose", 1000)])
def test_dispute_event_contains_disputed_and_lost_amounts(
    payment_sandbox: SandboxPayments,
    opened_checkout: OpenedCheckout,
    read_event: EventReader,
    ending: str,
    lost: int,
) -> None:
    payment_sandbox.pay(opened_checkout.session_id)
    payment_id = payment_sandbox.session(opened_checkout.session_id)["payment"]
    payment_sandbox.dispute(opened_checkout.session_id, 1000)
    expected = Evidence(
        payment_id=payment_id, disputes_minor=1000, disputes_ended_minor=0, disputes_lost_minor=0
    )
    assert read_event.evidence("charge.dispute.created", opened_checkout) == expected
    assert read_event.evidence("charge.dispute.funds_withdrawn", opened_checkout) == expected
    getattr(payment_sandbox, ending)(opened_checkout.session_id)
    expected_at_end = replace(expected, disputes_ended_minor=1000, disputes_lost_minor=lost)
    assert read_event.evidence("charge.dispute.closed", opened_checkout) == expected_at_end


def test_payment_event_of_bank_inquiry_is_ignored(
    payment_sandbox: SandboxPayments, opened_checkout: OpenedCheckout, read_event: EventReader
) -> None:
    payment_sandbox.pay(opened_checkout.session_id)
    payment_sandbox.inquire(opened_checkout.session_id)
    assert read_event.event("charge.dispute.created", opened_checkout).evidence is None
    payment_sandbox.lose(opened_checkout.session_id)
    assert read_event.event("charge.dispute.closed", opened_checkout).evidence is None


def test_payment_event_of_another_shop_on_the_same_account_is_ignored(
    account: StripeCheckout, stripe_keys: StripeKeys
) -> None:
    assert account.parse_event(*sign_event(stripe_keys, build_paid_session())).evidence is not None
    metadata: tuple[Json | None, ...] = (
        {},
        None,
        {"order_id": "7"},
        {"application": "pressroom"},
        {"application": "pressroom", "order_id": "seven"},
        {"application": "pressroom", "order_id": "-7"},
    )
    for order_metadata in metadata:
        body = build_paid_session(metadata=order_metadata)
        assert account.parse_event(*sign_event(stripe_keys, body)).evidence is None


@pytest.mark.parametrize(
    ("key", "is_live_event", "counts"),
    [
        ("sk_live_1", True, True),
        ("rk_live_1", True, True),
        ("sk_live_1", False, False),
        ("sk_test_1", True, False),
        ("sk_test_1", False, True),
    ],
)
def test_events_of_test_payments_are_ignored_with_a_live_key(
    stripe_keys: StripeKeys, key: str, is_live_event: bool, counts: bool
) -> None:
    account = StripeCheckout(
        PaymentChannel.STRIPE,
        base_url="http://127.0.0.1:9",
        secret_key=SecretStr(key),
        webhook_secret=SecretStr(stripe_keys.webhook_secret),
    )
    event = account.parse_event(
        *sign_event(stripe_keys, build_paid_session(livemode=is_live_event))
    )
    assert (event.evidence is not None) == counts
