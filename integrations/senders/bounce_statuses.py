"""Finds the enhanced status codes of bounces (RFC 3463), and corrects providers' classes."""

import re

from integrations.senders.port import BounceClass

# The code must not be part of a longer number, such as an IP address.
_STATUS = re.compile(r"(?<![\d.])[45]\.\d{1,3}\.\d{1,3}(?![\d.]*\d)", re.ASCII)
_MAX_SEARCHED_CHARACTERS = 2_000


def find_status(*texts: object) -> str | None:
    """Return the first enhanced status code in the texts, or ``None``.

    A text is the code itself, or a server's reply that contains the code.
    """
    for text in texts:
        match = _STATUS.search(text[:_MAX_SEARCHED_CHARACTERS]) if isinstance(text, str) else None
        if match:
            return match[0]
    return None


def correct_class(named_class: BounceClass, status: str | None) -> BounceClass:
    """Return the class of a bounce, given the provider's class and the enhanced status code.

    A full mailbox (5.2.2), a problem of the recipient's mail system (5.3.x) or a policy (5.7.x)
    says nothing about the address. Such a bounce is never hard, even if the provider says so.
    """
    if named_class is not BounceClass.HARD or status is None:
        return named_class
    if status.startswith("5.7."):
        return BounceClass.BLOCKED
    is_soft = status == "5.2.2" or status.startswith("5.3.")
    return BounceClass.SOFT if is_soft else named_class
