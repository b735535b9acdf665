"""Tests of payments, refunds and disputes of topup orders, and of claims of anonymous orders."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from devstack.harness.opening import RETIRED_KEY
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from services.credits import claim_tokens
from tests.support.credits import credits, topups
from tests.support.credits.credits import balance, grant
from tests.support.credits.payments import SandboxPayments
from tests.support.credits.topups import ORDERS
from tests.support.http.replies import TIMESTAMP, data, problem
from tests.support.people.erasure import erase

CLAIM = f"{ORDERS}/claim"
STATUS = f"{ORDERS}/status"


def status_by_token(client: httpx2.Client, token: str) -> str:
    status: str = data(client.post(STATUS, json={"claim_token": token}))["status"]
    return status


def claim(client: httpx2.Client, token: str) -> httpx2.Response:
    return client.post(CLAIM, json={"claim_token": token})


def read_debt(client: httpx2.Client) -> Decimal:
    reply = client.get(credits.BALANCE)
    data(reply)
    return Decimal(credits.parse_exactly(reply.text)["data"]["debt_credit"])


def test_paid_order_is_credited_once_despite_repeated_webhooks(
    stack: Stack, client: httpx2.Client, sandbox_payments: SandboxPayments
) -> None:
    sandbox_payments.mode(times=3)
    order = topups.create_order(client)
    sandbox_payments.pay(order["order_id"])
    topups.await_status(stack, order["order_id"], "paid")
    eventually(
        lambda: count_deliveries(sandbox_payments, order["order_id"]) >= 3, what="three deliveries"
    )
    assert balance(client) == 500
    assert topups.read_ledger(client) == [("topup", 500, 500)]
    paid_order = topups.read_order(client, order["order_id"])
    assert (paid_order["status"], paid_order["payment_url"]) == ("paid", None)
    assert TIMESTAMP.match(paid_order["paid_at"])


def count_deliveries(sandbox: SandboxPayments, order_id: int) -> int:
    return sum(len(each["attempts"]) for each in sandbox.events(order_id))


def test_topup_ledger_entry_names_order_and_rate(
    stack: Stack, client: httpx2.Client, sandbox_payments: SandboxPayments
) -> None:
    order = topups.create_order(client, '"amount": 100, "currency": "JPY"')
    sandbox_payments.pay(order["order_id"])
    topups.await_status(stack, order["order_id"], "paid")
    [entry] = data(client.get("/auxilia/credits/ledger"))["items"]
    expected = {
        "action": "topup",
        "order_id": order["order_id"],
        "amount_credit": 66.6666,
        "rate_usd_to_credit": 100,
        "currency": "JPY",
        "source_type": "payment",
        "source_id": str(order["order_id"]),
    }
    assert {name: entry[name] for name in expected} == expected


def test_delayed_payment_is_credited_only_after_the_money_arrived(
    stack: Stack, client: httpx2.Client, sandbox_payments: SandboxPayments
) -> None:
    paid_id = topups.create_order(client)["order_id"]
    failed_id = topups.create_order(client)["order_id"]
    for order_id in (paid_id, failed_id):
        sandbox_payments.promise(order_id)
        eventually(partial(count_deliveries, sandbox_payments, order_id), what="the webhook")
        assert topups.read_order_status(stack, order_id) == "pending"
    sandbox_payments.settle(paid_id)
    sandbox_payments.fall_through(failed_id)
    topups.await_status(stack, paid_id, "paid")
    topups.await_status(stack, failed_id, "failed")
    assert balance(client) == 500


def test_refund_creates_a_debt_that_the_next_topup_pays(
    stack: Stack, client: httpx2.Client, owner: Owner, sandbox_payments: SandboxPayments
) -> None:
    order_id = topups.create_paid_order(stack, client, sandbox_payments)
    sandbox_payments.refund(order_id, 100)
    eventually(lambda: balance(client) == 400, what="the first refund")
    partly_refunded_order = topups.read_order(client, order_id)
    assert (partly_refunded_order["status"], partly_refunded_order["refunded_amount"]) == (
        "paid",
        1,
    )
    data(client.post("/auxilia/credits/consume", json={"amount_credit": 350, "source_id": "x"}))
    sandbox_payments.refund(order_id)
    topups.await_status(stack, order_id, "refunded")
    assert (str(balance(client)), str(read_debt(client))) == ("0.0000", "350.0000")
    assert topups.read_order(client, order_id)["refunded_amount"] == 5
    topups.create_paid_order(stack, client, sandbox_payments)
    assert (str(balance(client)), str(read_debt(client))) == ("150.0000", "0.0000")
    assert topups.read_ledger(client) == [
        ("topup", 500, 500),
        ("topup_refund", 100, -100),
        ("consume", 350, -350),
        ("topup_refund", 50, -50),
        ("topup_refund", 350, 0),
        ("topup", 500, 500),
        ("debt_payment", 350, -350),
    ]
    # Granted credits are added to the balance, and don't count as a payment.
    grant(stack, owner.user_id, "1")
    assert balance(client) == 151


def test_failed_refund_returns_the_credits_and_settles_the_debt(
    stack: Stack, client: httpx2.Client, sandbox_payments: SandboxPayments
) -> None:
    order_id = topups.create_paid_order(stack, client, sandbox_payments)
    data(client.post("/auxilia/credits/consume", json={"amount_credit": 350, "source_id": "x"}))
    sandbox_payments.refund(order_id)
    topups.await_status(stack, order_id, "refunded")
    sandbox_payments.mode(times=3)
    sandbox_payments.fail_refund(order_id)
    topups.await_status(stack, order_id, "paid")
    assert (str(balance(client)), str(read_debt(client))) == ("150.0000", "0.0000")
    assert topups.read_order(client, order_id)["refunded_amount"] == 0
    assert topups.read_ledger(client)[2:] == [
        ("topup_refund", 150, -150),
        ("topup_refund", 350, 0),
        ("adjust", 500, 500),
        ("debt_payment", 350, -350),
    ]
    [entry] = [
        each
        for each in data(client.get("/auxilia/credits/ledger"))["items"]
        if each["action"] == "adjust"
    ]
    assert (entry["source_type"], entry["order_id"]) == ("refund_failed", order_id)
    # The order is refunded a second time. This refund takes credits from the account, although it
    # is smaller than the failed refund.
    sandbox_payments.refund(order_id, 200)
    eventually(lambda: read_debt(client) == 50, what="the second refund")
    assert topups.read_order(client, order_id)["refunded_amount"] == 2


def test_refund_that_failed_before_its_webhook_arrived_takes_no_credits(
    stack: Stack, client: httpx2.Client, sandbox_payments: SandboxPayments
) -> None:
    order_id = topups.create_paid_order(stack, client, sandbox_payments)
    sandbox_payments.hold()
    sandbox_payments.refund(order_id, 300)
    sandbox_payments.fail_refund(order_id)
    sandbox_payments.refund(order_id, 100)
    refund_event, failure_event, second_refund_event = sandbox_payments.events(order_id)[-3:]
    for event in (failure_event, refund_event, second_refund_event, failure_event):
        assert sandbox_payments.deliver(event) == [200]
    assert balance(client) == 400
    assert topups.read_order(client, order_id)["refunded_amount"] == 1


def test_failed_refund_makes_an_unclaimed_order_claimable_again(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, sandbox_payments: SandboxPayments
) -> None:
    order_id, token = pay_anonymous_order(stack, stranger, sandbox_payments)
    sandbox_payments.refund(order_id)
    topups.await_status(stack, order_id, "refunded")
    assert claim(client, token).status_code == 409
    sandbox_payments.fail_refund(order_id)
    topups.await_status(stack, order_id, "paid_unclaimed")
    data(claim(client, token))
    assert balance(client) == 500


def test_dispute_takes_the_credits_until_the_dispute_is_won(
    stack: Stack, client: httpx2.Client, sandbox_payments: SandboxPayments
) -> None:
    order_id = topups.create_paid_order(stack, client, sandbox_payments)
    sandbox_payments.dispute(order_id)
    topups.await_status(stack, order_id, "disputed")
    assert balance(client) == 0
    sandbox_payments.win(order_id)
    topups.await_status(stack, order_id, "paid")
    assert balance(client) == 500
    assert topups.read_ledger(client)[1:] == [("topup_refund", 500, -500), ("adjust", 500, 500)]


def pay_anonymous_order(
    stack: Stack, stranger: httpx2.Client, sandbox: SandboxPayments
) -> tuple[int, str]:
    order = topups.create_order(stranger)
    assert order["is_claimed"] is False
    sandbox.pay(order["order_id"])
    topups.await_status(stack, order["order_id"], "paid_unclaimed")
    return order["order_id"], order["claim_token"]


def test_paid_anonymous_order_is_credited_to_the_first_person_with_its_token(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, sandbox_payments: SandboxPayments
) -> None:
    order_id, token = pay_anonymous_order(stack, stranger, sandbox_payments)
    assert status_by_token(stranger, token) == "paid_unclaimed"
    claimed_order = data(claim(client, token))
    assert (claimed_order["order_id"], claimed_order["status"], claimed_order["is_claimed"]) == (
        order_id,
        "paid",
        True,
    )
    assert balance(client) == 500
    assert topups.read_order(client, order_id)["status"] == "paid"
    assert [each["order_id"] for each in data(client.get(topups.ORDERS))["items"]] == [order_id]
    assert status_by_token(stranger, token) == "paid"
    problem(claim(client, token), 409, "order.claimed")
    assert balance(client) == 500


def test_only_one_concurrent_claim_of_an_order_succeeds(
    stack: Stack, stranger: httpx2.Client, sandbox_payments: SandboxPayments
) -> None:
    tokens = [pay_anonymous_order(stack, stranger, sandbox_payments)[1] for _ in range(3)]
    with ExitStack() as clients:
        callers = [clients.enter_context(stack.client(stack.create_owner().key)) for _ in range(6)]
        for token in tokens:
            with ThreadPoolExecutor(6) as pool:
                replies = list(pool.map(lambda caller, token=token: claim(caller, token), callers))
            assert sorted(reply.status_code for reply in replies) == [200, *[409] * 5]
            for reply in replies:
                if reply.status_code == 409:
                    assert "user" not in problem(reply, 409, "order.claimed")["message"]
        assert sum(balance(caller) for caller in callers) == 1500


def test_anonymous_order_can_be_claimed_before_payment(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, sandbox_payments: SandboxPayments
) -> None:
    order = topups.create_order(stranger)
    assert data(claim(client, order["claim_token"]))["status"] == "pending"
    sandbox_payments.pay(order["order_id"])
    topups.await_status(stack, order["order_id"], "paid")
    assert balance(client) == 500


def test_refund_before_the_claim_is_deducted_at_the_claim(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, sandbox_payments: SandboxPayments
) -> None:
    order_id, token = pay_anonymous_order(stack, stranger, sandbox_payments)
    sandbox_payments.refund(order_id, 200)
    eventually(
        lambda: stack.query(
            "SELECT 1 FROM payment_orders WHERE id = %s AND refunded_minor = 200", order_id
        ),
        what="the refund",
    )
    assert data(claim(client, token))["refunded_amount"] == 2
    assert topups.read_ledger(client) == [("topup", 500, 500), ("topup_refund", 200, -200)]


def test_disputed_order_can_be_claimed_and_credited_after_a_won_dispute(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, sandbox_payments: SandboxPayments
) -> None:
    order_id, token = pay_anonymous_order(stack, stranger, sandbox_payments)
    sandbox_payments.dispute(order_id)
    topups.await_status(stack, order_id, "disputed")
    assert data(claim(client, token))["status"] == "disputed"
    assert balance(client) == 0
    sandbox_payments.win(order_id)
    topups.await_status(stack, order_id, "paid")
    assert balance(client) == 500


@pytest.mark.parametrize("token", ["", "x", "A" * 43, "ü" * 43, "A" * 255, "../" * 14 + "A"])
def test_wrong_claim_token_finds_no_order(
    client: httpx2.Client, stranger: httpx2.Client, token: str
) -> None:
    problem(claim(client, token), 404, "order.not_found")
    problem(stranger.post(STATUS, json={"claim_token": token}), 404, "order.not_found")


@pytest.mark.parametrize("body", [{}, {"claim_token": None}, {"claim_token": 7}, []])
def test_missing_claim_token_is_rejected(
    client: httpx2.Client, body: dict[str, Any] | list[Any]
) -> None:
    for path in (CLAIM, STATUS):
        problem(client.post(path, json=body), 422, "body.invalid")


def test_claim_token_of_an_owned_order_shows_its_status_but_cannot_claim_again(
    client: httpx2.Client, other_owner: httpx2.Client, stranger: httpx2.Client
) -> None:
    token = topups.create_order(client)["claim_token"]
    assert status_by_token(stranger, token) == "pending"
    problem(claim(other_owner, token), 409, "order.claimed")


def test_claim_token_is_never_stored_or_logged(
    stack: Stack, stranger: httpx2.Client, client: httpx2.Client
) -> None:
    token = topups.create_order(stranger)["claim_token"]
    data(claim(client, token))
    rows = stack.query("SELECT to_jsonb(o)::text FROM payment_orders AS o")
    jobs = stack.query("SELECT to_jsonb(j)::text FROM jobs AS j WHERE kind = 'topup.open'")
    assert not [row for row in (*rows, *jobs) if token in str(row)]
    logs: list[Path] = [process.log for process in stack.processes]
    assert not [log for log in logs if token in log.read_text(errors="replace")]


def test_claim_token_signed_with_a_retired_key_is_accepted(
    stack: Stack, client: httpx2.Client
) -> None:
    from core.keyring import Keyring

    with stack.client() as stranger:
        order = topups.create_order(stranger)
    retired_keyring = Keyring([RETIRED_KEY])
    token = claim_tokens.derive_token(retired_keyring, order["order_id"])
    stack.query(
        "UPDATE payment_orders SET claim_token_hmac = %s WHERE id = %s",
        claim_tokens.token_hmac(retired_keyring, token),
        order["order_id"],
    )
    problem(claim(client, order["claim_token"]), 404, "order.not_found")
    data(claim(client, token))


def test_erasure_keeps_orders_without_personal_data_and_late_payments_still_count(
    stack: Stack, sandbox_payments: SandboxPayments
) -> None:
    person = stack.create_owner()
    with stack.client(person.key) as client:
        order = topups.create_order(client)
    erase(stack.resources, person.email)
    [row] = stack.query(
        "SELECT redirect_url, payment_url, claim_token_hmac, amount_minor, user_id"
        " FROM payment_orders WHERE id = %s",
        order["order_id"],
    )
    assert row == (None, None, None, 500, person.user_id)
    # Pressroom accepts a payment that arrives after the person's erasure, and shows the payer that
    # the payment was accepted.
    return_url = sandbox_payments.pay(order["order_id"])
    topups.await_status(stack, order["order_id"], "paid")
    reply = httpx2.get(return_url)
    assert reply.status_code == 403
    assert "your payment still counts" in reply.text
