"""Payers on their way back from the provider's page."""

from urllib.parse import parse_qsl, urlsplit

import httpx

from core.keyring import Keyring, Signer
from tests.contract import topups
from tests.contract.credits import balance
from tests.contract.topups import SHOP
from tests.payments import SandboxPayments
from tests.stack import RETIRED, Stack


def led_to(address: str, **more: str) -> httpx.Response:
    return httpx.get(address, timeout=60.0, **more)  # type: ignore[arg-type]


def test_payer_is_led_back_with_what_became_of_the_order(
    client: httpx.Client, sandbox: SandboxPayments
) -> None:
    order_id = topups.ordered(client)["order_id"]
    # No webhook comes: the page itself asks the provider.
    sandbox.hold()
    back = sandbox.pay(order_id)
    for _ in range(2):
        reply = led_to(back)
        assert reply.status_code == 303
        assert reply.headers["location"] == f"{SHOP}&order_id={order_id}&status=paid"
        assert reply.headers["cache-control"] == "no-store"
    assert topups.read(client, order_id)["status"] == "paid"
    assert balance(client) == 500
    sandbox.release(times=2, shuffle=True)
    assert topups.moves(client) == [("topup", 500, 500)]


def test_who_cancels_is_led_back_too(client: httpx.Client, sandbox: SandboxPayments) -> None:
    order_id = topups.ordered(client)["order_id"]
    location = led_to(sandbox.cancel(order_id)).headers["location"]
    assert parse_qsl(urlsplit(location).query) == [
        ("from", "test"),
        ("order_id", str(order_id)),
        ("status", "pending"),
    ]


def test_a_provider_that_is_away_leaves_it_pending(
    client: httpx.Client, sandbox: SandboxPayments
) -> None:
    order_id = topups.ordered(client)["order_id"]
    sandbox.hold()
    back = sandbox.pay(order_id)
    # As many as whoever else asks meanwhile for orders of other tests.
    sandbox.trouble(count=100, status=500)
    assert led_to(back).headers["location"].endswith("&status=pending")
    sandbox.no_trouble()
    assert led_to(back).headers["location"].endswith("&status=paid")


def test_head_asks_nobody_and_changes_nothing(
    stack: Stack, client: httpx.Client, sandbox: SandboxPayments
) -> None:
    order_id = topups.ordered(client)["order_id"]
    sandbox.hold()
    reply = httpx.head(sandbox.pay(order_id))
    assert (reply.status_code, topups.status_of(stack, order_id)) == (303, "pending")
    sandbox.release()


def test_an_address_that_we_did_not_make_leads_nowhere(
    stack: Stack, client: httpx.Client, sandbox: SandboxPayments
) -> None:
    order_id = topups.ordered(client)["order_id"]
    good = httpx.URL(sandbox.cancel(order_id))
    signature = good.params["signature"]
    forged = Signer(Keyring([RETIRED]), "some-other-purpose").sign(str(order_id).encode())
    for params in (
        {},
        {"order": str(order_id)},
        {"order": str(order_id), "signature": "x"},
        {"order": str(order_id), "signature": forged},
        {"order": str(order_id + 1), "signature": signature},
        {"order": f"0{order_id}", "signature": signature},
        {"order": "x", "signature": signature},
        {"signature": signature},
    ):
        reply = httpx.get(good.copy_with(query=None), params=params)
        assert reply.status_code == 403, params
        assert "location" not in reply.headers
        assert reply.headers["content-type"].startswith("text/html")
        assert "order" in reply.text
    # Where it leads is what was ordered with, whatever the address says beside it.
    more = good.copy_merge_params({"redirect_url": "https://evil.example/", "status": "paid"})
    location = led_to(str(more)).headers["location"]
    assert location == f"{SHOP}&order_id={order_id}&status=pending"


def test_an_address_signed_before_a_rotation_still_leads_back(
    stack: Stack, client: httpx.Client
) -> None:
    order_id = topups.ordered(client)["order_id"]
    signature = Signer(Keyring([RETIRED]), "topup-return").sign(str(order_id).encode())
    params = {"order": str(order_id), "signature": signature}
    reply = httpx.get(f"{stack.api_url}/topups/return", params=params)
    assert reply.status_code == 303
