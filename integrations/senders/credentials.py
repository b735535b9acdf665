"""Verifies secrets that a provider sends as HTTP Basic credentials or as a Bearer token."""

import base64
import binascii
import hmac
from collections.abc import Sequence

from core.errors.senders import SENDER_SIGNATURE_INVALID
from integrations.senders.port import SenderRequest

USERNAME = "pressroom"


def verify_credentials(request: SenderRequest, secrets: Sequence[str]) -> None:
    """Accept a secret as a Bearer token, or as the password of the user ``pressroom``."""
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    sent_value = value.strip().encode(errors="replace")
    match scheme.lower():
        case "bearer":
            expected_values = [secret.encode() for secret in secrets]
        case "basic":
            expected_values = [f"{USERNAME}:{secret}".encode() for secret in secrets]
            sent_value = _decode(sent_value)
        case _:
            raise SENDER_SIGNATURE_INVALID()
    if not any(hmac.compare_digest(expected, sent_value) for expected in expected_values):
        raise SENDER_SIGNATURE_INVALID()


def _decode(value: bytes) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        return b""
