"""Posts reports of deliveries and bounces in Pressroom's format, as an owner's program does."""

import base64
import hashlib
import hmac
import json
import secrets
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import httpx2

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack, plain_client
from services.subscriptions.members.delivery_ids import DeliveryId, create_delivery_id
from tests.support.http.replies import data

Report = dict[str, Any]


def report(kind: str, **fields: object) -> Report:
    """Return a report of an event that happened just now."""
    return {"kind": kind, "occurred_at": datetime.now(UTC).isoformat(), **fields}


def bounce(kind: str = "hard", status: str = "5.1.1", **fields: object) -> Report:
    return report("bounced", bounce={"class": kind, "status": status}, **fields)


def body_of(*reports: Report) -> bytes:
    envelope = {"type": "delivery.reports", "timestamp": "x", "data": {"reports": list(reports)}}
    return json.dumps(envelope).encode()


def signed(secret: str, body: bytes) -> dict[str, str]:
    """Return the headers with the signature of a request body, which may be compressed."""
    message_id, timestamp = f"msg_{secrets.token_hex(8)}", str(int(datetime.now(UTC).timestamp()))
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.digest(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def post(client: httpx2.Client, sender: dict[str, Any], *reports: Report) -> httpx2.Response:
    """Post signed reports."""
    body = body_of(*reports)
    headers = signed(sender["secret"], body) | {"Content-Type": "application/json"}
    return post_body(client, sender["id"], body, headers)


def post_body(
    client: httpx2.Client, sender_id: object, body: bytes, headers: dict[str, str]
) -> httpx2.Response:
    """Post a request body to a sender's URL, without the client's API key."""
    url = client.base_url.join(f"/senders/{sender_id}/events")
    with plain_client(timeout=30) as anonymous_client:
        return anonymous_client.post(url, content=body, headers=headers)


def reject_calls(client: httpx2.Client, sender: dict[str, Any], *, count: int) -> None:
    """Post ``count`` requests without a signature at the same time.

    Wait until Pressroom has counted all ``count`` requests as rejected calls of the sender.
    """
    path = f"/senders/{sender['id']}"
    before = data(client.get(path))["refused_24h"]
    with ThreadPoolExecutor(count) as pool:
        replies = pool.map(lambda _: post_body(client, sender["id"], b"{}", {}), range(count))
        assert {reply.status_code for reply in replies} == {401}
    eventually(
        lambda: data(client.get(path))["refused_24h"] == before + count,
        what="the rejected calls counted",
    )


def settle(stack: Stack, sender: dict[str, Any]) -> None:
    query = "SELECT count(*) FROM sender_bodies WHERE sender_id = %s"
    eventually(
        lambda: stack.query(query, sender["id"]) == [(0,)], what="the reports applied", within=30
    )


def deliver(stack: Stack, client: httpx2.Client, sender: dict[str, Any], *reports: Report) -> None:
    assert data(post(client, sender, *reports)) == 1
    settle(stack, sender)


def reports_of(client: httpx2.Client, sender: dict[str, Any]) -> list[dict[str, Any]]:
    path = f"/senders/{sender['id']}/reports"
    return list(reversed(data(client.get(path, params={"limit": 1000}))["items"]))


def outcomes(client: httpx2.Client, sender: dict[str, Any]) -> list[str]:
    return [each["outcome"] for each in reports_of(client, sender)]


def delivery_for(
    stack: Stack, list_id: int, user_id: int, mailing_id: int = 1, day: datetime | None = None
) -> str:
    """Return a delivery id, with which a report identifies a member and a mailing."""
    moment = day or datetime.now(UTC)
    delivery = DeliveryId(list_id, user_id, mailing_id, moment.date())
    return create_delivery_id(stack.resources.keyring, delivery)
