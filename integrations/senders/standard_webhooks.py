"""Verifies requests that are signed according to Standard Webhooks 1.0.

Three headers of a request contain the message id, the time of sending and the signatures. The
webhook service Svix uses the signatures of Standard Webhooks, but different header names. The
specification is at https://github.com/standard-webhooks/standard-webhooks.
"""

import base64
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product

from standardwebhooks import Webhook

from core.errors.senders import SENDER_SIGNATURE_INVALID
from integrations.senders.port import SenderRequest

SECRET_PREFIX = "whsec_"  # noqa: S105 - the beginning of every secret
# The minimum length of a secret according to Standard Webhooks.
MIN_KEY_BYTES = 24
# The maximum difference between the time in the signed header and the time of arrival.
TOLERANCE = timedelta(minutes=5)

_MAX_TIMESTAMP_DIGITS = 11


@dataclass(frozen=True)
class SignatureHeaders:
    """The lower-case names of the headers for the message id, time of sending and signatures."""

    message_id: str
    timestamp: str
    signatures: str


STANDARD_HEADERS = SignatureHeaders("webhook-id", "webhook-timestamp", "webhook-signature")
SVIX_HEADERS = SignatureHeaders("svix-id", "svix-timestamp", "svix-signature")


def is_signing_secret(secret: str) -> bool:
    """Return whether a text consists of ``whsec_`` and at least 24 bytes in base64."""
    return _load_secret(secret) is not None


def verify_message(
    request: SenderRequest, secrets: Sequence[str], headers: SignatureHeaders = STANDARD_HEADERS
) -> None:
    """Verify that one of the secrets signed the request, and that the request is recent.

    Raises ``sender.signature_invalid``.

    Args:
        secrets: the secrets with the prefix ``whsec_``. Invalid secrets are ignored.
    """
    message_id = request.headers.get(headers.message_id, "")
    sent_at = _parse_timestamp(request.headers.get(headers.timestamp, ""))
    if not message_id or sent_at is None or abs(request.received_at - sent_at) > TOLERANCE:
        raise SENDER_SIGNATURE_INVALID()
    try:
        body = request.body.decode()
        expected_signatures = [
            webhook.sign(message_id, sent_at, body).encode()
            for webhook in map(_load_secret, secrets)
            if webhook is not None
        ]
    except UnicodeError:
        # If the body or the message id isn't valid UTF-8, no signature can be valid.
        raise SENDER_SIGNATURE_INVALID() from None
    signatures = request.headers.get(headers.signatures, "").split(" ")
    sent_signatures = [signature.encode(errors="replace") for signature in signatures]
    if not any(
        hmac.compare_digest(expected, sent)
        for expected, sent in product(expected_signatures, sent_signatures)
    ):
        raise SENDER_SIGNATURE_INVALID()


def _load_secret(secret: str) -> Webhook | None:
    """Return an object that signs with a secret, or ``None`` if the secret is invalid.

    The function checks the secret itself, because the library ``standardwebhooks`` accepts short
    secrets and ignores characters that aren't base64.
    """
    if not secret.startswith(SECRET_PREFIX):
        return None
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except ValueError:
        return None
    return Webhook(key) if len(key) >= MIN_KEY_BYTES else None


def _parse_timestamp(header: str) -> datetime | None:
    if not header.isascii() or not header.isdigit() or len(header) > _MAX_TIMESTAMP_DIGITS:
        return None
    return datetime.fromtimestamp(int(header), UTC)
