"""What a payment does to an order and its ledger, and what takes it back."""

from functools import partial

import httpx2

from tests.contract import topups
from tests.contract.credits import balance, grant
from tests.contract.replies import data
from tests.contract.test_replies import TIMESTAMP
from tests.payments import SandboxPayments
from tests.stack import Owner, Stack, eventually


def test_paid_order_is_credited_once_though_the_webhook_comes_three_times(
    stack: Stack, client: httpx2.Client, sandbox: SandboxPayments
) -> None:
    sandbox.mode(times=3)
    order = topups.ordered(client)
    sandbox.pay(order["order_id"])
    topups.await_status(stack, order["order_id"], "paid")
    eventually(lambda: delivered(sandbox, order["order_id"]) >= 3, what="three deliveries")
    assert balance(client) == 500
    assert topups.moves(client) == [("topup", 500, 500)]
    paid = topups.read(client, order["order_id"])
    assert (paid["status"], paid["payment_url"]) == ("paid", None)
    assert TIMESTAMP.match(paid["paid_at"])


def delivered(sandbox: SandboxPayments, order_id: int) -> int:
    return sum(len(each["attempts"]) for each in sandbox.events(order_id))


def test_topup_entry_names_its_order_and_rate(
    stack: Stack, client: httpx2.Client, sandbox: SandboxPayments
) -> None:
    order = topups.ordered(client, '"amount": 100, "currency": "JPY"')
    sandbox.pay(order["order_id"])
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


def test_a_promised_payment_counts_once_it_has_come(
    stack: Stack, client: httpx2.Client, sandbox: SandboxPayments
) -> None:
    kept, broken = topups.ordered(client)["order_id"], topups.ordered(client)["order_id"]
    for order_id in (kept, broken):
        sandbox.promise(order_id)
        eventually(partial(delivered, sandbox, order_id), what="the webhook")
        assert topups.status_of(stack, order_id) == "pending"
    sandbox.settle(kept)
    sandbox.fall_through(broken)
    topups.await_status(stack, kept, "paid")
    topups.await_status(stack, broken, "failed")
    assert balance(client) == 500


def test_refunds_take_what_is_left_and_the_next_topup_pays_the_rest(
    stack: Stack, client: httpx2.Client, owner: Owner, sandbox: SandboxPayments
) -> None:
    order_id = topups.ordered(client)["order_id"]
    sandbox.pay(order_id)
    topups.await_status(stack, order_id, "paid")
    sandbox.refund(order_id, 100)
    eventually(lambda: balance(client) == 400, what="the first refund")
    part = topups.read(client, order_id)
    assert (part["status"], part["refunded_amount"]) == ("paid", 1)
    data(client.post("/auxilia/credits/consume", json={"amount_credit": 350, "source_id": "x"}))
    sandbox.refund(order_id)
    topups.await_status(stack, order_id, "refunded")
    assert (str(balance(client)), str(topups.debt(client))) == ("0.0000", "350.0000")
    assert topups.read(client, order_id)["refunded_amount"] == 5
    again = topups.ordered(client)["order_id"]
    sandbox.pay(again)
    topups.await_status(stack, again, "paid")
    assert (str(balance(client)), str(topups.debt(client))) == ("150.0000", "0.0000")
    assert topups.moves(client) == [
        ("topup", 500, 500),
        ("topup_refund", 100, -100),
        ("consume", 350, -350),
        ("topup_refund", 50, -50),
        ("topup_refund", 350, 0),
        ("topup", 500, 500),
        ("debt_payment", 350, -350),
    ]
    # A gift is no payment.
    grant(stack, owner.user_id, "1")
    assert balance(client) == 151


def test_credits_come_back_when_a_refund_fails(
    stack: Stack, client: httpx2.Client, sandbox: SandboxPayments
) -> None:
    order_id = topups.ordered(client)["order_id"]
    sandbox.pay(order_id)
    topups.await_status(stack, order_id, "paid")
    data(client.post("/auxilia/credits/consume", json={"amount_credit": 350, "source_id": "x"}))
    sandbox.refund(order_id)
    topups.await_status(stack, order_id, "refunded")
    sandbox.mode(times=3)
    sandbox.fail_refund(order_id)
    topups.await_status(stack, order_id, "paid")
    assert (str(balance(client)), str(topups.debt(client))) == ("150.0000", "0.0000")
    assert topups.read(client, order_id)["refunded_amount"] == 0
    assert topups.moves(client)[2:] == [
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
    # The next refund takes the credits again, though the provider's sum is no larger than before.
    sandbox.refund(order_id, 200)
    eventually(lambda: topups.debt(client) == 50, what="the second refund")
    assert topups.read(client, order_id)["refunded_amount"] == 2


def test_a_refund_that_failed_before_we_heard_of_it_takes_nothing(
    stack: Stack, client: httpx2.Client, sandbox: SandboxPayments
) -> None:
    order_id = topups.ordered(client)["order_id"]
    sandbox.pay(order_id)
    topups.await_status(stack, order_id, "paid")
    sandbox.hold()
    sandbox.refund(order_id, 300)
    sandbox.fail_refund(order_id)
    sandbox.refund(order_id, 100)
    made, failed, again = sandbox.events(order_id)[-3:]
    for event in (failed, made, again, failed):
        assert sandbox.deliver(event) == [200]
    assert balance(client) == 400
    assert topups.read(client, order_id)["refunded_amount"] == 1


def test_the_credits_of_an_unclaimed_order_can_be_claimed_when_its_refund_fails(
    stack: Stack, client: httpx2.Client, sandbox: SandboxPayments
) -> None:
    with stack.client() as stranger:
        order = topups.ordered(stranger)
    sandbox.pay(order["order_id"])
    topups.await_status(stack, order["order_id"], "paid_unclaimed")
    sandbox.refund(order["order_id"])
    topups.await_status(stack, order["order_id"], "refunded")
    assert topups.claim(client, order["claim_token"]).status_code == 409
    sandbox.fail_refund(order["order_id"])
    topups.await_status(stack, order["order_id"], "paid_unclaimed")
    data(topups.claim(client, order["claim_token"]))
    assert balance(client) == 500


def test_a_dispute_takes_the_credits_until_it_is_won(
    stack: Stack, client: httpx2.Client, sandbox: SandboxPayments
) -> None:
    order_id = topups.ordered(client)["order_id"]
    sandbox.pay(order_id)
    topups.await_status(stack, order_id, "paid")
    sandbox.dispute(order_id)
    topups.await_status(stack, order_id, "disputed")
    assert balance(client) == 0
    sandbox.win(order_id)
    topups.await_status(stack, order_id, "paid")
    assert balance(client) == 500
    assert topups.moves(client)[1:] == [("topup_refund", 500, -500), ("adjust", 500, 500)]


def test_an_order_of_another_amount_or_currency_waits_for_an_operator(
    stack: Stack, client: httpx2.Client, sandbox: SandboxPayments
) -> None:
    for change in ({"amount": 499}, {"amount": 50_000}, {"currency": "eur"}):
        order_id = topups.ordered(client)["order_id"]
        sandbox.alter(order_id, **change)
        sandbox.pay(order_id)
        topups.await_status(stack, order_id, "review")
    assert balance(client) == 0
