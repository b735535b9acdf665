"""Orders of which no webhook tells come to their end all the same."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from integrations.payments.registry import PaymentChannels
from services.money.topups import polling
from tests.contract import topups
from tests.contract.credits import balance
from tests.payments import SandboxPayments
from tests.stack import Stack, eventually


@pytest.fixture(autouse=True)
def _no_webhooks(sandbox: SandboxPayments) -> None:
    sandbox.hold()


def poll(stack: Stack) -> int:
    return polling.poll(stack.resources, PaymentChannels(topups.settings_of(stack)))


def next_check(stack: Stack, order_id: int) -> object:
    """Seconds from now."""
    [(seconds,)] = stack.query(
        "SELECT extract(epoch FROM next_check_at - now())::float8"
        " FROM payment_orders WHERE id = %s",
        order_id,
    )
    return seconds


def test_a_paid_order_is_found_by_a_worker(
    stack: Stack, client: httpx.Client, sandbox: SandboxPayments
) -> None:
    order_id = topups.ordered(client)["order_id"]
    sandbox.pay(order_id)
    topups.poll_now(stack, order_id)
    topups.await_status(stack, order_id, "paid")
    assert balance(client) == 500
    assert topups.history(stack, order_id) == ["created", "pending", "paid"]
    # Nothing more is asked about it.
    assert next_check(stack, order_id) is None


def test_an_unpaid_order_is_asked_about_less_and_less(stack: Stack, client: httpx.Client) -> None:
    order_id = topups.ordered(client)["order_id"]
    seconds = next_check(stack, order_id)
    assert isinstance(seconds, float)
    assert 0 < seconds <= 31
    stack.query(
        "SET session_replication_role = replica; UPDATE payment_orders"
        " SET created_at = now() - interval '40 minutes', next_check_at = now() WHERE id = %s",
        order_id,
    )
    assert poll(stack) >= 1
    later = next_check(stack, order_id)
    assert isinstance(later, float)
    assert 500 < later <= 660
    assert topups.status_of(stack, order_id) == "pending"


def test_an_order_whose_time_is_over_is_closed_at_the_provider(
    stack: Stack, client: httpx.Client, sandbox: SandboxPayments
) -> None:
    order_id = topups.ordered(client)["order_id"]
    topups.end_time_of(stack, order_id)
    poll(stack)
    assert topups.status_of(stack, order_id) == "expired"
    assert sandbox.session(order_id)["status"] == "expired"
    # Somebody may have promised a payment before: we go on asking for a while.
    assert next_check(stack, order_id) is not None


def test_an_order_that_was_paid_at_the_last_moment_is_paid(
    stack: Stack, client: httpx.Client, sandbox: SandboxPayments
) -> None:
    order_id = topups.ordered(client)["order_id"]
    sandbox.pay(order_id)
    topups.end_time_of(stack, order_id)
    poll(stack)
    assert topups.status_of(stack, order_id) == "paid"
    assert balance(client) == 500


def test_a_late_payment_of_an_expired_order_is_found(
    stack: Stack, client: httpx.Client, sandbox: SandboxPayments
) -> None:
    order_id = topups.ordered(client)["order_id"]
    sandbox.promise(order_id)
    topups.end_time_of(stack, order_id)
    poll(stack)
    assert topups.status_of(stack, order_id) == "expired"
    sandbox.settle(order_id)
    topups.make_due(stack, order_id)
    poll(stack)
    assert topups.history(stack, order_id) == ["created", "pending", "expired", "paid"]
    assert balance(client) == 500


def test_nobody_asks_for_ever(stack: Stack, client: httpx.Client) -> None:
    order_id = topups.ordered(client)["order_id"]
    topups.end_time_of(stack, order_id)
    poll(stack)
    stack.query(
        "SET session_replication_role = replica; UPDATE payment_orders"
        " SET created_at = now() - interval '15 days', next_check_at = now() WHERE id = %s",
        order_id,
    )
    poll(stack)
    assert next_check(stack, order_id) is None


def test_an_order_that_was_never_opened_fails_in_the_end(stack: Stack) -> None:
    owner = stack.new_owner()
    [(order_id,)] = stack.query(
        "INSERT INTO payment_orders (id, user_id, status, changed_via, channel, currency, amount,"
        " amount_minor, credit_amount, credits_per_usd, units_per_usd, expires_at, next_check_at)"
        " VALUES (%s, %s, 'created', 'request', 'sandbox', 'USD', 5, 500, 500, 100, 1, now(),"
        " now()) RETURNING id",
        owner.user_id,
        owner.user_id,
    )
    assert isinstance(order_id, int)
    poll(stack)
    assert topups.status_of(stack, order_id) == "failed"


def test_a_provider_that_is_away_is_asked_again_later(
    stack: Stack, client: httpx.Client, sandbox: SandboxPayments
) -> None:
    order_id = topups.ordered(client)["order_id"]
    sandbox.pay(order_id)
    topups.make_due(stack, order_id)
    sandbox.trouble(count=100, status=500)
    poll(stack)
    assert topups.status_of(stack, order_id) == "pending"
    seconds = next_check(stack, order_id)
    assert isinstance(seconds, float)
    assert seconds > 60
    sandbox.no_trouble()
    topups.make_due(stack, order_id)
    poll(stack)
    assert topups.status_of(stack, order_id) == "paid"


def test_pollers_at_once_share_the_work(
    stack: Stack, client: httpx.Client, sandbox: SandboxPayments
) -> None:
    order_ids = [topups.ordered(client)["order_id"] for _ in range(8)]
    for order_id in order_ids:
        sandbox.pay(order_id)
        topups.make_due(stack, order_id)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: poll(stack), range(3)))
    for order_id in order_ids:
        topups.await_status(stack, order_id, "paid")
    assert balance(client) == 8 * 500
    sandbox.release(times=3, shuffle=True)
    eventually(
        lambda: all(each["attempts"] for each in sandbox.events(order_ids[0])), what="the webhooks"
    )
    assert len(topups.moves(client)) == 8
