"""Verifies the signatures of webhooks according to Standard Webhooks 1.0."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pressroom_client.errors import SecretInvalid, WebhookInvalid

_PREFIX = "whsec_"
_VERSION = "v1"


def verify_webhook(
    secrets: str | Sequence[str],
    headers: Mapping[str, str],
    body: bytes | str,
    *,
    tolerance: float = 300.0,
) -> dict[str, Any]:
    """Verify the signature of a webhook, and return its message.

    Raises ``WebhookInvalid`` for an invalid signature or an outdated message, and ``SecretInvalid``
    for a malformed secret. A message may arrive twice with the same header ``webhook-id``.

    Args:
        secrets: the secret or secrets of the endpoint. Pass the old and the new secret while you
            change the secret.
        body: the unparsed body of the request.
        tolerance: the maximum difference between the message's time and the current time, in
            seconds.
    """
    values = {name.lower(): value for name, value in headers.items()}
    try:
        message_id = values["webhook-id"]
        sent_at = values["webhook-timestamp"]
        signatures = values["webhook-signature"].split()
    except KeyError as error:
        raise WebhookInvalid(f"The header {error.args[0]} is missing.") from error
    _check_time(sent_at, tolerance)
    raw = body.encode() if isinstance(body, str) else body
    signed = b".".join((message_id.encode(), sent_at.encode(), raw))
    for secret in [secrets] if isinstance(secrets, str) else secrets:
        digest = hmac.new(_decode_secret(secret), signed, hashlib.sha256).digest()
        expected = f"{_VERSION},{base64.b64encode(digest).decode()}".encode()
        if any(hmac.compare_digest(expected, signature.encode()) for signature in signatures):
            message: dict[str, Any] = json.loads(raw)
            return message
    raise WebhookInvalid("No signature is right.")


def _check_time(sent_at: str, tolerance: float) -> None:
    if not (sent_at.isascii() and sent_at.isdigit()):
        raise WebhookInvalid("The header webhook-timestamp is no time.")
    if abs(time.time() - int(sent_at)) > tolerance:
        raise WebhookInvalid("The message is too old, or its time has not come.")


def _decode_secret(secret: str) -> bytes:
    """Return the signing key that a webhook endpoint's secret contains."""
    try:
        return base64.b64decode(secret.strip().removeprefix(_PREFIX), validate=True)
    except ValueError:
        raise SecretInvalid("A webhook's secret begins with whsec_ and is base64.") from None
