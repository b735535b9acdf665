"""What a shop's page needs: the caller's orders, the prices, and how much is missing."""

from decimal import Decimal

import httpx
import pytest

from tests.contract import credits, topups
from tests.contract.replies import data, problem
from tests.contract.topups import ORDERS, topup
from tests.payments import SandboxPayments
from tests.stack import Owner, Stack

PRICES = "/auxilia/credits/prices"


def test_orders_are_listed_as_they_are_read(client: httpx.Client) -> None:
    made = [topups.ordered(client)["order_id"] for _ in range(3)][::-1]
    reply = client.get(ORDERS)
    data(reply)
    items = credits.exactly(reply.text)["data"]["items"]
    assert [each["order_id"] for each in items] == made
    assert items == [topups.read(client, each) for each in made]


def test_orders_of_one_status_are_listed_alone(
    stack: Stack, client: httpx.Client, sandbox: SandboxPayments
) -> None:
    paid, waiting = (topups.ordered(client)["order_id"] for _ in range(2))
    sandbox.pay(paid)
    topups.await_status(stack, paid, "paid")
    for status, order_id in (("paid", paid), ("pending", waiting)):
        items = data(client.get(ORDERS, params={"status": status}))["items"]
        assert [each["order_id"] for each in items] == [order_id]
    assert data(client.get(ORDERS, params={"status": "review"}))["items"] == []
    problem(client.get(ORDERS, params={"status": "unknown"}), 400, "request.invalid")


def test_claimed_order_is_listed_and_another_owners_is_not(
    client: httpx.Client, stranger: httpx.Client, stack: Stack
) -> None:
    unclaimed = topups.ordered(stranger)
    assert data(client.get(ORDERS))["items"] == []
    data(topups.claim(client, unclaimed["claim_token"]))
    assert [each["order_id"] for each in data(client.get(ORDERS))["items"]] == [
        unclaimed["order_id"]
    ]
    with stack.client(stack.new_owner().key) as other:
        assert data(other.get(ORDERS))["items"] == []


def test_strangers_read_prices_and_caches_keep_them(stranger: httpx.Client) -> None:
    reply = stranger.get(PRICES)
    data(reply)
    assert reply.headers["cache-control"] == "public, max-age=300"
    prices = credits.exactly(reply.text)["data"]
    assert prices["channels"] == ["sandbox"]
    assert prices["currencies"][:2] == [
        {
            "currency": "USD",
            "decimals": 2,
            "minimum": Decimal("0.50"),
            "maximum": Decimal("999999.99"),
            "credits_per_unit": 100,
        },
        {
            "currency": "EUR",
            "decimals": 2,
            "minimum": Decimal("0.50"),
            "maximum": Decimal("999999.99"),
            "credits_per_unit": Decimal("108.6956"),
        },
    ]


def test_every_price_can_be_paid_from_its_minimum_to_its_maximum(
    stranger: httpx.Client, client: httpx.Client
) -> None:
    reply = stranger.get(PRICES)
    for price in credits.exactly(reply.text)["data"]["currencies"]:
        code, step = price["currency"], Decimal(1).scaleb(-price["decimals"])
        for amount in (price["minimum"], price["maximum"]):
            ordered = topups.ordered(client, f'"amount": {amount}, "currency": "{code}"')
            assert ordered["amount"] == amount
        below = topup(client, f'"amount": {price["minimum"] - step}, "currency": "{code}"')
        problem(below, 422, "topup.amount_too_small")
        above = topup(client, f'"amount": {price["maximum"] + step}, "currency": "{code}"')
        problem(above, 422, "topup.amount_too_large")


@pytest.mark.parametrize("key", [None, "k" * 16])
def test_refused_charge_says_what_is_there_and_what_is_needed(
    stack: Stack, owner: Owner, client: httpx.Client, key: str | None
) -> None:
    refused = problem(credits.consume(client, "2.5", key=key), 402, "credits.insufficient")
    assert (refused["balance_credit"], refused["needed"]) == (0, 2.5)
    credits.grant(stack, owner.user_id, "1.0001")
    reply = credits.consume(client, "99999999999.9999", key=key)
    problem(reply, 402, "credits.insufficient")
    exact = credits.exactly(reply.text)
    assert exact["balance_credit"] == Decimal("1.0001")
    assert exact["needed"] == Decimal("99999999999.9999")
