import logging
from datetime import timedelta

import pytest

from core import clock
from core.errors import DomainError, Kind
from devstack.sandbox.stripe.objects import StripeKeys
from integrations.payments import stripe
from integrations.payments.port import Evidence, OpenedCheckout
from integrations.payments.stripe import StripeCheckout
from tests.support.credits.payments import (
    RETURN_URL,
    SandboxPayments,
    build_checkout,
    connect_adapter,
)

# Stripe returns at most 100 objects per page, so it needs two pages for 101 objects.
OBJECT_COUNT = 101


def test_open_checkout_shows_only_its_order_amount_and_currency(
    account: StripeCheckout,
) -> None:
    order = build_checkout()
    opened_checkout = account.open_checkout(order)
    assert account.fetch_evidence(opened_checkout.session_id) == Evidence(
        order_id=order.order_id,
        session_id=opened_checkout.session_id,
        amount_minor=1234,
        currency="USD",
    )
    assert abs(opened_checkout.expires_at - order.expires_at) < timedelta(seconds=1)


def test_paid_checkout_shows_its_payment_which_leads_to_the_order(
    account: StripeCheckout, payment_sandbox: SandboxPayments
) -> None:
    order = build_checkout()
    opened_checkout = account.open_checkout(order)
    assert payment_sandbox.pay(opened_checkout.payment_url) == RETURN_URL
    evidence = account.fetch_evidence(opened_checkout.session_id)
    assert evidence.paid
    assert not evidence.failed
    assert evidence.payment_id
    assert account.find_order_id(evidence.payment_id) == order.order_id
    assert (evidence.refunded_minor, evidence.disputes_minor) == (None, None)


def test_checkout_can_still_be_paid_after_declined_card_or_cancellation(
    account: StripeCheckout, payment_sandbox: SandboxPayments, opened_checkout: OpenedCheckout
) -> None:
    payment_sandbox.decline(opened_checkout.session_id)
    declined = account.fetch_evidence(opened_checkout.session_id)
    assert payment_sandbox.cancel(opened_checkout.payment_url) == RETURN_URL
    for evidence in (declined, account.fetch_evidence(opened_checkout.session_id)):
        assert (evidence.paid, evidence.failed, evidence.expired) == (False, False, False)
    payment_sandbox.pay(opened_checkout.session_id)
    assert account.fetch_evidence(opened_checkout.session_id).paid


def test_refunds_of_a_checkout_are_summed(
    account: StripeCheckout, payment_sandbox: SandboxPayments, opened_checkout: OpenedCheckout
) -> None:
    payment_sandbox.pay(opened_checkout.session_id)
    payment_sandbox.refund(opened_checkout.session_id, 234)
    evidence = account.fetch_evidence(opened_checkout.session_id)
    assert (evidence.paid, evidence.refunded_minor) == (True, 234)
    payment_sandbox.refund(opened_checkout.session_id)
    assert account.fetch_evidence(opened_checkout.session_id).refunded_minor == 1234


def test_refunds_of_a_payment_are_counted_across_pages(
    account: StripeCheckout,
    payment_sandbox: SandboxPayments,
    opened_checkout: OpenedCheckout,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment_sandbox.pay(opened_checkout.session_id)
    for _ in range(OBJECT_COUNT):
        payment_sandbox.refund(opened_checkout.session_id, 2)
    # Let one refund fail, because the adapter must add up the failed refunds separately.
    payment_sandbox.fail_refund(opened_checkout.session_id)
    payment_id = account.fetch_evidence(opened_checkout.session_id).payment_id
    assert payment_id
    evidence = account.fetch_refunds(payment_id)
    assert (evidence.refunded_minor, evidence.refunds_failed_minor) == (2 * OBJECT_COUNT, 2)
    # The adapter reads only a limited number of refunds, and raises an error if there are more.
    monkeypatch.setattr(stripe, "_MAX_LISTED_OBJECTS", OBJECT_COUNT - 1)
    with pytest.raises(DomainError, match="more than 100"):
        account.fetch_refunds(payment_id)


def get_dispute_amounts(evidence: Evidence) -> tuple[int | None, int | None, int | None]:
    return evidence.disputes_minor, evidence.disputes_ended_minor, evidence.disputes_lost_minor


def test_disputes_of_a_payment_are_summed(
    account: StripeCheckout, payment_sandbox: SandboxPayments, opened_checkout: OpenedCheckout
) -> None:
    payment_sandbox.pay(opened_checkout.session_id)
    for amount in (200, 300, 34, 500):
        payment_sandbox.dispute(opened_checkout.session_id, amount)
    payment_sandbox.lose(opened_checkout.session_id, 300)
    payment_sandbox.win(opened_checkout.session_id)
    payment_sandbox.lose(opened_checkout.session_id, 34)
    evidence = account.fetch_evidence(opened_checkout.session_id)
    assert get_dispute_amounts(evidence) == (1034, 534, 334)
    assert evidence.payment_id
    assert get_dispute_amounts(account.fetch_disputes(evidence.payment_id)) == (1034, 534, 334)


def test_disputes_of_a_payment_are_counted_across_pages(
    account: StripeCheckout,
    payment_sandbox: SandboxPayments,
    opened_checkout: OpenedCheckout,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment_sandbox.pay(opened_checkout.session_id)
    for _ in range(OBJECT_COUNT):
        payment_sandbox.dispute(opened_checkout.session_id, 2)
    # Let the seller lose the oldest dispute. Stripe lists the oldest dispute on the last page, so
    # the test fails if the adapter doesn't read the last page.
    payment_sandbox.lose(opened_checkout.session_id)
    payment_id = payment_sandbox.session(opened_checkout.session_id)["payment"]
    assert get_dispute_amounts(account.fetch_disputes(payment_id)) == (2 * OBJECT_COUNT, 2, 2)
    monkeypatch.setattr(stripe, "_MAX_LISTED_OBJECTS", OBJECT_COUNT - 1)
    with pytest.raises(DomainError, match="more than 100"):
        account.fetch_disputes(payment_id)


def test_bank_inquiry_is_not_counted_as_dispute(
    account: StripeCheckout, payment_sandbox: SandboxPayments, opened_checkout: OpenedCheckout
) -> None:
    payment_sandbox.pay(opened_checkout.session_id)
    payment_sandbox.inquire(opened_checkout.session_id)
    assert not account.fetch_evidence(opened_checkout.session_id).disputes_minor
    payment_id = payment_sandbox.session(opened_checkout.session_id)["payment"]
    assert get_dispute_amounts(account.fetch_disputes(payment_id)) == (0, 0, 0)


def test_closing_a_paid_or_closed_checkout_changes_nothing(
    account: StripeCheckout, payment_sandbox: SandboxPayments, opened_checkout: OpenedCheckout
) -> None:
    payment_sandbox.pay(opened_checkout.session_id)
    account.close_checkout(opened_checkout.session_id)
    evidence = account.fetch_evidence(opened_checkout.session_id)
    assert (evidence.paid, evidence.expired) == (True, False)
    second_checkout = account.open_checkout(build_checkout())
    account.close_checkout(second_checkout.session_id)
    account.close_checkout(second_checkout.session_id)
    assert account.fetch_evidence(second_checkout.session_id).expired


def test_order_cannot_be_opened_again_with_another_price(account: StripeCheckout) -> None:
    order = build_checkout()
    account.open_checkout(order)
    with pytest.raises(DomainError) as error:
        account.open_checkout(type(order)(**{**vars(order), "amount_minor": 1}))
    assert error.value.code == "payments.refused"


@pytest.mark.parametrize(
    ("requested_duration", "actual_duration"),
    [
        (timedelta(minutes=1), timedelta(minutes=31)),
        (timedelta(days=3), timedelta(hours=23, minutes=59)),
    ],
)
def test_checkout_expiry_is_clamped_to_the_range_stripe_allows(
    account: StripeCheckout, requested_duration: timedelta, actual_duration: timedelta
) -> None:
    opened_checkout = account.open_checkout(build_checkout(requested_duration=requested_duration))
    assert abs(opened_checkout.expires_at - clock.now() - actual_duration) < timedelta(seconds=30)


def test_unknown_payment_belongs_to_no_order(account: StripeCheckout) -> None:
    assert account.find_order_id("pi_of_somebody_else") is None


def test_unknown_checkout_is_rejected(account: StripeCheckout) -> None:
    for call in (account.fetch_evidence, account.close_checkout):
        with pytest.raises(DomainError) as error:
            call("cs_test_unknown")
        assert (error.value.code, error.value.kind) == ("payments.refused", Kind.PROVIDER_FAILED)


def test_payment_provider_error_reveals_no_key(sandbox_url: str, stripe_keys: StripeKeys) -> None:
    other_keys = StripeKeys(webhook_secret=stripe_keys.webhook_secret)
    with pytest.raises(DomainError) as error:
        connect_adapter(f"{sandbox_url}/stripe", other_keys).open_checkout(build_checkout())
    assert error.value.code == "payments.refused"
    assert other_keys.secret_key[-4:] not in error.value.message
    assert error.value.__cause__ is None


def test_payment_provider_responses_are_never_logged(
    account: StripeCheckout, opened_checkout: OpenedCheckout, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        account.fetch_evidence(opened_checkout.session_id)
        assert "amount_total" not in caplog.text
        # Check that the log contains messages of the HTTP client. If the HTTP client also logged
        # the provider's responses, the log would contain `amount_total`.
        assert "httpx2" in {each.name for each in caplog.records}
