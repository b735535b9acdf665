"""Grants and charges credits, and reads balances and ledger entries with exact numbers."""

import json
from decimal import Decimal
from typing import Any

import httpx2

from core.ids import AccountId
from devstack.harness.stack import Stack
from services.credits import ledger
from tests.support.http.replies import data

CONSUME = "/auxilia/credits/consume"
BALANCE = "/auxilia/credits/balance"
LEDGER = "/auxilia/credits/ledger"


def grant(stack: Stack, user_id: int, amount: str) -> dict[str, Any]:
    database = stack.resources.database
    return parse_exactly(
        ledger.grant_credits(database, AccountId(user_id), Decimal(amount), source_id="test")
    )


def parse_exactly(text: str) -> dict[str, Any]:
    """Parse a JSON object, and return its fractions as exact decimals."""
    return dict(json.loads(text, parse_float=Decimal))


def consume(
    client: httpx2.Client, amount: str = "1", source_id: str = "post-1", *, key: str | None = None
) -> httpx2.Response:
    """Charge credits. `amount` is written into the request body without any conversion."""
    body = f'{{"amount_credit": {amount}, "source_id": {json.dumps(source_id)}}}'
    return send(client, body, key)


def send(client: httpx2.Client, body: str | bytes, key: str | None = None) -> httpx2.Response:
    headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
    return client.post(CONSUME, content=body, headers=headers)


def balance(client: httpx2.Client) -> Decimal:
    reply = client.get(BALANCE)
    data(reply)
    return Decimal(parse_exactly(reply.text)["data"]["balance_credit"])


def entries(client: httpx2.Client, **query: Any) -> list[dict[str, Any]]:
    return list(data(client.get(LEDGER, params=query))["items"])
