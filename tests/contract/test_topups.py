"""Tests of topup orders: prices, the page after a payment, and payment provider errors."""

from decimal import Decimal
from secrets import token_hex
from typing import Literal
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest

from core.keyring import Keyring, Signer
from core.scopes import Scope
from devstack.harness.opening import RETIRED_KEY
from devstack.harness.stack import Owner, Stack
from tests.support.credits import credits, topups
from tests.support.credits.credits import balance
from tests.support.credits.payments import SandboxPayments
from tests.support.credits.topups import ORDERS, SHOP, topup
from tests.support.http.replies import TIMESTAMP, data, problem


def test_new_topup_order_contains_its_price_and_payment_url(
    client: httpx2.Client, sandbox_payments: SandboxPayments
) -> None:
    order = topups.create_order(client, '"amount": 5, "currency": "USD", "channel": "sandbox"')
    expected = {
        "status": "pending",
        "channel": "sandbox",
        "currency": "USD",
        "amount": Decimal(5),
        "credit_amount": Decimal(500),
        "refunded_amount": 0,
        "rate_usd_to_credit": 100,
        "is_claimed": True,
        "error": None,
        "paid_at": None,
    }
    assert {name: order[name] for name in expected} == expected
    assert 0 < order["order_id"] < 2**53
    assert len(order["claim_token"]) == 43
    for name in ("expires_at", "created_at", "updated_at"):
        assert TIMESTAMP.match(order[name])
    session = sandbox_payments.session(order["order_id"])
    assert (session["url"], session["amount"], session["currency"]) == (
        order["payment_url"],
        500,
        "USD",
    )
    assert topups.read_order(client, order["order_id"]) == {
        name: value for name, value in order.items() if name != "claim_token"
    }


@pytest.mark.parametrize(
    ("numbers", "amount", "credit_amount", "minor_units"),
    [
        ('"amount": null, "credit_amount": 50.0001', "0.51", "50.0001", 51),
        ('"amount": 100, "currency": "JPY"', "100", "66.6666", 100),
        ('"amount": 0, "credit_amount": 2e2', "2", "200", 200),
    ],
)
def test_topup_order_rounds_money_up_and_credits_down(
    client: httpx2.Client,
    sandbox_payments: SandboxPayments,
    *,
    numbers: str,
    amount: str,
    credit_amount: str,
    minor_units: int,
) -> None:
    order = topups.create_order(client, numbers)
    order_amounts = order["amount"], order["credit_amount"]
    assert order_amounts == (Decimal(amount), Decimal(credit_amount))
    assert sandbox_payments.session(order["order_id"])["amount"] == minor_units


@pytest.mark.parametrize(
    ("numbers", "code", "field"),
    [
        ('"currency": "USD"', "topup.amount_missing", "body.amount"),
        ('"credit_amount": 1e400', "topup.amount", "body.credit_amount"),
        ('"amount": 5, "credit_amount": 501', "topup.amount_mismatch", "body.amount"),
        ('"amount": 0.49', "topup.amount_too_small", "body.amount"),
        ('"amount": 1000000', "topup.amount_too_large", "body.amount"),
        ('"amount": 5, "currency": "XTS"', "topup.currency", "body.currency"),
        ('"amount": 5, "channel": "paypal"', "topup.channel", "body.channel"),
        ('"amount": "5"', "body.invalid", "body.amount"),
    ],
)
def test_topup_order_rejects_invalid_values_and_names_the_field(
    client: httpx2.Client, stranger: httpx2.Client, numbers: str, code: str, field: str
) -> None:
    for caller in (client, stranger):
        error = problem(topup(caller, numbers), 422, code)
        assert [each["field"] for each in error["errors"]] == [field]


def test_topup_order_requires_a_redirect_url_of_an_allowed_origin(client: httpx2.Client) -> None:
    missing_error = problem(topups.send(client, '{"amount": 5}'), 422, "body.invalid")
    assert missing_error["message"] == "body.redirect_url: is required"
    assert missing_error["errors"][0]["code"] == "missing"
    unstorable_error = problem(
        topups.send(client, '{"redirect_url": "\\u0000"}'), 422, "body.invalid"
    )
    assert "lone surrogates" in unstorable_error["message"]
    body = '{"amount": 5, "redirect_url": "https://elsewhere.example/"}'
    error = problem(topups.send(client, body), 422, "topup.redirect_not_allowed")
    assert error["errors"][0]["field"] == "body.redirect_url"


def test_topup_order_for_an_unconfigured_payment_channel_returns_503(client: httpx2.Client) -> None:
    reply = topup(client, '"amount": 5, "channel": "stripe"')
    problem(reply, 503, "topup.channel_unavailable")
    assert int(reply.headers["retry-after"]) > 0


def test_any_credential_can_order_credits_but_reading_orders_requires_credit_read(
    stack: Stack, owner: Owner
) -> None:
    with stack.client(stack.create_key(owner.user_id, Scope.ATTACHMENT)) as ordering_client:
        order = topups.create_order(ordering_client)
        problem(
            ordering_client.get(f"{ORDERS}/{order['order_id']}"), 403, "auth.insufficient_scope"
        )
    with stack.client(stack.create_key(owner.user_id, Scope.CREDIT_READ)) as reading_client:
        topups.read_order(reading_client, order["order_id"])


def test_order_rejected_by_the_payment_provider_fails_and_releases_its_idempotency_key(
    stack: Stack, client: httpx2.Client, sandbox_payments: SandboxPayments
) -> None:
    sandbox_payments.fail_next_calls(count=100, status=402)
    key = token_hex(16)
    problem(topup(client, '"amount": 5', key=key), 502, "payments.refused")
    sandbox_payments.stop_failures()
    # A failed order releases its idempotency key.
    order = data(topup(client, '"amount": 5', key=key))
    rows = stack.query(
        "SELECT status, error ->> 'code' FROM payment_orders WHERE user_id ="
        " (SELECT user_id FROM payment_orders WHERE id = %s) ORDER BY created_at",
        order["order_id"],
    )
    assert rows == [("failed", "payments.refused"), ("pending", None)]


def test_slow_payment_page_returns_504_and_a_retry_with_the_same_key_returns_the_order(
    client: httpx2.Client, sandbox_payments: SandboxPayments
) -> None:
    sandbox_payments.fail_next_calls(count=1, seconds=2.0)
    key = token_hex(16)
    body = f'{{"amount": 5, "redirect_url": "{SHOP}"}}'
    problem(topups.send(client, body, key, Prefer="wait=1"), 504, "request.too_slow")
    reply = topups.send(client, body, key)
    assert reply.headers["idempotent-replayed"] == "true"
    order = data(reply)
    assert [
        each["url"]
        for each in sandbox_payments.sessions()
        if each["order_id"] == str(order["order_id"])
    ] == [order["payment_url"]]


@pytest.mark.parametrize("when", ["before", "after"])
def test_temporary_payment_provider_errors_are_retried_without_duplicate_checkouts(
    client: httpx2.Client, sandbox_payments: SandboxPayments, when: Literal["before", "after"]
) -> None:
    sandbox_payments.fail_next_calls(count=2, status=500, when=when)
    order = topups.create_order(client)
    sessions = [
        session
        for session in sandbox_payments.sessions()
        if session["order_id"] == str(order["order_id"])
    ]
    assert len(sessions) == 1


def test_idempotency_key_of_an_anonymous_order_is_ignored(stranger: httpx2.Client) -> None:
    key = token_hex(16)
    orders = {data(topup(stranger, '"amount": 5', key=key))["order_id"] for _ in range(2)}
    assert len(orders) == 2


def test_topup_order_listing_matches_single_orders_newest_first(client: httpx2.Client) -> None:
    order_ids = [topups.create_order(client)["order_id"] for _ in range(3)][::-1]
    reply = client.get(ORDERS)
    data(reply)
    items = credits.parse_exactly(reply.text)["data"]["items"]
    assert [each["order_id"] for each in items] == order_ids
    assert items == [topups.read_order(client, each) for each in order_ids]


def test_topup_order_listing_is_filtered_by_status(
    stack: Stack, client: httpx2.Client, sandbox_payments: SandboxPayments
) -> None:
    paid_id, pending_id = (topups.create_order(client)["order_id"] for _ in range(2))
    sandbox_payments.pay(paid_id)
    topups.await_status(stack, paid_id, "paid")
    for status, order_id in (("paid", paid_id), ("pending", pending_id)):
        items = data(client.get(ORDERS, params={"status": status}))["items"]
        assert [each["order_id"] for each in items] == [order_id]
    assert data(client.get(ORDERS, params={"status": "review"}))["items"] == []
    problem(client.get(ORDERS, params={"status": "unknown"}), 400, "request.invalid")


def test_credit_prices_are_public_and_cacheable(stranger: httpx2.Client) -> None:
    reply = stranger.get("/auxilia/credits/prices")
    data(reply)
    assert reply.headers["cache-control"] == "public, max-age=300"
    prices = credits.parse_exactly(reply.text)["data"]
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


def open_return_page(url: str) -> httpx2.Response:
    return httpx2.get(url, timeout=60.0)


def test_payer_is_redirected_to_the_shop_with_the_current_order_status(
    client: httpx2.Client, sandbox_payments: SandboxPayments
) -> None:
    order_id = topups.create_order(client)["order_id"]
    # The payment provider sends no webhooks during this test, so the page must ask for the order's
    # status.
    sandbox_payments.hold()
    return_url = sandbox_payments.pay(order_id)
    for _ in range(2):
        reply = open_return_page(return_url)
        assert reply.status_code == 303
        assert reply.headers["location"] == f"{SHOP}&order_id={order_id}&status=paid"
        assert reply.headers["cache-control"] == "no-store"
    assert topups.read_order(client, order_id)["status"] == "paid"
    assert balance(client) == 500
    sandbox_payments.release(times=2, shuffle=True)
    assert topups.read_ledger(client) == [("topup", 500, 500)]


def test_payer_who_cancels_is_redirected_to_the_shop_with_status_pending(
    client: httpx2.Client, sandbox_payments: SandboxPayments
) -> None:
    order_id = topups.create_order(client)["order_id"]
    location = open_return_page(sandbox_payments.cancel(order_id)).headers["location"]
    assert parse_qsl(urlsplit(location).query) == [
        ("from", "test"),
        ("order_id", str(order_id)),
        ("status", "pending"),
    ]


def test_payment_return_page_reports_pending_while_the_provider_is_unavailable(
    client: httpx2.Client, sandbox_payments: SandboxPayments
) -> None:
    order_id = topups.create_order(client)["order_id"]
    sandbox_payments.hold()
    return_url = sandbox_payments.pay(order_id)
    # Make the payment provider fail 100 calls, because some of the calls are for the orders of
    # other tests.
    sandbox_payments.fail_next_calls(count=100, status=500)
    assert open_return_page(return_url).headers["location"].endswith("&status=pending")
    sandbox_payments.stop_failures()
    assert open_return_page(return_url).headers["location"].endswith("&status=paid")


def test_head_request_of_the_payment_return_page_does_not_update_the_order(
    stack: Stack, client: httpx2.Client, sandbox_payments: SandboxPayments
) -> None:
    order_id = topups.create_order(client)["order_id"]
    sandbox_payments.hold()
    reply = httpx2.head(sandbox_payments.pay(order_id))
    assert (reply.status_code, topups.read_order_status(stack, order_id)) == (303, "pending")
    sandbox_payments.release()


def test_payment_return_url_with_a_forged_signature_redirects_nowhere(
    client: httpx2.Client, sandbox_payments: SandboxPayments
) -> None:
    order_id = topups.create_order(client)["order_id"]
    return_url = httpx2.URL(sandbox_payments.cancel(order_id))
    signature = return_url.params["signature"]
    forged_signature = Signer(Keyring([RETIRED_KEY]), "some-other-purpose").sign(
        str(order_id).encode()
    )
    for params in (
        {},
        {"order": str(order_id)},
        {"order": str(order_id), "signature": "x"},
        {"order": str(order_id), "signature": forged_signature},
        {"order": str(order_id + 1), "signature": signature},
        {"order": f"0{order_id}", "signature": signature},
        {"order": "x", "signature": signature},
        {"signature": signature},
    ):
        reply = httpx2.get(return_url.copy_with(query=None), params=params)
        assert reply.status_code == 403, params
        assert "location" not in reply.headers
        assert reply.headers["content-type"].startswith("text/html")
        assert "order" in reply.text
    # The redirect uses the URL from the order, and ignores query parameters that a caller adds.
    url_with_more_parameters = return_url.copy_merge_params(
        {"redirect_url": "https://evil.example/", "status": "paid"}
    )
    location = open_return_page(str(url_with_more_parameters)).headers["location"]
    assert location == f"{SHOP}&order_id={order_id}&status=pending"


def test_payment_return_url_signed_with_a_retired_key_still_redirects(
    stack: Stack, client: httpx2.Client
) -> None:
    order_id = topups.create_order(client)["order_id"]
    signature = Signer(Keyring([RETIRED_KEY]), "topup-return").sign(str(order_id).encode())
    params = {"order": str(order_id), "signature": signature}
    reply = httpx2.get(f"{stack.api_url}/topups/return", params=params)
    assert reply.status_code == 303
