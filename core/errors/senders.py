"""Errors about senders and their reports."""

from core.errors.catalogue import unauthenticated

SENDER_SIGNATURE_INVALID = unauthenticated(
    "sender.signature_invalid", "The request has no valid proof of its sender."
)
