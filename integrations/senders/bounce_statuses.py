"""Finds the enhanced status code (RFC 3463) of a bounce, and chooses the class of the bounce.

The classes of bounces are hard, soft, blocked and content (``BounceClass``).
"""

import re

from integrations.senders.port import BounceClass

# A mail server's reply can contain an enhanced status code, but also numbers such as IP addresses
# and program versions. The enhanced status code is at the start of the reply, after a three-digit
# SMTP code, or after "#".
_STATUS = re.compile(
    r"(?:^\s*(?:smtp;\s*)?|(?<![\d.])[245]\d\d[\s:;,-]{1,3}|#)"
    r"[(\[#]{0,2}(?P<status>[45]\.\d{1,3}\.\d{1,3})(?![\d.]*\d)",
    re.ASCII | re.IGNORECASE,
)
# Codes that only say that the mail wasn't delivered, and don't name a cause (RFC 3463, section
# 3.1).
_UNSPECIFIC_STATUSES = ("4.0.0", "5.0.0")
_MAX_SEARCHED_CHARACTERS = 2_000


def find_status(*texts: object) -> str | None:
    """Return the first enhanced status code in the texts, or ``None``.

    A code that names a cause, such as ``5.1.1``, takes precedence over an earlier code that
    doesn't, such as ``5.0.0``.

    Args:
        texts: status codes, and replies of servers that may contain a status code.
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
    """Return the class of a bounce.

    A hard bounce turns off the list's mail to a member, so a bounce counts as hard only if the
    address is invalid. The address isn't invalid if the status code means a full mailbox (5.2.2), a
    problem of the recipient's mail system (5.3.x) or a policy (5.7.x).

    Args:
        named_class: the class of the bounce according to the provider.
        status: the enhanced status code, if the event contains one.
    """
    if named_class is not BounceClass.HARD or status is None:
        return named_class
    if status.startswith("5.7."):
        return BounceClass.BLOCKED
    is_soft = status == "5.2.2" or status.startswith("5.3.")
    return BounceClass.SOFT if is_soft else named_class
