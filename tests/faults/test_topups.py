import random
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import httpx2
import pytest

from devstack.harness.stack import Stack
from models import Resolution
from services.credits import ledger, settlement
from tests.support.credits import stripe_events
from tests.support.credits.stripe_events import Json, OrderTerms, WebhookPoster
from tests.support.credits.topups import read_order_status
from tests.support.sizes import sized
from tests.support.stack import held_rows

pytestmark = pytest.mark.tier("fast")


def test_concurrent_duplicate_payment_events_credit_an_order_only_once(
    payment_stack: Stack, payment_webhooks: WebhookPoster
) -> None:
    for seed in range(sized(3, 100)):
        owner = payment_stack.create_owner()
        terms = stripe_events.new_order(
            payment_stack, owner.user_id, minor=500, credit_units=5_000_000
        )
        events = [
            stripe_events.session_event(terms),
            stripe_events.session_event(terms),
            stripe_events.refund_event(terms, 100),
        ]
        posts = events * 6
        random.Random(seed).shuffle(posts)
        with ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(payment_webhooks.post, posts))
        assert {reply.status_code for reply in replies} == {200}
        assert {reply.json()["data"] for reply in replies} == {1}
        assert stripe_events.read_balance_and_debt(payment_stack, owner.user_id) == (400, 0)
    stripe_events.require_clean_books(payment_stack)


@pytest.mark.parametrize(
    ("secret", "seconds_ago"), [("whsec_guessed", 0), (None, 301), (None, 86_400)]
)
def test_forged_or_late_payment_event_returns_400_and_changes_nothing(
    payment_stack: Stack, payment_webhooks: WebhookPoster, secret: str | None, seconds_ago: float
) -> None:
    terms = stripe_events.new_order(
        payment_stack,
        payment_stack.create_owner().user_id,
        minor=500,
        credit_units=5_000_000,
    )
    reply = payment_webhooks.post(
        stripe_events.session_event(terms), secret=secret, seconds_ago=seconds_ago
    )
    assert (reply.status_code, reply.json()["code"]) == (400, "webhook.signature_invalid")
    assert read_order_status(payment_stack, terms.order_id) == "created"


def test_payment_event_without_matching_signature_returns_400(
    payment_stack: Stack, payment_webhooks: WebhookPoster
) -> None:
    terms = stripe_events.new_order(
        payment_stack,
        payment_stack.create_owner().user_id,
        minor=500,
        credit_units=5_000_000,
    )
    signature = payment_webhooks.sign(b'{"id": "evt"}')
    for headers in ({"Stripe-Signature": signature}, {"Stripe-Signature": "t=1,v1="}, {}):
        reply = payment_webhooks.http.post(
            "/webhooks/stripe", json=stripe_events.session_event(terms), headers=headers
        )
        assert (reply.status_code, reply.json()["code"]) == (400, "webhook.signature_invalid")
    assert read_order_status(payment_stack, terms.order_id) == "created"


@pytest.mark.parametrize(
    "difference",
    [{"amount_total": 499}, {"amount_total": 50_000}, {"currency": "jpy"}, {"amount_total": 0}],
)
def test_payment_with_wrong_amount_or_currency_goes_to_review(
    payment_stack: Stack, payment_webhooks: WebhookPoster, difference: Json
) -> None:
    owner = payment_stack.create_owner()
    terms = stripe_events.new_order(payment_stack, owner.user_id, minor=500, credit_units=5_000_000)
    assert (
        payment_webhooks.post(stripe_events.session_event(terms, **difference)).status_code == 200
    )
    assert payment_webhooks.post(stripe_events.session_event(terms)).status_code == 200
    assert read_order_status(payment_stack, terms.order_id) == "review"
    assert stripe_events.read_balance_and_debt(payment_stack, owner.user_id) == (0, 0)
    paid = stripe_events.new_order(payment_stack, owner.user_id, minor=500, credit_units=5_000_000)
    payment_webhooks.post(stripe_events.session_event(paid))
    payment_webhooks.post(stripe_events.session_event(paid, **difference))
    assert read_order_status(payment_stack, paid.order_id) == "paid"
    assert stripe_events.read_balance_and_debt(payment_stack, owner.user_id) == (500, 0)


def test_unrelated_payment_events_return_200(
    payment_stack: Stack, payment_webhooks: WebhookPoster
) -> None:
    unknown = OrderTerms(5, 500, 5_000_000, "USD", "")
    foreign = stripe_events.session_event(
        unknown, metadata={"application": "somebody", "order_id": "5"}
    )
    for event in (
        stripe_events.session_event(unknown),
        foreign,
        stripe_events.build_event("customer.created", {"id": "x"}),
    ):
        assert payment_webhooks.post(event).status_code == 200


def test_dispute_event_before_its_payment_event_returns_503_and_succeeds_later(
    payment_stack: Stack, payment_webhooks: WebhookPoster
) -> None:
    owner = payment_stack.create_owner()
    terms = stripe_events.new_order(payment_stack, owner.user_id, minor=500, credit_units=5_000_000)
    early_event = stripe_events.dispute_event(terms, "needs_response", 500)
    reply = payment_webhooks.post(early_event)
    assert reply.status_code == 503
    assert payment_webhooks.post(stripe_events.session_event(terms)).status_code == 200
    assert payment_webhooks.post(early_event).status_code == 200
    assert read_order_status(payment_stack, terms.order_id) == "disputed"
    assert stripe_events.read_balance_and_debt(payment_stack, owner.user_id) == (0, 0)


def test_refund_total_is_corrected_although_the_refund_failure_event_was_lost(
    payment_stack: Stack, payment_webhooks: WebhookPoster
) -> None:
    for seed in range(sized(3, 30)):
        owner = payment_stack.create_owner()
        terms = stripe_events.new_order(
            payment_stack, owner.user_id, minor=500, credit_units=5_000_000
        )
        stripe_events.add_refund(terms, 500, "failed")
        stripe_events.add_refund(terms, 100)
        # A refund of the whole payment of 500 cents failed, and then a refund of 100 cents
        # succeeded. The event about the failure was lost, so Pressroom gets only two events about
        # refunds: one event says that 500 cents in total were refunded, and the other event says
        # 100 cents.
        events = [
            stripe_events.session_event(terms),
            stripe_events.refund_event(terms, 500),
            stripe_events.refund_event(terms, 100),
        ]
        random.Random(seed).shuffle(events)
        for event in events:
            assert payment_webhooks.post(event).status_code == 200
        assert stripe_events.read_balance_and_debt(payment_stack, owner.user_id) == (400, 0)
        assert read_order_status(payment_stack, terms.order_id) == "paid"
    stripe_events.require_clean_books(payment_stack)


def test_settlement_is_rolled_back_if_its_process_is_killed(
    payment_stack: Stack, payment_webhooks: WebhookPoster
) -> None:
    owner = payment_stack.create_owner()
    ledger.grant_credits(
        payment_stack.resources.database, owner.account_id, Decimal(1), source_id="x"
    )
    [(account,)] = payment_stack.query(
        "SELECT id FROM credit_accounts WHERE user_id = %s", owner.user_id
    )
    terms = stripe_events.new_order(payment_stack, owner.user_id, minor=500, credit_units=5_000_000)
    events = [
        stripe_events.session_event(terms),
        stripe_events.refund_event(terms, 200),
        stripe_events.dispute_event(terms, "lost", 100),
    ]
    expected = [("created", 1), ("paid", 501), ("paid", 301), ("paid", 201)]
    for event, (state, balance), (next_state, next_balance) in zip(
        events[: sized(3, 3, few=1)], expected, expected[1:], strict=False
    ):
        with ThreadPoolExecutor() as pool:
            # Kill the API while its transaction waits for the lock of the credit account. The
            # transaction has already updated the payment order.
            with held_rows.locked_row(payment_stack, "credit_accounts", account):
                posted = pool.submit(payment_webhooks.post, event)
                held_rows.await_waiter(payment_stack, "credit_")
                stripe_events.kill_and_restart_api(payment_stack)
            with pytest.raises(httpx2.TransportError):
                posted.result()
        assert read_order_status(payment_stack, terms.order_id) == state
        assert stripe_events.read_balance_and_debt(payment_stack, owner.user_id) == (balance, 0)
        # The payment provider got no response, so it sends the event again.
        assert payment_webhooks.post(event).status_code == 200
        assert read_order_status(payment_stack, terms.order_id) == next_state
        assert stripe_events.read_balance_and_debt(payment_stack, owner.user_id) == (
            next_balance,
            0,
        )
    stripe_events.require_clean_books(payment_stack)


def test_payment_beyond_the_maximum_balance_goes_to_review(
    payment_stack: Stack, payment_webhooks: WebhookPoster
) -> None:
    owner = payment_stack.create_owner()
    database = payment_stack.resources.database
    ledger.grant_credits(database, owner.account_id, Decimal("99999999999.9999"), source_id="x")
    terms = stripe_events.new_order(payment_stack, owner.user_id, minor=500, credit_units=5_000_000)
    assert payment_webhooks.post(stripe_events.session_event(terms)).status_code == 200
    assert read_order_status(payment_stack, terms.order_id) == "review"
    stripe_events.require_clean_books(payment_stack)
    ledger.adjust_balance(database, owner.account_id, Decimal(-500), source_id="x")
    with payment_stack.resources.unit_of_work() as uow:
        settlement.resolve_order(uow, terms.order_id, Resolution.CREDIT)
    assert read_order_status(payment_stack, terms.order_id) == "paid"
    stripe_events.require_clean_books(payment_stack)


def test_payment_webhook_larger_than_one_megabyte_returns_413(
    payment_stack: Stack, payment_webhooks: WebhookPoster
) -> None:
    reply = payment_webhooks.http.post("/webhooks/stripe", content=b"x" * (1024 * 1024 + 1))
    assert (reply.status_code, reply.json()["code"]) == (413, "body.too_large")
