"""Finds the enhanced status codes of bounces (RFC 3463), and chooses their class."""

import re

from integrations.senders.port import BounceClass

# A server's reply also contains other numbers, such as IP addresses and versions of programs. The
# code is at the start of the text, after the three digits of SMTP, or after "#".
_STATUS = re.compile(
    r"(?:^\s*(?:smtp;\s*)?|(?<![\d.])[245]\d\d[\s:;,-]{1,3}|#)"
    r"[(\[#]{0,2}(?P<status>[45]\.\d{1,3}\.\d{1,3})(?![\d.]*\d)",
    re.ASCII | re.IGNORECASE,
)
# These codes only say that the mail wasn't delivered (RFC 3463, section 3.1).
_UNSPECIFIC_STATUSES = ("4.0.0", "5.0.0")
_MAX_SEARCHED_CHARACTERS = 2_000


def find_status(*texts: object) -> str | None:
    """Return the first enhanced status code in the texts, or ``None``.

    A code that names the cause is preferred to a code that names no cause, such as ``5.0.0``.

    Args:
        texts: each text is the code itself, or a server's reply that contains the code.
    """
    statuses = [
        match["status"]
        for text in texts
        if isinstance(text, str)
        for match in _STATUS.finditer(text[:_MAX_SEARCHED_CHARACTERS])
    ]
    specific_statuses = [status for status in statuses if status not in _UNSPECIFIC_STATUSES]
    return next(iter(specific_statuses or statuses), None)


def choose_bounce_class(named_class: BounceClass, status: str | None) -> BounceClass:
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
