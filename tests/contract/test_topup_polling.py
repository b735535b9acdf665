"""Tests that polling completes orders whose webhooks never arrive."""

import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from pydantic import AnyHttpUrl, SecretStr

from devstack.harness.opening import build_settings
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from integrations.payments.registry import PaymentChannels
from integrations.payments.stripe import StripeHttpClient
from services.credits import polling
from tests.support.credits import topups
from tests.support.credits.credits import balance
from tests.support.credits.payments import SandboxPayments


def read_status_history(stack: Stack, order_id: int) -> list[object]:
    rows = stack.query(
        "SELECT to_status FROM payment_order_changes WHERE order_id = %s ORDER BY id", order_id
    )
    return [status for (status,) in rows]


@pytest.fixture(autouse=True)
def _hold_webhooks(sandbox_payments: SandboxPayments) -> None:
    """Make the simulated payment provider hold back its webhooks."""
    sandbox_payments.hold()


@pytest.fixture
def unpaid_order_id(client: httpx2.Client) -> int:
    """The id of a new order that has not been paid."""
    return int(topups.create_order(client)["order_id"])


def poll(stack: Stack) -> int:
    return polling.poll_orders(stack.resources, PaymentChannels(build_settings(stack.environment)))


def read_seconds_to_next_poll(stack: Stack, unpaid_order_id: int) -> object:
    """Return the number of seconds until the next poll of an order."""
    [(seconds,)] = stack.query(
        "SELECT extract(epoch FROM next_check_at - now())::float8"
        " FROM payment_orders WHERE id = %s",
        unpaid_order_id,
    )
    return seconds


def test_worker_finds_a_paid_order_by_polling(
    stack: Stack, client: httpx2.Client, sandbox_payments: SandboxPayments
) -> None:
    order_id = topups.create_order(client)["order_id"]
    sandbox_payments.pay(order_id)
    topups.poll_now(stack, order_id)
    topups.await_status(stack, order_id, "paid")
    assert balance(client) == 500
    assert read_status_history(stack, order_id) == ["created", "pending", "paid"]
    # A paid order is not polled again.
    assert read_seconds_to_next_poll(stack, order_id) is None


@pytest.mark.parametrize(
    ("age_minutes", "next_minutes"), [(0, 1), (2, 5), (6, 20), (30, 61), (59, 61)]
)
def test_unpaid_order_is_polled_at_growing_intervals(
    stack: Stack, unpaid_order_id: int, age_minutes: int, next_minutes: int
) -> None:
    move_into_the_past(stack, unpaid_order_id, f"{age_minutes} minutes")
    poll(stack)
    [(minutes,)] = stack.query(
        "SELECT extract(epoch FROM next_check_at - created_at)::float8 / 60"
        " FROM payment_orders WHERE id = %s",
        unpaid_order_id,
    )
    assert minutes == pytest.approx(next_minutes, abs=0.1)
    assert topups.read_order_status(stack, unpaid_order_id) == "pending"


def move_into_the_past(stack: Stack, unpaid_order_id: int, interval: str) -> None:
    """Move the times of an order into the past, and make the next poll due."""
    stack.query(
        "SET session_replication_role = replica; UPDATE payment_orders"
        " SET created_at = created_at - interval %s, expires_at = expires_at - interval %s,"
        " next_check_at = now() WHERE id = %s",
        interval,
        interval,
        unpaid_order_id,
    )


def test_order_paid_just_before_its_expiry_is_credited(
    stack: Stack, client: httpx2.Client, sandbox_payments: SandboxPayments
) -> None:
    order_id = topups.create_order(client)["order_id"]
    sandbox_payments.pay(order_id)
    topups.expire_order(stack, order_id)
    poll(stack)
    assert topups.read_order_status(stack, order_id) == "paid"
    assert balance(client) == 500


def test_polling_finds_delayed_payments_of_expired_orders(
    stack: Stack, client: httpx2.Client, sandbox_payments: SandboxPayments
) -> None:
    paid_id, failed_id = (topups.create_order(client)["order_id"] for _ in range(2))
    for order_id in (paid_id, failed_id):
        sandbox_payments.promise(order_id)
        topups.expire_order(stack, order_id)
    poll(stack)
    for order_id in (paid_id, failed_id):
        assert topups.read_order_status(stack, order_id) == "expired"
        assert read_seconds_to_next_poll(stack, order_id) is not None
    sandbox_payments.settle(paid_id)
    sandbox_payments.fall_through(failed_id)
    topups.make_orders_due(stack, paid_id, failed_id)
    poll(stack)
    assert read_status_history(stack, paid_id) == ["created", "pending", "expired", "paid"]
    assert topups.read_order_status(stack, failed_id) == "expired"
    assert read_seconds_to_next_poll(stack, failed_id) is None
    assert balance(client) == 500


@pytest.mark.parametrize(
    ("hours", "next_hours"), [(2, 25), (26, 73), (80, 14 * 24 + 1), (14 * 24 + 2, None)]
)
def test_delayed_payment_is_polled_for_two_weeks(
    stack: Stack,
    unpaid_order_id: int,
    sandbox_payments: SandboxPayments,
    hours: int,
    next_hours: int | None,
) -> None:
    sandbox_payments.promise(unpaid_order_id)
    move_into_the_past(stack, unpaid_order_id, f"{hours} hours")
    poll(stack)
    assert topups.read_order_status(stack, unpaid_order_id) == "expired"
    seconds = read_seconds_to_next_poll(stack, unpaid_order_id)
    if next_hours is None:
        assert seconds is None
    else:
        assert seconds == pytest.approx((next_hours - hours) * 3600, abs=60)


def test_order_of_a_disabled_payment_channel_is_polled_for_at_most_two_weeks(
    stack: Stack, unpaid_order_id: int
) -> None:
    settings_without_channel = build_settings(stack.environment).model_copy(
        update={"payments_sandbox_secret_key": None}
    )
    for hours, is_over in ((2, False), (24, False), (72, False), (14 * 24, True)):
        move_into_the_past(stack, unpaid_order_id, f"{hours} hours")
        polling.poll_orders(stack.resources, PaymentChannels(settings_without_channel))
        assert topups.read_order_status(stack, unpaid_order_id) == "expired"
        assert (read_seconds_to_next_poll(stack, unpaid_order_id) is None) is is_over


def test_abandoned_order_costs_five_provider_calls_and_closes_its_checkout(
    stack: Stack,
    unpaid_order_id: int,
    sandbox_payments: SandboxPayments,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called_methods: list[str] = []
    original_request = StripeHttpClient.request
    checkout_id = sandbox_payments.session(unpaid_order_id)["id"]

    def request_and_count(
        self: StripeHttpClient, method: str, url: str, *arguments: Any, **options: Any
    ) -> Any:
        # Ignore calls about orders of other tests, which may be due at the same time.
        if checkout_id in url:
            called_methods.append(method)
        return original_request(self, method, url, *arguments, **options)

    monkeypatch.setattr(StripeHttpClient, "request", request_and_count)
    poll_count = 0
    while (seconds := read_seconds_to_next_poll(stack, unpaid_order_id)) is not None:
        assert isinstance(seconds, float)
        move_into_the_past(stack, unpaid_order_id, f"{seconds} seconds")
        poll(stack)
        poll_count += 1
    assert topups.read_order_status(stack, unpaid_order_id) == "expired"
    assert sandbox_payments.session(unpaid_order_id)["status"] == "expired"
    # Three polls occur before the checkout expires. The fourth poll reads and closes it.
    assert (poll_count, called_methods) == (4, ["get", "get", "get", "get", "post"])


def test_poll_is_retried_later_when_the_payment_provider_is_unavailable(
    stack: Stack, unpaid_order_id: int, sandbox_payments: SandboxPayments
) -> None:
    sandbox_payments.pay(unpaid_order_id)
    topups.make_orders_due(stack, unpaid_order_id)
    sandbox_payments.fail_next_calls(count=100, status=500)
    poll(stack)
    assert topups.read_order_status(stack, unpaid_order_id) == "pending"
    seconds = read_seconds_to_next_poll(stack, unpaid_order_id)
    assert isinstance(seconds, float)
    assert seconds > 60
    sandbox_payments.stop_failures()
    topups.make_orders_due(stack, unpaid_order_id)
    poll(stack)
    assert topups.read_order_status(stack, unpaid_order_id) == "paid"


def test_order_that_cannot_be_settled_does_not_block_other_orders(
    stack: Stack, client: httpx2.Client, sandbox_payments: SandboxPayments
) -> None:
    broken_id, *other_ids = (topups.create_order(client)["order_id"] for _ in range(3))
    for order_id in (broken_id, *other_ids):
        sandbox_payments.pay(order_id)
        topups.make_orders_due(stack, order_id)
    add_failing_constraint = (
        "ALTER TABLE payment_orders ADD CONSTRAINT broken CHECK (id <> %s OR paid_at IS NULL)"
    )
    stack.query(add_failing_constraint, broken_id)
    try:
        poll(stack)
    finally:
        stack.query("ALTER TABLE payment_orders DROP CONSTRAINT broken")
    assert [topups.read_order_status(stack, other_id) for other_id in other_ids] == ["paid", "paid"]
    assert topups.read_order_status(stack, broken_id) == "pending"
    assert read_seconds_to_next_poll(stack, broken_id) == pytest.approx(3600, abs=60)
    topups.make_orders_due(stack, broken_id)
    poll(stack)
    assert topups.read_order_status(stack, broken_id) == "paid"


def test_concurrent_pollers_credit_each_order_only_once(
    stack: Stack, client: httpx2.Client, sandbox_payments: SandboxPayments
) -> None:
    order_ids = [topups.create_order(client)["order_id"] for _ in range(8)]
    for order_id in order_ids:
        sandbox_payments.pay(order_id)
        topups.make_orders_due(stack, order_id)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: poll(stack), range(3)))
    for order_id in order_ids:
        topups.await_status(stack, order_id, "paid")
    assert balance(client) == 8 * 500
    sandbox_payments.release(times=3, shuffle=True)
    eventually(
        lambda: all(each["attempts"] for each in sandbox_payments.events(order_ids[0])),
        what="the webhooks",
    )
    assert len(topups.read_ledger(client)) == 8


@pytest.mark.tier("faults")
def test_unresponsive_payment_channel_does_not_block_another_channel(
    stack: Stack, client: httpx2.Client, sandbox_payments: SandboxPayments
) -> None:
    stripe_order_ids = [topups.create_order(client)["order_id"] for _ in range(3)]
    sandbox_order_id = topups.create_order(client)["order_id"]
    sandbox_payments.pay(sandbox_order_id)
    for order_id in stripe_order_ids:
        stack.query(
            "SET session_replication_role = replica; UPDATE payment_orders"
            " SET channel = 'stripe' WHERE id = %s",
            order_id,
        )
    topups.make_orders_due(stack, *stripe_order_ids, sandbox_order_id)
    settings = build_settings(stack.environment)
    with socket.create_server(("127.0.0.1", 0)) as silent_server:
        settings_with_both_channels = settings.model_copy(
            update={
                "stripe_base_url": AnyHttpUrl(f"http://127.0.0.1:{silent_server.getsockname()[1]}"),
                "stripe_secret_key": SecretStr("sk_test_x"),
                "stripe_webhook_secret": SecretStr("whsec_x"),
            }
        )
        with ThreadPoolExecutor(1) as pool:
            poll_result = pool.submit(
                polling.poll_orders, stack.resources, PaymentChannels(settings_with_both_channels)
            )
            topups.await_status(stack, sandbox_order_id, "paid")
            assert not poll_result.done()
            poll_result.result(60)
    for order_id in stripe_order_ids:
        assert topups.read_order_status(stack, order_id) == "pending"
        assert read_seconds_to_next_poll(stack, order_id) is not None


def test_one_polling_round_checks_more_orders_than_one_batch(
    stack: Stack, unpaid_order_id: int, sandbox_payments: SandboxPayments
) -> None:
    order_count = polling.MAX_BATCH_ORDERS + 1
    stack.query(
        "INSERT INTO payment_orders (id, status, changed_via, channel, currency, amount,"
        " amount_minor, credit_amount, credits_per_usd, units_per_usd, expires_at, next_check_at)"
        " SELECT id + n, 'created', changed_via, channel, currency, amount, amount_minor,"
        " credit_amount, credits_per_usd, units_per_usd, now(), now() - interval '1 hour'"
        " FROM payment_orders CROSS JOIN generate_series(1, %s) AS n WHERE id = %s RETURNING 1",
        order_count,
        unpaid_order_id,
    )
    sandbox_payments.pay(unpaid_order_id)
    topups.make_orders_due(stack, unpaid_order_id)
    poll(stack)
    topups.await_status(stack, unpaid_order_id, "paid")
    select_failed = "SELECT 1 FROM payment_orders WHERE id BETWEEN %s AND %s AND status = 'failed'"
    assert (
        len(stack.query(select_failed, unpaid_order_id + 1, unpaid_order_id + order_count))
        == order_count
    )
