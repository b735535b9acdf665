"""Verifying webhooks, by Standard Webhooks 1.0."""

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pressroom_client.errors import WebhookInvalid

_PREFIX = "whsec_"
_VERSION = "v1"


def verify_webhook(
    secrets: str | Sequence[str],
    headers: Mapping[str, str],
    body: bytes | str,
    *,
    tolerance: float = 300.0,
) -> dict[str, Any]:
    """The message of a webhook, once its signature is found to be right.

    ``body`` is the request's body as it came, not parsed. While a secret is being changed, give
    both. Raises ``WebhookInvalid``, also for a message that is ``tolerance`` seconds older or newer
    than now. A message may come twice: its header ``webhook-id`` is the same then.
    """
    given = {name.lower(): value for name, value in headers.items()}
    try:
        message_id, sent_at = given["webhook-id"], given["webhook-timestamp"]
        signatures = given["webhook-signature"].split()
    except KeyError as error:
        raise WebhookInvalid(f"The header {error.args[0]} is missing.") from error
    _check_time(sent_at, tolerance)
    raw = body.encode() if isinstance(body, str) else body
    signed = b".".join((message_id.encode(), sent_at.encode(), raw))
    for secret in [secrets] if isinstance(secrets, str) else secrets:
        digest = hmac.new(_key_of(secret), signed, hashlib.sha256).digest()
        expected = f"{_VERSION},{base64.b64encode(digest).decode()}".encode()
        if any(hmac.compare_digest(expected, each.encode()) for each in signatures):
            message: dict[str, Any] = json.loads(raw)
            return message
    raise WebhookInvalid("No signature is right.")


def _check_time(sent_at: str, tolerance: float) -> None:
    if not (sent_at.isascii() and sent_at.isdigit()):
        raise WebhookInvalid("The header webhook-timestamp is no time.")
    if abs(time.time() - int(sent_at)) > tolerance:
        raise WebhookInvalid("The message is too old, or its time has not come.")


def _key_of(secret: str) -> bytes:
    """Raises ``ValueError`` for what is no secret of a webhook endpoint."""
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError("A webhook's secret begins with whsec_ and is base64.") from error
