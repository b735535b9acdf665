"""Errors about senders and their reports."""

from core.errors.catalogue import unauthenticated, unavailable

SENDER_SIGNATURE_INVALID = unauthenticated(
    "sender.signature_invalid", "The request has no valid proof of its sender."
)
_BUSY_CODE = "sender.busy"
_BUSY_SENTENCE = "Too many reports of this sender are waiting, or the service is unavailable."
# Amazon SNS repeats a request after a 503, but never after a 429.
SENDER_BUSY_FOR_SNS = unavailable(_BUSY_CODE, _BUSY_SENTENCE, retry_after=30)
