"""Verifies requests that are signed according to Standard Webhooks 1.0.

The webhook service Svix uses other header names. The specification is at
https://github.com/standard-webhooks/standard-webhooks.
"""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import product

from core.errors.senders import SENDER_SIGNATURE_INVALID
from integrations.senders.event_times import parse_unix_text
from integrations.senders.port import SenderRequest

SECRET_PREFIX = "whsec_"  # noqa: S105 - the beginning of every secret
# The minimum length of a secret according to Standard Webhooks.
MIN_KEY_BYTES = 24
# The maximum difference between the time in the signed header and the time of arrival.
TOLERANCE = timedelta(minutes=5)


@dataclass(frozen=True)
class SignatureHeaders:
    message_id: str
    timestamp: str
    signatures: str


STANDARD_HEADERS = SignatureHeaders("webhook-id", "webhook-timestamp", "webhook-signature")
SVIX_HEADERS = SignatureHeaders("svix-id", "svix-timestamp", "svix-signature")


def is_signing_secret(secret: str) -> bool:
    """Accept ``whsec_`` and at least 24 bytes in base64."""
    return _load_secret(secret) is not None


def verify_message(
    request: SenderRequest, secrets: Sequence[str], headers: SignatureHeaders = STANDARD_HEADERS
) -> None:
    """Verify that one of the secrets signed the request, and that the request is recent.

    Invalid secrets are ignored.
    """
    message_id = request.headers.get(headers.message_id, "")
    sent_at = parse_unix_text(request.headers.get(headers.timestamp, ""))
    if not message_id or sent_at is None or abs(request.received_at - sent_at) > TOLERANCE:
        raise SENDER_SIGNATURE_INVALID()
    # The library ``standardwebhooks`` signs only text, but a compressed body isn't text.
    prefix = f"{message_id}.{int(sent_at.timestamp())}.".encode(errors="replace")
    expected_signatures = [
        b"v1," + base64.b64encode(hmac.digest(key, prefix + request.body, hashlib.sha256))
        for key in map(_load_secret, secrets)
        if key is not None
    ]
    signatures = request.headers.get(headers.signatures, "").split(" ")
    sent_signatures = [signature.encode(errors="replace") for signature in signatures]
    if not any(
        hmac.compare_digest(expected, sent)
        for expected, sent in product(expected_signatures, sent_signatures)
    ):
        raise SENDER_SIGNATURE_INVALID()


def _load_secret(secret: str) -> bytes | None:
    if not secret.startswith(SECRET_PREFIX):
        return None
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except ValueError:
        return None
    return key if len(key) >= MIN_KEY_BYTES else None
