"""Orders credits through the API, pays the orders in the sandbox, and reads their status."""

from decimal import Decimal
from typing import Any

import httpx2

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from tests.support.credits import credits
from tests.support.credits.payments import SandboxPayments
from tests.support.http.replies import data
from tests.support.stack.maintenance import run_maintenance

TOPUP = "/auxilia/credits/topup"
ORDERS = "/auxilia/credits/orders"
SHOP = "https://shop.example/done?from=test"


def send(client: httpx2.Client, body: str, key: str | None = None, **more: str) -> httpx2.Response:
    headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
    return client.post(TOPUP, content=body, headers=headers | more)


def topup(client: httpx2.Client, numbers: str, *, key: str | None = None) -> httpx2.Response:
    """Order credits. ``numbers``: the JSON text of the order's fields except `redirect_url`."""
    return send(client, f'{{{numbers}, "redirect_url": "{SHOP}"}}', key)


def create_order(client: httpx2.Client, numbers: str = '"amount": 5') -> dict[str, Any]:
    """Create an order, and return it with its amounts as exact decimals."""
    reply = topup(client, numbers)
    data(reply)
    return dict(credits.parse_exactly(reply.text)["data"])


def create_paid_order(stack: Stack, client: httpx2.Client, sandbox: SandboxPayments) -> int:
    order_id: int = create_order(client)["order_id"]
    sandbox.pay(order_id)
    await_status(stack, order_id, "paid")
    return order_id


def read_order(client: httpx2.Client, order_id: int) -> dict[str, Any]:
    reply = client.get(f"{ORDERS}/{order_id}")
    data(reply)
    return dict(credits.parse_exactly(reply.text)["data"])


def await_status(stack: Stack, order_id: int, status: str) -> None:
    eventually(
        lambda: read_order_status(stack, order_id) == status, what=f"the order to be {status}"
    )


def read_order_status(stack: Stack, order_id: int) -> object:
    [(status,)] = stack.query("SELECT status FROM payment_orders WHERE id = %s", order_id)
    return status


def read_ledger(client: httpx2.Client) -> list[tuple[object, ...]]:
    """Return the action, amount and delta of each ledger entry, oldest first."""
    reply = client.get(credits.LEDGER, params={"limit": 1000})
    items = credits.parse_exactly(reply.text)["data"]["items"]
    return [
        (each["action"], Decimal(each["amount_credit"]), Decimal(each["delta_credit"]))
        for each in reversed(items)
    ]


def poll_now(stack: Stack, *order_ids: int) -> None:
    """Make a worker poll the payment provider for the orders now, and wait until the poll ends."""
    make_orders_due(stack, *order_ids)
    run_maintenance(stack, "topups.poll")


def make_orders_due(stack: Stack, *order_ids: int) -> None:
    due = "UPDATE payment_orders SET next_check_at = now() WHERE id = ANY(%s)"
    stack.query(due, list(order_ids))


def expire_order(stack: Stack, order_id: int) -> None:
    """Make the order expire. Disable the trigger that keeps the terms of an order unchanged."""
    stack.query(
        "SET session_replication_role = replica; UPDATE payment_orders"
        " SET expires_at = now() - interval '1 second', next_check_at = now() WHERE id = %s",
        order_id,
    )
