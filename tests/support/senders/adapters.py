"""Calls the adapter of a mail provider directly, without a running stack."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from core.errors import DomainError
from integrations.senders.port import (
    KeyMissing,
    ParsedBody,
    Report,
    SenderAdapter,
    SenderProof,
    SenderRequest,
    UnusedEvent,
)

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
NOW_SECONDS = int(NOW.timestamp())
ADDRESS = "ada@example.org"
# An invented delivery id. The adapters accept an invented delivery id, because they don't verify
# the message authentication code in a delivery id.
DELIVERY_ID = "k7" * 26
OTHER_ID = "z3" * 26


def verify(
    adapter: SenderAdapter,
    body: bytes,
    headers: Mapping[str, str],
    secrets: tuple[str, ...] = (),
    *,
    topic_arn: str | None = None,
    received_at: datetime = NOW,
) -> str | None:
    """Return the code of the adapter's error, or ``None`` if the adapter accepts the request."""
    request = SenderRequest(headers, body, received_at)
    try:
        asyncio.run(verify_request(adapter, request, SenderProof(secrets, topic_arn)))
    except DomainError as error:
        return error.code
    return None


async def verify_request(
    adapter: SenderAdapter, request: SenderRequest, proof: SenderProof
) -> None:
    """Verify a request, and fetch the public key for the verification if necessary."""
    try:
        adapter.verify(request, proof)
    except KeyMissing as missing_key:
        verify_with_key = await missing_key.fetch()
        verify_with_key()


def notify(content: object, **fields: object) -> dict[str, Any]:
    """Return an unsigned message of Amazon SNS."""
    return {
        "Type": "Notification",
        "MessageId": "m1",
        "TopicArn": "arn:aws:sns:us-east-1:123456789012:letters",
        "Timestamp": "2026-11-29T10:12:00.000Z",
        "Message": content if isinstance(content, str) else orjson.dumps(content).decode(),
        "SignatureVersion": "2",
        "Signature": "",
        "SigningCertURL": "",
        **fields,
    }


def parse(adapter: SenderAdapter, content: object) -> ParsedBody:
    return adapter.parse(content if isinstance(content, bytes) else orjson.dumps(content))


def parse_one(adapter: SenderAdapter, content: object) -> Report | UnusedEvent:
    [event] = parse(adapter, content).events
    return event


def describe(event: Report | UnusedEvent) -> str:
    """Return a short description of an event, such as ``bounced hard 5.1.1``."""
    if isinstance(event, UnusedEvent):
        return event.reason.value
    words = [event.kind, event.bounce_class, event.status, "machine" if event.is_machine else None]
    return " ".join(word for word in words if word)
