"""What is no event, or not from the provider, is told apart from what is."""

import time

import pytest

from core.errors import DomainError, Kind
from devstack.sandbox.stripe.keys import StripeKeys
from integrations.payments.port import OpenedCheckout
from integrations.payments.stripe_checkout import StripeCheckout
from tests.integrations.payments.reading import Reader, a_paid_session, signed
from tests.payments import SandboxPayments, Signature
from tests.webhooks import Receiver


@pytest.mark.parametrize("signature", ["wrong", "missing", "old"])
def test_a_webhook_that_is_not_signed_well_is_refused(
    sandbox: SandboxPayments,
    opened: OpenedCheckout,
    read: Reader,
    signature: Signature,
) -> None:
    sandbox.hold()
    sandbox.expire(opened.session_id)
    [event] = sandbox.events(opened.session_id)
    assert sandbox.deliver(event, signature=signature) == [200]
    with pytest.raises(DomainError) as refused:
        read.event("checkout.session.expired", opened)
    assert (refused.value.code, refused.value.kind) == (
        "webhook.signature_invalid",
        Kind.MALFORMED,
    )
    assert sandbox.deliver(event) == [200]
    assert read.evidence("checkout.session.expired", opened).expired


def test_while_a_secret_is_rolled_one_good_signature_is_enough(
    sandbox: SandboxPayments, opened: OpenedCheckout, read: Reader
) -> None:
    sandbox.hold()
    sandbox.expire(opened.session_id)
    [event] = sandbox.events(opened.session_id)
    sandbox.deliver(event, signature="rolled")
    assert read.evidence("checkout.session.expired", opened).expired


def test_a_body_that_was_changed_on_its_way_is_refused(
    account: StripeCheckout, sandbox: SandboxPayments, opened: OpenedCheckout, receiver: Receiver
) -> None:
    sandbox.pay(opened.session_id)
    sent = receiver.next("checkout.session.completed", opened.session_id)
    with pytest.raises(DomainError, match="signature"):
        account.event(sent.body.replace(b"1234", b"9999"), sent.signature)
    with pytest.raises(DomainError, match="signature"):
        account.event(sent.body + b" ", sent.signature)


@pytest.mark.parametrize(
    "header",
    ["", "t=,v1=", "t=1", "v1=00", "nonsense", "t=1,v1=é", "t=1,v1", f"t={'9' * 5000},v1=00"],
    ids=range(8),
)
def test_headers_of_any_shape_are_refused_in_one_way(account: StripeCheckout, header: str) -> None:
    with pytest.raises(DomainError) as refused:
        account.event(b"{}", header)
    assert refused.value.code == "webhook.signature_invalid"


def test_a_body_that_is_no_text_is_refused(account: StripeCheckout) -> None:
    with pytest.raises(DomainError) as refused:
        account.event(b"\xff\xfe", f"t={int(time.time())},v1=00")
    assert refused.value.code == "webhook.signature_invalid"


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
        a_paid_session(payment_intent=[], amount_total="much", metadata=7),
    ],
    ids=range(9),
)
def test_a_signed_body_of_no_event_is_unreadable(
    account: StripeCheckout, keys: StripeKeys, body: bytes
) -> None:
    with pytest.raises(DomainError) as refused:
        account.event(*signed(keys, body))
    assert (refused.value.code, refused.value.kind) == ("webhook.unreadable", Kind.MALFORMED)
